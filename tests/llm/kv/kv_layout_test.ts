/**
 * The layout of key/value caches. The place of every feature of every row is worked out by hand. The cache, its views
 * and the mark that fused kernels look for agree on it.
 */

import { assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { appendPositions, positionsOf } from "../../../src/array/devices/kv_memory.ts";
import { nodeOf } from "../../../src/array/tensor/tensor.ts";
import { bufferShape, bufferSizes, FUSED_LAYOUT, isBlocked, plainLayout } from "../../../src/graph/kv_layout.ts";
import { attrsOf } from "../../../src/graph/node.ts";
import { cachedHeads, shownUpdate, updateOf } from "../../../src/schedule/decoder/match/kv_update.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import type { DeviceFacts } from "../../../src/array/devices/device_of.ts";
import type { DecoderConfig } from "../../../src/llm/config/decoder.ts";
import { poolSizes } from "../../../src/llm/kv/make_cache.ts";
import { kvLayoutFor } from "../../../src/schedule/decoder/spec.ts";
import { unrunBackend } from "../../support/devices/unrun_device.ts";
import { TINY_DIR } from "../../support/models/models.ts";

const [HEADS, ROWS, DIM] = [2, 5, 8];

Deno.test("a buffer has a plane of all rows for each block of features of each head", () => {
  const sizes = { batch: 3, heads: HEADS, positions: ROWS, headDim: DIM, block: 4 };
  assertEquals(bufferShape(sizes), [3, 2, 2, 5, 4]);
  assertEquals(bufferSizes(bufferShape(sizes)), sizes);
  assertEquals(FUSED_LAYOUT, { keys: 4, values: 8 }); // the blocks that shaders/decode reads
  assertEquals([16, 8, 4].map((dim) => isBlocked(FUSED_LAYOUT, dim)), [true, true, false]);
  assertEquals(isBlocked(plainLayout(16), 16), false);
});

for (const block of [4, 8, 2]) {
  Deno.test(`rows appended to a buffer in blocks of ${block} lie where they should, and are seen as they were`, () => {
    mx.setDefaultDevice("wasm");
    mx.tidy(() => {
      const buffer = mx.full(bufferShape({ batch: 1, heads: HEADS, positions: ROWS, headDim: DIM, block }), -1);
      const rows = mx.arange(HEADS * 2 * DIM).astype(mx.float32).reshape([1, HEADS, 2, DIM]);
      const next = appendPositions(buffer, rows, mx.array([1], mx.int32));
      const expected = new Array(HEADS * ROWS * DIM).fill(-1);
      for (let h = 0; h < HEADS; h++) {
        for (let t = 0; t < 2; t++) {
          for (let d = 0; d < DIM; d++) {
            const plane = h * (DIM / block) + Math.floor(d / block);
            expected[(plane * ROWS + 1 + t) * block + d % block] = (h * 2 + t) * DIM + d;
          }
        }
      }
      assertEquals(next.shape, [1, HEADS, DIM / block, ROWS, block]);
      assertEquals([...next.toTypedArray()], expected);
      const seen = positionsOf(next).index("...", mx.Slice(1, 3), mx.Slice(null));
      assertEquals(seen.shape, rows.shape);
      assertEquals([...seen.toTypedArray()], [...rows.toTypedArray()]);
    });
  });
}

Deno.test("the update of a cache says how it lies; the same update by anybody else says nothing", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const buffer = mx.zeros([1, HEADS, 2, ROWS, 4]);
    const heads = mx.fast.rope(mx.zeros([1, HEADS, 3, DIM]), DIM, {
      traditional: false,
      base: 10000,
      scale: 1,
      offset: 0,
    });
    const start = mx.array([0], mx.int32);
    const marked = appendPositions(buffer, heads, start);
    assertEquals(attrsOf(nodeOf(marked), "dynamicSliceUpdate"), { axes: [3], donate: true, kvBlock: 4 });
    const { update: _, start: __, rows: ___, ...found } = updateOf(nodeOf(marked))!;
    const place = { kind: "contiguous", capacity: ROWS } as const;
    assertEquals(found, { place, sequences: 1, block: 4, count: 3, heads: HEADS, headDim: DIM });
    assertEquals(cachedHeads(nodeOf(marked))?.source === nodeOf(heads), true);
    assertEquals(shownUpdate(nodeOf(positionsOf(marked)))?.update === nodeOf(marked), true);

    const split = heads.reshape([1, HEADS, 3, 2, 4]).transpose(0, 1, 3, 2, 4);
    const own = mx.sliceUpdate(buffer, split, start, [3], { donate: true });
    assertEquals(updateOf(nodeOf(own)), undefined);
    assertEquals(shownUpdate(nodeOf(positionsOf(own))), undefined);
    // Neither do other views of a marked buffer show its rows.
    const other = marked.transpose(0, 1, 2, 4, 3).reshape([1, HEADS, ROWS, DIM]);
    assertEquals(shownUpdate(nodeOf(other)), undefined);
    assertEquals(shownUpdate(nodeOf(positionsOf(marked).reshape([1, ROWS, HEADS, DIM]))), undefined);
  });
});

Deno.test("rows that do not fit a buffer are refused", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const buffer = mx.zeros([1, HEADS, 2, ROWS, 4]);
    const start = mx.array([0], mx.int32);
    assertThrows(() => appendPositions(buffer, mx.zeros([1, HEADS, ROWS + 1, DIM]), start), mx.ShapeError);
    assertThrows(() => appendPositions(buffer, mx.zeros([1, HEADS + 1, 1, DIM]), start), mx.ShapeError);
  });
});

Deno.test("each cache of a model has the layout that options of its time ask for", async () => {
  using loaded = (await mx.lm.load(TINY_DIR, { device: "wasm" })).model;
  const device = {
    kvLayout: (...args: Parameters<DeviceFacts["kvLayout"]>) => kvLayoutFor(unrunBackend(), ...args),
    kvDtype: (dtype: mx.Dtype) => dtype,
  } as unknown as DeviceFacts;
  const model = {
    config: loaded.config as DecoderConfig,
    device,
    dtype: mx.float16,
    formats: [{ bits: 4, groupSize: 64 }],
  };
  const found = (["off", "on", "off", "on"] as const).map((regions) => {
    using _options = withOptions({ regions });
    return poolSizes(model).blocks;
  });
  const plain = plainLayout(model.config.headDim);
  assertEquals(found, [plain, FUSED_LAYOUT, plain, FUSED_LAYOUT]);
});
