/**
 * Shapes, strides and places as plain arithmetic, against the addresses that a walk over all elements gives.
 */

import { assert, assertEquals } from "@std/assert";
import {
  broadcastShapes,
  broadcastStrides,
  collapse,
  contiguousStrides,
  isContiguous,
  reshapeStrides,
  type Shape,
  sizeOf,
} from "../../../src/graph/shape.ts";
import { generator } from "../../support/oracles/oracle.ts";

/** Where the elements lie, in row-major order. */
function addresses(shape: Shape, strides: readonly number[]): number[] {
  let found = [0];
  shape.forEach((size, d) => {
    found = found.flatMap((at) => Array.from({ length: size }, (_, i) => at + i * strides[d]));
  });
  return found;
}

/** Strides that walk `found` in a shape, where there are any: read off the neighbours of the first element. */
function stridesOf(found: readonly number[], shape: Shape): number[] | undefined {
  const steps = contiguousStrides(shape);
  const strides = shape.map((size, d) => size > 1 ? found[steps[d]] - found[0] : 0);
  const walked = addresses(shape, strides);
  return walked.every((at, i) => at === found[i] - found[0]) ? strides : undefined;
}

/** All shapes of a size with sizes of 1 between some of them. */
function shapesOf(size: number, next: () => number): number[] {
  const shape: number[] = [];
  for (let rest = size; rest > 1;) {
    const factors = Array.from({ length: rest }, (_, i) => i + 1).filter((f) => rest % f === 0);
    const factor = factors[Math.floor(next() * factors.length)];
    shape.push(factor);
    rest /= factor;
  }
  while (next() < 0.3) shape.splice(Math.floor(next() * (shape.length + 1)), 0, 1);
  return shape;
}

/** A view of some array: sliced, stepped, transposed, repeated. */
function randomView(next: () => number): { shape: number[]; strides: number[] } {
  const shape = shapesOf([1, 2, 6, 12, 24, 36][Math.floor(next() * 6)], next);
  const strides = contiguousStrides(shape.map((size) => size + (next() < 0.3 ? 1 : 0)));
  shape.forEach((size, d) => {
    if (next() < 0.1) strides[d] *= -1;
    if (next() < 0.1) strides[d] = 0;
    if (size === 1 && next() < 0.5) strides[d] = 77; // says nothing
  });
  if (next() < 0.4 && shape.length > 1) shape.reverse(), strides.reverse();
  return { shape, strides };
}

Deno.test("reshapeStrides() finds the view where there is one, and only there", () => {
  const next = generator(1);
  let [views, copies] = [0, 0];
  for (let i = 0; i < 4000; i++) {
    const { shape, strides } = randomView(next);
    const to = shapesOf(sizeOf(shape), next);
    const found = addresses(shape, strides);
    const result = reshapeStrides(shape, strides, to);
    const exists = stridesOf(found, to) !== undefined;
    assertEquals(result !== undefined, exists, `(${shape}) by (${strides}) to (${to})`);
    if (result) assertEquals(addresses(to, result), found, `(${shape}) by (${strides}) to (${to})`);
    exists ? views++ : copies++;
  }
  assert(views > 500 && copies > 500, `${views} views, ${copies} copies`);
});

Deno.test("isContiguous() is the row-major walk without gaps", () => {
  const next = generator(2);
  for (let i = 0; i < 2000; i++) {
    const { shape, strides } = randomView(next);
    const found = addresses(shape, strides);
    assertEquals(isContiguous(shape, strides), found.every((at, n) => at === n), `(${shape}) by (${strides})`);
  }
  assert(isContiguous([3, 0, 2], [5, 7, 9]));
});

Deno.test("collapse() walks all operands as before, in as few dimensions as there can be", () => {
  const next = generator(3);
  for (let i = 0; i < 2000; i++) {
    const { shape, strides } = randomView(next);
    const operands = [strides, next() < 0.5 ? contiguousStrides(shape) : shape.map(() => 0)];
    const walk = collapse(shape, operands);
    operands.forEach((s, o) => assertEquals(addresses(walk.shape, walk.strides[o]), addresses(shape, s)));
    for (let d = 1; d < walk.shape.length; d++) {
      const joins = walk.strides.every((s) => s[d - 1] === s[d] * walk.shape[d]);
      assert(!joins && walk.shape[d] > 1, `(${shape}) by ${JSON.stringify(operands)}`);
    }
  }
});

Deno.test("broadcastStrides() repeats what has size 1 or is not there", () => {
  const next = generator(4);
  for (let i = 0; i < 1000; i++) {
    const { shape, strides } = randomView(next);
    const lead = Array.from({ length: Math.floor(next() * 3) }, () => 1 + Math.floor(next() * 3));
    const to = [...lead, ...shape.map((size) => size === 1 && next() < 0.5 ? 3 : size)];
    assertEquals(broadcastShapes(shape, to), to);
    const found = addresses(shape, strides);
    const own = contiguousStrides(shape);
    const steps = contiguousStrides(to);
    const expected = addresses(to, steps).map((n) =>
      found[
        to.reduce((at, size, d) => {
          const from = d - lead.length;
          const index = Math.floor(n / steps[d]) % size;
          return from < 0 || shape[from] === 1 ? at : at + index * own[from];
        }, 0)
      ]
    );
    assertEquals(addresses(to, broadcastStrides(shape, strides, to)), expected, `(${shape}) to (${to})`);
  }
});
