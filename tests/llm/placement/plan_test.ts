/**
 * How layers are divided among devices, without a device.
 */

import { assertEquals, assertThrows } from "@std/assert";
import { LlmError } from "../../../src/llm/error.ts";
import { fits, type FreeDevice, type ModelBytes, planParts } from "../../../src/llm/placement/plan.ts";

const model = (layers: number, more: Partial<ModelBytes> = {}): ModelBytes => ({
  first: 10,
  layers: Array<number>(layers).fill(10),
  last: 10,
  sharesWith: Array<undefined>(layers).fill(undefined),
  ...more,
});
const free = (...bytes: number[]): FreeDevice[] => bytes.map((free, i) => ({ name: `device ${i}`, free }));
const cut = (parts: ReturnType<typeof planParts>): string => parts.map(({ from, to }) => `${from}-${to}`).join(" ");

Deno.test("parts have bytes in proportion to free memory, the ends counted", () => {
  const plan = planParts(model(10), free(100, 100));
  assertEquals([cut(plan), plan.map(({ bytes }) => bytes)], ["0-5 5-10", [60, 60]]);
  assertEquals(cut(planParts(model(10), free(300, 100))), "0-8 8-10");
  assertEquals(cut(planParts(model(10, { first: 50 }), free(100, 100))), "0-3 3-10");
  assertEquals(cut(planParts(model(9), free(100, 100, 100))), "0-3 3-6 6-9");
  assertEquals(cut(planParts(model(3), free(1000, 1, 1))), "0-1 1-2 2-3");
  assertEquals(cut(planParts(model(4), free(0, 0))), "0-2 2-4");
});

Deno.test("where such parts do not fit, a device takes as many layers as it has room for", () => {
  // Half of 220 bytes is 110: the first four layers have 50, the fifth one has 150.
  const uneven = { ...model(5), layers: [10, 10, 10, 10, 150] };
  const plan = planParts(uneven, free(55, 200));
  assertEquals([cut(plan), plan.every(fits)], ["0-4 4-5", true]);
  const lacks = planParts(model(10), free(40, 60));
  assertEquals([cut(lacks), lacks.every(fits)], ["0-4 4-10", false]);
});

Deno.test("a split has layers, or shares of them", () => {
  assertEquals(cut(planParts(model(10), free(1, 1), [7, 3])), "0-7 7-10");
  assertEquals(cut(planParts(model(10), free(1, 1), [3, 1])), "0-7 7-10");
  assertEquals(cut(planParts(model(10), free(1, 1), [0.5, 0.5])), "0-5 5-10");
  assertEquals(cut(planParts(model(12), free(1, 1, 1), [20, 10, 10])), "0-6 6-9 9-12");
  assertEquals(cut(planParts(model(10), free(1, 1), [1e308, 1e308])), "0-5 5-10");
});

Deno.test("layers that share keys and values are on one device", () => {
  // Layers 4 and 5 read those of layers 2 and 3: no part ends between 2 and 5.
  const sharing = model(6, { sharesWith: [undefined, undefined, undefined, undefined, 2, 3] });
  assertEquals(cut(planParts(sharing, free(100, 100))), "0-2 2-6");
  assertEquals(cut(planParts(sharing, free(100, 100, 100))), "0-1 1-2 2-6");
  const refused = [
    [[3, 3], undefined, "split cannot divide the layers at 3: layer 4 reads the keys and values of layer 2"],
    [undefined, free(1, 1, 1, 1), "the layers make 3 parts at most, and 4 devices are named: name fewer"],
  ] as const;
  for (const [split, devices = free(1, 1), message] of refused) {
    assertThrows(() => planParts(sharing, devices, split), LlmError, message);
  }
});
