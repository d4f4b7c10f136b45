/**
 * The sizes that an engine has on devices of any memory: no array of its pool is larger than arrays may be. No device is needed.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { bfloat16, float32 } from "../../../src/graph/dtype.ts";
import { PAGE } from "../../../src/graph/kv_layout.ts";
import { MAX_SIZE } from "../../../src/graph/node.ts";
import { batchSizesOf, sizesOf } from "../../../src/llm/engine/options.ts";
import { maxSlots, maxUnits } from "../../../src/llm/kv/paged.ts";
import type { DecodingModel } from "../../../src/llm/models/mod.ts";

/** A pool of the sizes of Qwen3.5-4B: 8 layers with few large heads, 24 with recurrent states. */
const POOL = {
  layers: 8,
  heads: 4,
  headDim: 256,
  dtype: bfloat16,
  blocks: { keys: 64, values: 64 },
  states: [{ layer: 0, shape: [32, 128, 128], dtype: float32 }],
};

function modelOf(pool: Partial<typeof POOL>, maxBufferBytes: number): DecodingModel {
  return {
    poolSizes: () => ({ ...POOL, ...pool }),
    config: { maxPositionEmbeddings: 262144 },
    device: { name: "wasm", concurrent: true, maxBufferBytes },
  } as unknown as DecodingModel;
}

Deno.test("an engine with memory for more than an array may have takes arrays of the largest size", () => {
  const memory = { memoryBytes: 90e12, kvBytes: 80e12, maxSequences: 4096 };
  const { pages, slots, contextSize } = sizesOf(modelOf({}, 2 ** 45), memory);
  assertEquals(pages, Math.floor(MAX_SIZE / (4 * 256 * PAGE)));
  assertEquals(slots, Math.floor(MAX_SIZE / (32 * 128 * 128)));
  assertEquals(contextSize, 262144);
});

Deno.test("an engine takes arrays that the device can allocate", () => {
  const bytes = 2 ** 30;
  const { pages, slots } = sizesOf(modelOf({}, bytes), { memoryBytes: 10e12, kvBytes: 8e12, maxSequences: 4096 });
  assertEquals(pages, bytes / 2 / (4 * 256 * PAGE));
  assertEquals(slots, bytes / 4 / (32 * 128 * 128));
});

Deno.test("a batch of long prompts takes arrays of the largest size", () => {
  const positions = Array<number>(256).fill(262144);
  const { pages } = batchSizesOf(modelOf({ layers: 1 }, 2 ** 45), positions, {
    prefillStepSize: 2048,
    draftHead: false,
  });
  assert(pages * 4 * 256 * PAGE <= MAX_SIZE, `${pages} pages`);
});

Deno.test("the layer of the largest heads tells how many pages there are, keys or values", () => {
  const layerHeads = [{ heads: 2, headDim: 64 }, { heads: 1, headDim: 96, valueDim: 512 }];
  assertEquals(maxUnits({ ...POOL, layerHeads }, Infinity), Math.floor(MAX_SIZE / (512 * PAGE)));
  assertEquals(maxUnits({ ...POOL, layerHeads }, 2 * 512 * PAGE * 7 + 1), 7);
  assertEquals(maxSlots({ states: [] }, 1), Infinity);
});

Deno.test("states of all sequences have slots where their pages could fill the memory many times", () => {
  const given = { kvBytes: 70e9, memoryBytes: 140e9, maxSequences: 64 };
  const { maxSequences, slots, pages, bytesOfPage, bytesOfSlots } = sizesOf(modelOf({}, 2 ** 45), given);
  assertEquals([maxSequences, slots], [64, 129]);
  assert(pages * bytesOfPage + bytesOfSlots <= 70e9, `${pages} pages`);
  const few = sizesOf(modelOf({}, 2 ** 45), { ...given, kvBytes: 1e8 });
  assertEquals(few.slots, Math.floor(0.25 * 1e8 / (4 * 32 * 128 * 128)));
  assertEquals(few.maxSequences, few.slots - 1);
  // What short sequences use is mostly states. They have their share of less memory than all need.
  const short = sizesOf(modelOf({}, 2 ** 45), { memoryBytes: 1e9, kvBytes: 2e7, maxSequences: 8, contextSize: 64 });
  assertEquals([short.maxSequences, short.slots], [5, Math.floor(2e7 / 2 ** 21 * 17 / (17 + 8))]); // a page has as many bytes as a slot
});
