/**
 * Plain functions for sequences that are decoded together: starts of slices, random keys and lengths of attention for
 * each row of a batch. Each row must give what it gives alone.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";

for (const name of testDevices()) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** The rows of an array along its first axis. */
function rowsOf(x: mx.Tensor): mx.Tensor[] {
  return mx.split(x, x.shape[0], 0);
}

for (const device of testDevices()) {
  const test = (name: string, body: () => void): void =>
    Deno.test(`${name} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(body);
    });

  test("sliceUpdate() begins each row at a start of its own, inside the array", () => {
    const x = mx.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5);
    const update = mx.multiply(mx.arange(2 * 3 * 2 * 1).reshape(2, 3, 2, 1), -1);
    const starts = mx.array([[1, 4], [9, -3]], mx.int32);
    const found = rowsOf(mx.sliceUpdate(x, update, starts, [2, 3]));
    rowsOf(x).forEach((row, i) => {
      const start = mx.array([[1, 4], [2, 0]][i], mx.int32); // clamped
      assertEquals(found[i].tolist(), mx.sliceUpdate(row, rowsOf(update)[i], start, [2, 3]).tolist());
    });
    assertThrows(() => mx.sliceUpdate(x, update, starts, [0, 3]), mx.ArrayError, "expected a start for each of 2 axes");
    assertThrows(() => mx.sliceUpdate(x, rowsOf(update)[0], starts, [2, 3]), mx.ArrayError, "found shape (2, 2)");
  });

  test("random.split() and random.bits() take a key for each row", () => {
    const keys = mx.array([[0, 7], [3, 1], [0, 7]], mx.uint32);
    const alone = rowsOf(keys).map((key) => key.reshape(2));
    assertEquals(mx.random.split(keys).tolist(), alone.map((key) => mx.random.split(key).tolist()));
    assertEquals(mx.random.bits([3, 5], keys).tolist(), alone.map((key) => mx.random.bits([5], key).tolist()));
    const logits = mx.random.normal([3, 900], mx.float32, 0, 2, mx.random.key(1));
    for (const options of [{ temperature: 0.8, topK: 40, topP: 0.9 }, { temperature: 1 }]) {
      const tokens = rowsOf(logits).map((row, i) => mx.fast.sample(row, { ...options, key: alone[i] }).tolist());
      assertEquals(mx.fast.sample(logits, { ...options, key: keys }).tolist(), tokens.flat());
    }
    const temperature = [0.8, 0, 1.3];
    const [topK, topP, minP] = [[40, 0, 3], [0.9, 1, 0.4], [0, 0, 0.05]];
    const each = rowsOf(logits).map((row, i) => {
      const options = { temperature: temperature[i], topK: topK[i], topP: topP[i], minP: minP[i], key: alone[i] };
      return mx.fast.sample(row, options).tolist();
    });
    assertEquals(
      mx.fast.sample(logits, { temperature: mx.array(temperature), topK, topP, minP, key: keys }).tolist(),
      each.flat(),
    );
    const short = { temperature: mx.array([1, 2]) };
    assertThrows(
      () => mx.fast.sample(logits, short),
      mx.ArrayError,
      "temperature of shape (3,), one for each row: found shape (2,)",
    );
    assertThrows(() => mx.random.bits([2, 5], keys), mx.ArrayError, "expected a key");
  });

  test("attention takes a length for each batch row", () => {
    const normal = (shape: number[], seed: number): mx.Tensor =>
      mx.random.normal(shape, mx.float32, 0, 1, mx.random.key(seed));
    const [q, k, v] = [normal([4, 4, 1, 16], 1), normal([4, 2, 9, 16], 2), normal([4, 2, 9, 16], 3)];
    const lengths = [9, 1, 20, 0];
    const attend = (...[q, k, v, lengths]: mx.Tensor[]): mx.Tensor =>
      mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.25, lengths });
    const found = attend(q, k, v, mx.array(lengths, mx.int32));
    const alone = lengths.map((length, i) => {
      const [q1, k1, v1] = [q, k, v].map((x) => rowsOf(x)[i]);
      return attend(q1, k1, v1, mx.array([length], mx.int32));
    });
    assertEquals(found.toTypedArray(), mx.concatenate(alone, 0).toTypedArray());
    using _options = withOptions({ fuse: false });
    const composite = attend(q, k, v, mx.array(lengths, mx.int32)).toTypedArray();
    assert(nmse(found.toTypedArray(), composite) <= 1e-7);
  });
}
