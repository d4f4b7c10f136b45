/** Buffers of keys and values: how many layers are one array, and that taking them apart or joining them keeps what they hold. */

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

  const side = [new LayerBuffers(SIZES), new LayerBuffers(SIZES)];
  LayerBuffers.allocateSlab(side, 2 ** 17); // in one memory of 1 GiB
  assertEquals(side.map(({ slabs }) => cuts(slabs)), [[2, 2, 1], [2, 2, 1]]);
  for (const one of side) one.dispose();
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

for (const device of testDevices()) {
  Deno.test(`LayerBuffers taken apart and joined hold what they held on ${device}`, async () => {
    mx.setDefaultDevice(device);
    await mx.tidy(() => {
      const sizes: LayerBufferSizes = { ...SIZES, layers: 3, heads: 1, dtype: mx.float32 };
      const all = Array.from({ length: 3 }, () => new LayerBuffers(sizes));
      LayerBuffers.allocateSlab(all, 8);
      const valueOf = (cache: number, layer: number): number => 10 * cache + layer;
      for (const [i, buffers] of all.entries()) {
        mx.eval(...buffers.slabs.flatMap((s) => s instanceof StackedTensors ? s.arrays : s) as mx.Tensor[]);
        const shared = mx.getActiveMemory();
        const { perLayer } = buffers;
        assertEquals(mx.getActiveMemory(), shared, "taking apart copied");
        perLayer.forEach((buffer, layer) =>
          buffers.replace(layer, mx.full(buffer.shape, valueOf(i, layer), mx.float32))
        );
        mx.eval(...buffers.perLayer);
      }
      const joint = LayerBuffers.join(all);
      const seen = joint.perLayer.map((buffer) => buffer.index(mx.Slice(null), 0, 0, 7, 31).tolist());
      assertEquals(seen, [0, 1, 2].map((layer) => [0, 1, 2].map((cache) => valueOf(cache, layer))));
      joint.keep(mx.array([2, 0], mx.int32));
      joint.grow(16);
      mx.eval(...joint.perLayer);
      const kept = joint.perLayer.map((buffer) => [buffer.shape, buffer.index(mx.Slice(null), 0, 0, 7, 31).tolist()]);
      assertEquals(kept, [0, 1, 2].map((layer) => [[2, 1, 4, 16, 32], [valueOf(2, layer), valueOf(0, layer)]]));
      for (const buffers of [...all, joint]) buffers.dispose();
    });
  });
}
