/**
 * A program of its own for trial_test.ts: `trial_process.ts DEVICE MODEL [kill|exit]` has a loop over a model find out whether its layers
 * run in one dispatch, and prints "done". With "kill" it is gone as soon as it notes that the test has begun, with
 * "exit" it ends there by itself.
 *
 * @module
 */

import * as mx from "../mod.ts";
import { Loop } from "../src/array/loop.ts";
import { getBackend } from "../src/backend/devices.ts";
import { StepCache } from "../src/llm/kv_cache.ts";
import type { LanguageModel } from "../src/llm/models/mod.ts";
import { options } from "../src/schedule/options.ts";

/** Has layers tested on a device, whatever it is. Workgroups of software devices do not run together and should not wait long. */
export function tryOn(device: string): void {
  const { concurrent } = getBackend(device).limits;
  mx.setDefaultDevice(device);
  Object.assign(options, { regions: "on", fast: "try", patience: concurrent ? undefined : 256 });
}

/** Traces greedy steps of a model for some sequences and has their test made, where it is open. */
export async function tryLayers(model: LanguageModel, sequences: number = 1): Promise<void> {
  using cache = mx.lm.KvCache.stack(Array.from({ length: sequences }, () => {
    const cache = model.makeCache();
    cache.reserve(1);
    return cache;
  }));
  const { keys, values } = cache;
  using token = mx.full([sequences, 1], 11, mx.int32);
  using position = mx.zeros([sequences], mx.int32);
  const state = { token, position, keys, values };
  using loop = new Loop(state, ({ token, position, keys, values }) => {
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([sequences, -1]);
    const next = mx.argmax(logits, -1).astype(mx.int32).reshape([sequences, 1]);
    return { token: next, position: mx.add(position, 1), keys: step.keys, values: step.values };
  });
  await loop.improve();
}

if (import.meta.main) {
  const [device, dir, end] = Deno.args;
  const { model } = await mx.lm.load(dir, { device });
  tryOn(device);
  if (end !== undefined) {
    const rename = Deno.renameSync;
    Deno.renameSync = (from, to) => {
      rename(from, to);
      Deno.renameSync = rename;
      if (end === "exit") Deno.exit(3);
      Deno.kill(Deno.pid, "SIGKILL");
    };
  }
  await tryLayers(model);
  console.log("done");
}
