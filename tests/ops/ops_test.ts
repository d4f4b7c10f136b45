/**
 * Every op of the case table on every device, with fusion and without, against float64 oracles, with guards around every buffer.
 *
 * The results of an op are evaluated together, so that a device gets one submission for them. VKMX_CASES=1000 generates that
 * many rows an op instead of 40, of all dtypes on all devices; VKMX_CASES_OP=softmax takes one op only. Before the full tier a part
 * of the generated rows is drawn, and software Vulkan runs a drawn part of all cases (support/draw_cases.ts).
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { CASES_PER_OP, casesOf, GENERATED, OPS, UNTESTED } from "./cases.ts";
import type { Case, Input } from "./cases/case.ts";
import { stored } from "./cases/draw.ts";
import { difference, flushed, numbersOf } from "../support/oracles/compare.ts";
import { testDevices } from "../support/devices/devices.ts";
import { drawCases, drawCover, isDrawn } from "../support/draw_cases.ts";
import { Guards } from "../support/devices/guards.ts";
import { SEED, TIER } from "../support/tier.ts";
import { withOptions } from "../../scripts/support/options.ts";
import { build, type Dense, generator, ravel, size } from "../support/oracles/oracle.ts";

/** Numbers as the dtype holds them: rounded by plain JavaScript, so that the oracle starts from what the array holds. */
function valuesOf(input: Input, next: () => number): Float64Array {
  const { shape, dtype, data, low = -4, high = 4 } = input;
  if (data) return Float64Array.from(data);
  const whole = !dtype.startsWith("float") && dtype !== "bfloat16";
  return Float64Array.from({ length: size(shape) }, () => {
    const v = low + (high - low) * next();
    return stored(dtype, whole ? Math.floor(v) : v);
  });
}

/** An array of an input, lying as it asks for, and what it holds. */
function make(input: Input, next: () => number): { tensor: mx.Tensor; dense: Dense } {
  const { shape, dtype, layout } = input;
  const values = valuesOf(input, next);
  const dense = { shape, data: values };
  const rank = shape.length;
  const flat = (data: ArrayLike<number>, of: readonly number[]): mx.Tensor =>
    mx.reshape(mx.array(Array.from(data), mx[dtype]), [...of]);
  /** The values in the order in which axes `order` of the array lie. */
  const permuted = (order: readonly number[]): mx.Tensor => {
    const lying = build(order.map((a) => shape[a]), (at) => {
      const from = new Array<number>(rank);
      order.forEach((a, d) => from[a] = at[d]);
      return values[ravel(shape, from)];
    });
    return mx.transpose(flat(lying.data, lying.shape), order.map((_, a) => order.indexOf(a)));
  };
  const axes = shape.map((_, a) => a);
  switch (layout) {
    case "transposed":
      return { tensor: permuted([...axes.slice(0, -2), rank - 1, rank - 2]), dense };
    case "permuted":
      return { tensor: permuted(axes.toReversed()), dense };
    case "strided": {
      const wide = new Float64Array(values.length * 2).fill(1);
      values.forEach((v, i) => wide[2 * i] = v);
      const lying = flat(wide, [...shape.slice(0, -1), shape[rank - 1] * 2]);
      return { tensor: lying.index("...", mx.Slice(null, null, 2)), dense };
    }
    case "reversed":
      return { tensor: flat(values.toReversed(), shape).index(...axes.map(() => mx.Slice(null, null, -1))), dense };
    case "offset": {
      const lying = flat([1, 1, 1, ...values, 1], [values.length + 4]);
      return { tensor: mx.reshape(lying.index(mx.Slice(3, -1)), [...shape]), dense };
    }
    case "repeated": {
      const lying = flat(values.subarray(0, size(shape.slice(1))), [1, ...shape.slice(1)]);
      return { tensor: mx.broadcastTo(lying, [...shape]), dense };
    }
    default:
      return { tensor: flat(values, shape), dense };
  }
}

/** The oracle's results of a case, kept for its second run. */
const expectations = new WeakMap<Case, readonly Dense[]>();

function expect(c: Case, dense: readonly Dense[]): readonly Dense[] {
  const known = expectations.get(c) ?? [c.oracle([...dense])].flat();
  expectations.set(c, known);
  return known;
}

/** A case whose inputs are there and whose results are asked for. */
interface Asked {
  readonly c: Case;
  readonly name: string;
  readonly dense: readonly Dense[];
  readonly results: readonly mx.Tensor[];
}

function ask(c: Case, seed: number, name: string): Asked {
  const next = generator(seed);
  const inputs = c.inputs.map((input) => make(input, next));
  mx.eval(inputs.filter((_, i) => c.inputs[i].layout).map((i) => i.tensor)); // views of stored arrays
  return { c, name, dense: inputs.map((i) => i.dense), results: [c.run(mx, inputs.map((i) => i.tensor))].flat() };
}

/** The faults of a case's results. */
function wrong({ c, dense, results }: Asked, flushes: boolean): string | undefined {
  const expected = expect(c, dense);
  const small = flushes && c.classes && dense.some((x) => x.data.some((v) => v !== 0 && Math.abs(v) < 2 ** -126));
  const otherwise = flushes && c.classes ? small ? [c.oracle(dense.map(flushed))].flat() : expected : undefined;
  if (results.length !== expected.length) return `${results.length} results instead of ${expected.length}`;
  for (const [i, result] of results.entries()) {
    const part = results.length > 1 ? `result ${i}: ` : "";
    if (`${result.shape}` !== `${expected[i].shape}`) {
      return `${part}shape (${result.shape}) is not (${expected[i].shape})`;
    }
    if (c.dtype && result.dtype.name !== c.dtype) return `${part}dtype ${result.dtype.name} is not ${c.dtype}`;
    const found = difference(numbersOf(result), expected[i], result.dtype.name, c, otherwise?.[i]);
    if (found) return part + found;
  }
  return undefined;
}

/** Runs cases together; says what failed. */
function check(list: readonly { c: Case; seed: number; fuse: boolean }[], flushes: boolean): string[] {
  const failures: string[] = [];
  const guarded = (name: string, fn: () => void): void => {
    try {
      fn();
    } catch (error) {
      failures.push(`${name}: ${(error as Error).message}`);
    }
  };
  for (const fuse of [true, false]) {
    using _options = withOptions({ fuse });
    mx.tidy(() => {
      const asked: Asked[] = [];
      for (const { c, seed } of list.filter((row) => row.fuse === fuse)) {
        const name = `${c.op} ${c.what}${fuse ? "" : " (not fused)"}`;
        guarded(name, () => asked.push(ask(c, seed, name)));
      }
      try {
        mx.eval(asked.map((a) => a.results));
      } catch { /* the one that cannot be evaluated says so when it is read */ }
      for (const a of asked) {
        guarded(a.name, () => {
          const found = wrong(a, flushes);
          if (found) failures.push(`${a.name}: ${found}`);
        });
      }
    });
  }
  return failures;
}

/** The least that a draw of an op's cases keeps: every dtype and every layout of every input. */
function featuresOf({ inputs }: Case): string[] {
  return inputs.flatMap(({ dtype, layout }, i) => [`${i} ${dtype}`, `${i} ${layout}`]);
}

/** Scans, which software Vulkan compiles for more than a second a dtype and layout. */
const SCANS = /^(log)?cum/;

/**
 * The least for software Vulkan: a third of the op's dtypes and layouts, a ninth of those of a scan. With the next seeds it
 * has the others. The CPU has all.
 */
function turnFeaturesOf({ op, inputs }: Case, device: string): string[] {
  const turns = SCANS.test(op) ? 9 : 3;
  const features = inputs.flatMap(({ dtype, layout }) => [dtype, `${layout}`]);
  return ["any", ...features.filter((feature) => isDrawn(device, [op, feature], turns))];
}

const only = Deno.env.get("VKMX_CASES_OP");

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1]))); // opened outside the tests, which count resources
  for (const op of OPS) {
    if (only && op !== only) continue;
    Deno.test(`${op}() agrees with its oracle on ${device}`, () => {
      mx.setDefaultDevice(device);
      const flushes = device !== "wasm";
      const { written, generated: rows } = casesOf(op, device === "wasm" || CASES_PER_OP > 40);
      const generated = TIER === "full" ? rows : drawCover(rows, featuresOf, op, SEED);
      const all = [
        ...written.flatMap((c, i) => [true, false].map((fuse) => ({ c, seed: i + 1, fuse }))),
        ...generated.map((c, i) => ({ c, seed: i + 1, fuse: i % 2 === 0 })),
      ];
      const list = drawCases(device, op, all, ({ c }) => turnFeaturesOf(c, device));
      const failures: string[] = [];
      {
        using guards = new Guards(getBackend(device));
        for (let at = 0; at < list.length; at += 200) failures.push(...check(list.slice(at, at + 200), flushes));
        failures.push(...guards.check());
        if (guards.alive > 0) failures.push(`${guards.alive} buffers stay alive`);
      }
      assertEquals(failures, []);
    });
  }
}

Deno.test("every exported function has generated rows, or a reason why it has none", () => {
  const { distributed, metal, cuda } = mx;
  const spaces = {
    ...{ "": mx, "fast.": mx.fast, "random.": mx.random, "linalg.": mx.linalg, "nn.": mx.nn, "fft.": mx.fft },
    ...{ "distributed.": distributed, "metal.": metal, "cuda.": cuda },
  };
  const names = Object.entries(spaces).flatMap(([space, object]) =>
    Object.entries(object).filter(([, value]) => typeof value === "function").map(([name]) => space + name)
  );
  const known = new Set(names);
  const methods = Object.getOwnPropertyNames(mx.Tensor.prototype).filter((name) => !known.has(name));
  for (const name of methods) names.push(`Tensor.${name}`);
  for (const name of Object.getOwnPropertyNames(mx.At.prototype)) names.push(`At.${name}`);
  const missing = names.filter((name) => !GENERATED.has(name) && !UNTESTED.has(name));
  assertEquals(missing, [], "add a family to tests/cases, or a reason to UNTESTED");
  const gone = [...GENERATED.keys(), ...UNTESTED.keys()].filter((name) => !names.includes(name));
  assertEquals(gone, [], "these are not exported");
  assertEquals([...GENERATED.keys()].filter((name) => UNTESTED.has(name)), [], "rows and a reason for none");
});
