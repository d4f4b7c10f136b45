/** Memory of recurrent states: a cache frees it, so V8's collector need not run for it. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { LayerStates } from "../../../src/llm/kv/states.ts";
import { engine } from "../../../src/schedule/plan/collector.ts";
import { collect } from "../../../src/schedule/plan/garbage.ts";
import { testDevices } from "../../support/devices/devices.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** As many arrays as a cache evaluates in several graphs, of 64 MB in all: results of that size are a reason to collect. */
const STATES = Array.from({ length: 32 }, () => ({ shape: [2 ** 19], dtype: mx.float32, layer: 0, device: undefined }));

for (const device of DEVICES) {
  Deno.test(`states and copies of them are no reason to collect on ${device}`, () => {
    mx.withDevice(device, () => {
      collect();
      const v8 = engine()! as { gc: () => void };
      const { gc } = v8;
      let collections = 0;
      v8.gc = () => {
        collections++;
        gc();
      };
      try {
        for (let prompt = 0; prompt < 3; prompt++) {
          const states = new LayerStates(STATES, 1);
          states.keep(1);
          assertEquals(states.arrays.map((array) => Number(mx.sum(array).item())), STATES.map(() => 0));
          mx.eval(mx.add(mx.ones([2]), 1));
          states.dispose();
        }
        assertEquals(collections, 0);
      } finally {
        v8.gc = gc;
      }
    });
  });
}
