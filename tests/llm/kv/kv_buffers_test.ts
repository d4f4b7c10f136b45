/** Buffers of keys and values: how many layers are one array, and that taking them apart keeps what they hold. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { StackedTensors } from "../../../src/array/devices/stack.ts";
import { LayerBuffers, type LayerBufferSizes } from "../../../src/llm/kv/buffers.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** A buffer of 2^12 rows has 2^23 bytes. */
const SIZES: LayerBufferSizes = { layers: 5, batch: 1, heads: 8, headDim: 128, block: 32, dtype: mx.float16 };

/** The first axes of the arrays: layers, or for arrays of one layer sequences. */
function cuts(stacks: LayerBuffers["slabs"]): number[] {
  return stacks.map((array) => (array instanceof StackedTensors ? array.arrays as mx.Tensor : array).shape[0]);
}

Deno.test("LayerBuffers puts as many layers into an array as 1 GiB holds, also when they grow", () => {
  const buffers = new LayerBuffers(SIZES);
  assertEquals(buffers.slabs, []);
  const rows = 2 ** 18; // nothing of this is evaluated
  for (
    const [rows, expected] of [[256, [5]], [2 ** 17, [4, 1]], [2 ** 18, [2, 2, 1]], [2 ** 20, [1, 1, 1, 1, 1]]] as const
  ) {
    const made = new LayerBuffers(SIZES);
    made.grow(rows);
    assertEquals([cuts(made.slabs), made.positions], [expected, rows]);
    made.dispose();
    assertEquals([made.slabs, made.positions], [[], 0]);
  }
  buffers.grow(rows / 2);
  assertEquals(cuts(buffers.slabs), [4, 1]);
  const grown = buffers.grown(rows);
  buffers.grow(rows);
  assertEquals([cuts(grown), cuts(buffers.slabs)], [[2, 2, 1], [2, 2, 1]]);
  const [stack] = buffers.slabs as StackedTensors[];
  assertEquals((stack.arrays as mx.Tensor).shape, [2, 1, 8, 4, rows, 32]);
  mx.dispose(grown);
  buffers.dispose();
});

Deno.test("LayerBuffers gives the buffer of a single layer as it is, however many arrays there are", () => {
  for (const [layers, rows] of [[1, 256], [3, 2 ** 20]]) {
    const buffers = new LayerBuffers({ ...SIZES, layers });
    buffers.grow(rows);
    assertEquals(buffers.slabs.map((array) => array instanceof StackedTensors), new Array(layers).fill(true));
    assertEquals(buffers.perLayer.map(({ shape }) => shape), new Array(layers).fill([1, 8, 4, rows, 32]));
    buffers.dispose();
  }
});

Deno.test("LayerBuffers puts layers that follow each other into one array where their heads are alike", () => {
  const [small, large] = [{ heads: 8, headDim: 64 }, { heads: 1, headDim: 256 }];
  const buffers = new LayerBuffers({ ...SIZES, layerHeads: [small, small, large, small, large] });
  buffers.grow(256);
  const shapes = buffers.slabs.map((array) => ((array as StackedTensors).arrays as mx.Tensor).shape);
  assertEquals(shapes, [[2, 1, 8, 1, 256, 64], [1, 1, 1, 1, 256, 256], [1, 1, 8, 1, 256, 64], [1, 1, 1, 1, 256, 256]]);
  buffers.grow(512);
  assertEquals(buffers.perLayer.map(({ shape }) => [shape[1], shape[3], shape[4]]), [
    [8, 512, 64],
    [8, 512, 64],
    [1, 512, 256],
    [8, 512, 64],
    [1, 512, 256],
  ]);
  buffers.dispose();
});

for (const device of testDevices()) {
  Deno.test(`LayerBuffers taken apart hold what they held, in the same memory, on ${device}`, async () => {
    mx.setDefaultDevice(device);
    await mx.tidy(() => {
      const buffers = new LayerBuffers({ ...SIZES, layers: 3, batch: 2, heads: 1, dtype: mx.float32 });
      buffers.grow(8);
      mx.eval(...buffers.slabs.flatMap((s) => s instanceof StackedTensors ? s.arrays : s) as mx.Tensor[]);
      for (const layer of [0, 1, 2]) buffers.write(layer, mx.full([2, 1, 8, 128], layer, mx.float32));
      const shared = mx.getActiveMemory();
      const { perLayer } = buffers;
      assertEquals(mx.getActiveMemory(), shared, "taking apart copied");
      const lastOf = (buffer: mx.Tensor): unknown => buffer.index(mx.Slice(null), 0, 0, 7, 31).tolist();
      assertEquals(perLayer.map(lastOf), [[0, 0], [1, 1], [2, 2]]);
      buffers.replace(1, mx.full(perLayer[1].shape, 7, mx.float32));
      buffers.grow(16);
      mx.eval(...buffers.perLayer);
      assertEquals(buffers.perLayer.map((buffer) => [buffer.shape, lastOf(buffer)]), [
        [[2, 1, 4, 16, 32], [0, 0]],
        [[2, 1, 4, 16, 32], [7, 7]],
        [[2, 1, 4, 16, 32], [2, 2]],
      ]);
      buffers.dispose();
    });
  });
}
