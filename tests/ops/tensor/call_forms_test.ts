/**
 * Call forms that other JavaScript ports of MLX take. A dtype may stand in the place of an optional argument, arrays
 * come one by one, streams have no device.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

const told = (x: mx.Tensor): unknown[] => [x.dtype.name, x.tolist()];

for (const device of testDevices()) {
  Deno.test(`a dtype stands in the place of an optional argument on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        assertEquals(told(mx.linspace(0, 1, 5, mx.float32)), ["float32", [0, 0.25, 0.5, 0.75, 1]]);
        assertEquals(told(mx.linspace(0, 8, 3, mx.int32)), ["int32", [0, 4, 8]]);
        assertEquals(told(mx.linspace(0, 9, 3, false, mx.int32)), ["int32", [0, 3, 6]]);
        assertEquals(told(mx.linspace(7, 9, 1, mx.int32)), ["int32", [7]]);
        const fifty = mx.linspace(0, 98, mx.int32);
        assertEquals([fifty.dtype, fifty.shape, fifty.index(49).item()], [mx.int32, [50], 98]);
        assertEquals(told(mx.full([2], 3, mx.int32)), ["int32", [3, 3]]);
        assertEquals(told(mx.zeros([2], mx.int32)), ["int32", [0, 0]]);
        assertEquals(told(mx.ones(2, mx.uint8)), ["uint8", [1, 1]]);
        assertEquals(told(mx.arange(3, mx.float32)), ["float32", [0, 1, 2]]);
        assertEquals(told(mx.arange(1, 3, mx.int16)), ["int16", [1, 2]]);
        assertEquals(told(mx.eye(2, mx.int32)), ["int32", [[1, 0], [0, 1]]]);
        assertEquals(told(mx.tri(2, mx.bool)), ["bool", [[true, false], [true, true]]]);
        const x = mx.array([[1, 2], [3, 4]], mx.int8);
        assertEquals(told(mx.trace(x, mx.float32)), ["float32", 5]);
        assertEquals(told(mx.trace(x, 1, mx.float32)), ["float32", 2]);
        assertEquals(told(mx.trace(x, 0, 0, mx.float32)), ["float32", 5]);
        assertEquals(told(mx.trace(x, 0, 1, 0, mx.float32)), ["float32", 5]);
      })));

  Deno.test(`deviations take a correction on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const x = mx.array([1, 2, 3, 5]);
        const found = [
          x.var(null, false, 0, { correction: 2 }),
          mx.variance(x, null, false, 1, { correction: 2 }),
          x.variance(null, false, 2, { correction: null }),
          mx.square(x.std(null, false, 0, { correction: 2 })),
          mx.square(mx.std(x, 0, false, 0, { correction: 2 })),
        ];
        for (const y of found) assert(Math.abs(Number(y.item()) - 4.375) < 1e-5);
        assertThrows(() => mx.std(x, 0, false, 0, { corection: 1 } as object), mx.ValueError, "correction");
        assertEquals([mx.metal.deviceInfo(), mx.metal.isAvailable()], [{}, false]);
        assert(mx.metal.getActiveMemory === mx.getActiveMemory);
      })));

  Deno.test(`meshgrid() takes arrays one by one on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const [a, b] = [mx.array([1, 2, 3]), mx.array([4, 5])];
        const lists = (grid: mx.Tensor[]): unknown[] => grid.map((x) => x.tolist());
        const xy = [[[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]]];
        assertEquals(lists(mx.meshgrid(a, b)), xy);
        assertEquals(lists(mx.meshgrid([a, b])), xy);
        assertEquals(lists(mx.meshgrid([1, 2, 3], [4, 5])), xy);
        assertEquals(lists(mx.meshgrid(new Float32Array([1, 2, 3]), b)), xy);
        const ij = [[[1, 1], [2, 2], [3, 3]], [[4, 5], [4, 5], [4, 5]]];
        assertEquals(lists(mx.meshgrid(a, b, { indexing: "ij" })), ij);
        assertEquals(lists(mx.meshgrid([a, b], { indexing: "ij" })), ij);
        assertEquals(lists(mx.meshgrid(a, b, { sparse: true })), [[[1, 2, 3]], [[4], [5]]]);
        assertEquals(lists(mx.meshgrid(a)), [[1, 2, 3]]);
        assertEquals(lists(mx.meshgrid(a, b, a)).length, 3);
        assertEquals(mx.meshgrid(), []);
        assertThrows(() => mx.meshgrid(a, b, { index: "ij" } as object), mx.ValueError, "indexing");
      })));

  Deno.test(`draws of no numbers, and of vectors of means, on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        for (const rows of [[4], [3, 4], [1, 4]]) {
          const none = mx.random.categorical(mx.zeros(rows), -1, { numSamples: 0 });
          assertEquals([none.shape, none.dtype], [[...rows.slice(0, -1), 0], mx.uint32]);
        }
        assertThrows(
          () => mx.random.categorical(mx.zeros([3, 4]), -1, { numSamples: -1 }),
          mx.ShapeError,
          "categorical() expected sizes",
        );
        const key = mx.random.key(3);
        const [z] = [mx.random.normal([], null, null, null, key).item()];
        const means = mx.array([1, 2]);
        assertEquals(mx.random.normal([], null, means, null, key).tolist(), mx.add(means, z).tolist());
        assertEquals(mx.random.normal([3, 1], null, means, null, key).shape, [3, 2]);
        const wide = mx.random.normal([2], mx.float16, mx.zeros([1, 2]), mx.array([[1], [0]]), key);
        assertEquals([wide.shape, wide.dtype, wide.index(1).tolist()], [[2, 2], mx.float16, [0, 0]]);
        const complex = mx.random.normal([2], mx.complex64, mx.zeros([3, 2]), null, key);
        assertEquals([complex.shape, complex.dtype], [[3, 2], mx.complex64]);
        assertThrows(() => mx.random.normal([2], null, [1, 2, 3]), mx.ShapeError);
      })));

  Deno.test(`streams without a device are of the default one on ${device}`, () =>
    mx.withDevice(device, () => {
      const made = mx.newStream();
      assertEquals(made.deviceName, device);
      assertEquals(mx.defaultStream().deviceName, device);
      assert(!made.equals(mx.defaultStream()) && mx.defaultStream().equals(mx.defaultStream(device)));
      assertEquals(mx.stream(made, () => mx.add(mx.ones([2]), 1).tolist()), [2, 2]);
      const { deviceName, architecture } = mx.deviceInfo();
      assert(deviceName.length > 0 && architecture.length > 0);
      assertEquals(mx.deviceInfo(device), mx.deviceInfo());
      mx.clearStreams();
    }));
}
