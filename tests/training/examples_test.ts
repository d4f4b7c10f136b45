/** The training examples learn what they say: a loss that is stated here, far from the one before, on data that was not trained on. */

import { assert } from "@std/assert";
import * as mx from "../../mod.ts";
import { train as trainMlp } from "../../examples/train_mlp.ts";
import { train as trainTransformer } from "../../examples/train_transformer.ts";
import { testDevices } from "../support/devices/devices.ts";
import { TIER } from "../support/tier.ts";

mx.devices(); // opens the Vulkan library outside of any test

for (const device of testDevices()) {
  Deno.test(`${device}: examples/train_mlp.ts tells the arms of a spiral apart`, () => {
    mx.setDefaultDevice(device);
    const { lossBefore, loss, accuracy } = trainMlp();
    assert(lossBefore > 1, `untrained, the loss is ${lossBefore}: ln 3 is what guessing gives`);
    assert(loss < 0.02, `the loss is ${loss}`);
    assert(accuracy > 0.99, `${accuracy} are right`);
  });

  // All steps take 20 seconds of a processor, and a second each on a software GPU. The full tier runs all of them on
  // the CPU; otherwise only the first ones run.
  const [steps, most] = device === "wasm" && TIER === "full" ? [undefined, 0.4] : [30, 2.2];
  Deno.test(`${device}: examples/train_transformer.ts learns a grammar`, () => {
    mx.setDefaultDevice(device);
    const { lossBefore, loss, entropy } = trainTransformer(steps);
    assert(lossBefore > 3, `untrained, the loss is ${lossBefore}: ln 26 = 3.26 is what guessing gives`);
    assert(loss < most, `the loss is ${loss} behind ${steps ?? "all"} steps`);
    assert(loss > entropy, `the loss ${loss} is below ${entropy}, which no model can reach: it has seen the text`);
  });
}
