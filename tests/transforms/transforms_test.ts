/**
 * Derivatives against differences, forward against reverse mode, batches against loops: for every row of the case table, on every
 * device. Reverse mode of fused ops also holds for their composites, which is what their rule is made of.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { ELEMENTWISE } from "../../src/backend/kernels.ts";
import { CONSTANT, DIFFERENTIABLE } from "../../src/array/transforms/elementwise_rules.ts";
import { testDevices } from "../support/devices/devices.ts";
import { drawSome } from "../support/draw_cases.ts";
import { generator } from "../support/oracles/oracle.ts";
import { CASES, type TransformCase } from "./cases.ts";

mx.devices(); // opens the Vulkan library outside of any test

type T = mx.Tensor;

function draw(c: TransformCase, shape: readonly number[], next: () => number): T {
  const n = shape.reduce((a, b) => a * b, 1);
  const [low, high] = c.range ?? [-2, 2];
  if (!c.distinct) return mx.array(Array.from({ length: n }, () => low + (high - low) * next())).reshape([...shape]);
  // Different multiples of a step, in any order, and a little off, so that two arguments do not tie either.
  const order = Array.from({ length: n }, (_, i) => i).sort(() => next() - 0.5);
  const off = next();
  return mx.array(order.map((i) => low + (high - low) * (i + 0.2 + 0.6 * off) / n)).reshape([...shape]);
}

const dot = (a: T, b: T): number => mx.sum(mx.multiply(a.astype(mx.float32), b.astype(mx.float32))).item() as number;

function randomLike(x: T, next: () => number): T {
  return mx.array(Array.from({ length: x.size }, () => next() - 0.5)).reshape(x.shape).astype(x.dtype) as T;
}

/** Rows of the table that a device runs, with their seeds. Rules are the same on all devices: software Vulkan runs a fifth of them. */
function casesOf(device: string): readonly { readonly c: TransformCase; readonly seed: number }[] {
  return drawSome(device, "transforms", CASES.map((c, seed) => ({ c, seed })), Math.ceil(CASES.length / 5));
}

for (const device of testDevices()) {
  Deno.test(`vjp is what differences say, and jvp its transpose, on ${device}`, () => {
    mx.withDevice(device, () => {
      const failed: string[] = [];
      casesOf(device).forEach(({ c, seed }) => {
        if (c.constant) return;
        mx.tidy(() => {
          const next = generator(seed + 1);
          const args = c.shapes.map((shape) => draw(c, shape, next));
          const tangents = args.map((x) => randomLike(x, next));
          const y = c.run(...args);
          const cotangent = randomLike(y, next);
          const [[same], back] = mx.vjp(c.run, args, [cotangent]);
          const [, [forth]] = mx.jvp(c.run, args, tangents);
          assertEquals(same.toTypedArray(), y.toTypedArray(), c.name);
          const reverse = back.reduce((total, g, i) => total + dot(g, tangents[i]), 0);
          const forward = dot(forth, cotangent);
          const h = 2 ** -9;
          const moved = (by: number): T => c.run(...args.map((x, i) => mx.add(x, mx.multiply(tangents[i], by)) as T));
          const difference = dot(mx.subtract(moved(h), moved(-h)) as T, cotangent) / (2 * h);
          const scale = Math.abs(difference) + 0.1;
          if (!(Math.abs(reverse - difference) < 0.02 * scale)) {
            failed.push(`${c.name}: vjp ${reverse}, differences ${difference}`);
          }
          if (!(Math.abs(reverse - forward) < 1e-4 * scale)) failed.push(`${c.name}: vjp ${reverse}, jvp ${forward}`);
          back.forEach((g, i) => assertEquals(g.shape, args[i].shape, c.name));
        });
      });
      assertEquals(failed, []);
    });
  });

  Deno.test(`vmap gives what a loop gives, on ${device}`, () => {
    mx.withDevice(device, () => {
      const failed: string[] = [];
      casesOf(device).forEach(({ c, seed }) => {
        mx.tidy(() => {
          const next = generator(seed + 1);
          const rows = [0, 1, 2].map(() => c.shapes.map((shape) => draw(c, shape, next)));
          // Each subset of arguments that one number of its bits names is a batch, along another axis each time.
          for (let bits = 1; bits < 1 << c.shapes.length; bits++) {
            const has = (i: number): boolean => (bits >> i & 1) === 1;
            const axes = c.shapes.map((shape, i) => has(i) ? (bits + i) % (shape.length + 1) : null);
            const args = c.shapes.map((_, i) =>
              has(i) ? mx.stack(rows.map((row) => row[i]), axes[i]!) as T : rows[0][i]
            );
            const out = mx.vmap(c.run, axes)(...args);
            const loop = mx.stack(rows.map((row) => c.run(...row.map((x, i) => has(i) ? x : rows[0][i]))));
            assertEquals(out.shape, loop.shape, c.name);
            const far = mx.max(mx.abs(mx.subtract(out.astype(mx.float32), loop.astype(mx.float32)))).item() as number;
            if (!(far < 1e-4)) failed.push(`${c.name} over ${axes}: off by ${far}`);
          }
        });
      });
      assertEquals(failed, []);
    });
  });

  Deno.test(`second derivatives and transforms of transforms agree, on ${device}`, () => {
    mx.withDevice(device, () => {
      const f = (x: T): T => mx.sum(mx.multiply(mx.sin(x), mx.exp(mx.multiply(x, 0.5)))) as T;
      const x = mx.array([0.3, -1.2, 2]);
      const second = mx.vmap(mx.grad(mx.grad((v: T) => f(v.reshape(1)) as T)))(x);
      const [, [forward]] = mx.jvp(mx.grad(f), [x], [mx.ones([3])]);
      const expected = x.tolist().map((v) => Math.exp(v / 2) * (Math.cos(v) - 0.75 * Math.sin(v)));
      for (const found of [second, forward]) {
        (found.tolist() as number[]).forEach((v, i) => assert(Math.abs(v - expected[i]) < 1e-5, `${found.tolist()}`));
      }
      // The Jacobian, one row at a time and one column at a time.
      const g = (v: T): T => mx.multiply(mx.sum(v), mx.cos(v)) as T;
      const rows = mx.vmap((c: T) => mx.vjp(g, [x], [c])[1][0])(mx.eye(3));
      const columns = mx.vmap((t: T) => mx.jvp(g, [x], [t])[1][0], 0, 1)(mx.eye(3));
      assert(mx.allclose(rows, columns, 1e-5, 1e-6).item());
    });
  });
}

Deno.test("every elementwise function has derivatives or is said to be constant", () => {
  const rows = Object.keys(ELEMENTWISE);
  const known = new Set([...DIFFERENTIABLE, ...CONSTANT]);
  const casts = new Set(["float_to_int", "float_to_uint", "int_to_float", "uint_to_float", "to_bool"]);
  assertEquals(rows.filter((name) => !known.has(name) && !casts.has(name)), []);
  assertEquals(CONSTANT.filter((name) => DIFFERENTIABLE.includes(name)), []);
});
