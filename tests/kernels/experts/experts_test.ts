/**
 * The fused functions of a layer of experts against float64, and beside their definitions in primitives.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { chooseExperts, type ExpertMatrices, expertSum, expertUnits } from "../../../src/array/quantized/experts.ts";
import type { ExpertChoice, ExpertUnit } from "../../../src/graph/experts.ts";
import type { QuantizationMode } from "../../../src/graph/quantization.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { EXPERTS_CHOSEN } from "../../../src/backend/kernels.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelTest, runKernel } from "../../support/devices/harness.ts";
import { dispatchesOf } from "../../support/devices/unrun_device.ts";
import { generator, nmse } from "../../support/oracles/oracle.ts";
import { unitOf } from "../../support/oracles/sorted_experts.ts";

const next = generator(11);
const drawn = (n: number, low = -1, high = 1): number[] =>
  Array.from({ length: n }, () => Math.fround(low + (high - low) * next()));
const floats = (x: mx.Tensor): number[] => x.reshape(-1).astype(mx.float32).tolist() as number[];
const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

type Choosing = Omit<ExpertChoice, "hasBias" | "hasScale">;

const PLAIN: Choosing = {
  chosen: 2,
  among: "all",
  normalized: false,
  sumEps: 0,
  factor: 1,
  groups: 1,
  closedGroups: 0,
};
const SIGMOID: Partial<Choosing> = { among: "sigmoid", normalized: true, sumEps: 1e-6, factor: 1.5 };

/** Numbers in falling order of keys; equal ones keep their order, and NaN comes last. */
function ordered(keys: readonly number[]): number[] {
  const rank = (x: number): number => Number.isNaN(x) ? -Infinity : x;
  return keys.map((_, i) => i).sort((a, b) =>
    Number(Number.isNaN(keys[a])) - Number(Number.isNaN(keys[b])) || (rank(keys[b]) - rank(keys[a]) || 0) || a - b
  );
}

/** The experts of a row and their weights, in float64. */
function choiceOf(row: readonly number[], how: Choosing, bias: readonly number[] | undefined): [number[], number[]] {
  const { chosen: k, among, groups, closedGroups, normalized, sumEps, factor } = how;
  const scores = among === "sigmoid" ? row.map(sigmoid) : [...row];
  const keys = scores.map((x, e) => x + (bias?.[e] ?? 0));
  const size = row.length / groups;
  const sums = Array.from({ length: groups }, (_, g) => {
    const own = keys.slice(g * size, (g + 1) * size).sort((a, b) => b - a);
    return own[0] + own[1];
  });
  const closed = ordered(sums.map((sum) => -sum)).slice(0, closedGroups);
  const chosen = ordered(keys.map((key, e) => closed.includes(Math.floor(e / size)) ? 0 : key)).slice(0, k);
  const among_ = among === "all" ? scores : chosen.map((e) => scores[e]);
  const most = Math.max(...scores);
  const total = among_.reduce((sum, x) => sum + (among === "sigmoid" ? x : Math.exp(x - most)), 0);
  const weights = chosen.map((e) => {
    if (among !== "sigmoid") return Math.exp(scores[e] - most) / total;
    return (normalized ? scores[e] / (total + sumEps) : scores[e]) * factor;
  });
  return [chosen, weights];
}

interface ChoiceCase {
  readonly what: string;
  readonly experts: number;
  readonly rows?: number;
  readonly how: Partial<Choosing>;
  readonly bias?: boolean;
  readonly scale?: boolean;
  /** Scores in steps of a half, so that many are equal. */
  readonly ties?: boolean;
  readonly dtype?: mx.Dtype;
}

const CHOICES: readonly ChoiceCase[] = [
  { what: "one expert", experts: 1, how: { chosen: 1 } },
  { what: "k = 1", experts: 7, rows: 3, how: { chosen: 1 } },
  { what: "all of them", experts: 6, rows: 2, how: { chosen: 6, among: "chosen" } },
  { what: "ties", experts: 40, rows: 5, how: { chosen: 5 }, ties: true },
  { what: "ties of sigmoids", experts: 64, rows: 2, how: { ...SIGMOID, chosen: 6 }, ties: true, bias: true },
  { what: "softmax of the chosen ones", experts: 128, rows: 2, how: { chosen: 8, among: "chosen" } },
  { what: "a scale of weights", experts: 33, rows: 2, how: { chosen: 4, among: "chosen" }, scale: true },
  { what: "bfloat16 scores", experts: 60, rows: 2, how: { chosen: 4 }, dtype: mx.bfloat16 },
  { what: "sigmoids as they are", experts: 32, how: { ...SIGMOID, chosen: 4, normalized: false } },
  { what: "groups", experts: 24, rows: 4, how: { ...SIGMOID, chosen: 3, groups: 6, closedGroups: 4 }, bias: true },
  {
    what: "groups with ties",
    experts: 32,
    rows: 4,
    how: { ...SIGMOID, chosen: 4, groups: 8, closedGroups: 3 },
    bias: true,
    ties: true,
  },
  { what: "512 experts", experts: 512, how: { chosen: 10, among: "chosen" } },
  { what: "more than the kernel holds", experts: 1030, how: { chosen: 3 } },
];

/** Runs with fusion and without. */
function bothWays(run: (fuse: boolean) => void): void {
  for (const fuse of [true, false]) {
    using _ = withOptions({ fuse });
    run(fuse);
  }
}

for (const device of testDevices()) {
  for (
    const { what, experts, rows = 1, how, bias, scale, ties, dtype = mx.float32 } of drawSome(
      device,
      "choices",
      CHOICES,
      4,
    )
  ) {
    Deno.test(`${device}: the choice of experts, ${what}`, () => {
      mx.setDefaultDevice(device);
      const all = { ...PLAIN, ...how };
      const given = drawn(rows * experts, -3, 3).map((x) => ties ? Math.round(2 * x) / 2 : x);
      const [biases, scales] = [drawn(experts, -0.5, 0.5), drawn(experts, 0.5, 2)]
        .map((list) => ties ? list.map(() => 0.25) : list);
      bothWays(() =>
        mx.tidy(() => {
          const scores = mx.array(given, mx.float32).reshape(rows, experts).astype(dtype);
          const found = floats(chooseExperts(scores, all, {
            bias: bias ? mx.array(biases, mx.float32) : undefined,
            scale: scale ? mx.array(scales, mx.float32) : undefined,
          }));
          const read = floats(scores);
          for (let row = 0; row < rows; row++) {
            const k = all.chosen;
            const own = found.slice(row * 2 * k, (row + 1) * 2 * k);
            const [chosen, weights] = choiceOf(
              read.slice(row * experts, (row + 1) * experts),
              all,
              bias ? biases : undefined,
            );
            const place = (e: number): number => own.indexOf(e);
            assertEquals(own.slice(0, k).sort((a, b) => a - b), chosen.toSorted((a, b) => a - b));
            const expected = weights.map((weight, i) => weight * (scale ? scales[chosen[i]] : 1));
            const error = nmse(
              Float32Array.from(chosen, (e) => own[k + place(e)]),
              Float32Array.from(expected),
            );
            assert(error <= 1e-11, `NMSE ${error}`);
          }
        })
      );
    });
  }

  Deno.test(`${device}: scores that are no numbers choose experts all the same`, () => {
    mx.setDefaultDevice(device);
    const rows = [[NaN, 1, NaN, 2], [NaN, NaN, NaN, NaN], [Infinity, 1, -Infinity, 2], [-0, 0, -1, -0]];
    const found = mx.tidy(() => floats(chooseExperts(mx.array(rows, mx.float32), { ...PLAIN, chosen: 3 })));
    const chosen = rows.map((_, row) => found.slice(6 * row, 6 * row + 3).sort());
    assertEquals(chosen, [[0, 1, 3], [0, 1, 2], [0, 1, 3], [0, 1, 3]]);
  });
}

interface ProductCase {
  readonly mode: QuantizationMode | "float32" | "float16" | "bfloat16";
  readonly bits?: number;
  readonly groupSize?: number;
  /** Rows, experts of all, features and features inside. */
  readonly sizes: readonly [R: number, E: number, H: number, N: number];
  readonly chosen: number;
  readonly unit: ExpertUnit;
  readonly bias?: boolean;
  readonly dtype?: mx.Dtype;
}

const PRODUCTS: readonly ProductCase[] = [
  { mode: "affine", bits: 4, groupSize: 64, sizes: [1, 5, 192, 64], chosen: 2, unit: "silu" },
  { mode: "affine", bits: 8, groupSize: 32, sizes: [3, 4, 96, 160], chosen: 4, unit: "geluTanh" },
  { mode: "affine", bits: 4, groupSize: 32, sizes: [2, 3, 32, 32], chosen: 1, unit: "silu", dtype: mx.bfloat16 },
  { mode: "affine", bits: 3, groupSize: 64, sizes: [1, 1, 64, 128], chosen: 1, unit: "silu" },
  { mode: "mxfp4", bits: 4, groupSize: 32, sizes: [2, 4, 160, 96], chosen: 3, unit: "clipped", bias: true },
  { mode: "mxfp8", bits: 8, groupSize: 32, sizes: [1, 3, 64, 32], chosen: 2, unit: "silu" },
  { mode: "nvfp4", bits: 4, groupSize: 16, sizes: [1, 3, 48, 80], chosen: 2, unit: "silu" },
  { mode: "bfloat16", sizes: [2, 6, 72, 40], chosen: 3, unit: "silu", dtype: mx.bfloat16 },
  { mode: "float16", sizes: [2, 3, 37, 21], chosen: 2, unit: "clipped", bias: true, dtype: mx.float16 },
  { mode: "float32", sizes: [1, 2, 130, 6], chosen: 2, unit: "geluTanh", bias: true },
  { mode: "affine", bits: 4, groupSize: 64, sizes: [0, 2, 64, 64], chosen: 1, unit: "silu" },
];

/** Matrices (E, outputs, inputs) of a case, and their numbers. */
function matricesOf(
  { mode, bits, groupSize, bias, dtype = mx.float32 }: ProductCase,
  [E, outputs, inputs]: readonly [number, number, number],
): [ExpertMatrices, numbers: number[], biases: number[]] {
  const size = (3 / inputs) ** 0.5;
  const dense = mx.array(drawn(E * outputs * inputs, -size, size), mx.float32).reshape(E, outputs, inputs);
  const own = bias ? mx.array(drawn(E * outputs), mx.float32).reshape(E, outputs).astype(dtype) : undefined;
  const biases = own ? floats(own) : new Array(E * outputs).fill(0);
  if (bits === undefined) {
    const weight = dense.astype(mx[mode as "float16"]);
    return [{ weight, bias: own }, floats(weight), biases];
  }
  const format = { groupSize: groupSize!, bits, mode: mode as QuantizationMode };
  const given = format.mode === "affine" ? dense.astype(dtype) : dense;
  const [weight, scales, affine] = mx.quantize(given, groupSize, bits, format.mode);
  // In float32, as the kernels multiply: rounded numbers would be those of the scales' dtype.
  const wide = [scales, affine].map((x) => x?.dtype === mx.bfloat16 ? x.astype(mx.float32) : x);
  const numbers = floats(mx.dequantize(weight, wide[0]!, wide[1] ?? null, groupSize, bits, { mode: format.mode }));
  return [{ weight, scales, biases: affine ?? null, format, bias: own }, numbers, biases];
}

for (const device of testDevices()) {
  for (const one of drawSome(device, "products", PRODUCTS, 4)) {
    const { mode, bits = "", sizes: [R, E, H, N], chosen: k, unit, dtype = mx.float32 } = one;
    Deno.test(`${device}: units and sums of experts in ${mode} ${bits}, ${R} rows of ${H} and ${N} features`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const [gate, gates, gateBiases] = matricesOf(one, [E, N, H]);
        const [up, ups, upBiases] = matricesOf(one, [E, N, H]);
        const [down, downs, downBiases] = matricesOf(one, [E, H, N]);
        const x = mx.array(drawn(R * H, -2, 2), mx.float32).reshape(R, H).astype(dtype);
        const experts = Array.from({ length: R }, () => ordered(drawn(E)).slice(0, k));
        const weights = Array.from({ length: R }, () => drawn(k, 0, 1));
        const choice = mx.array(experts.flatMap((own, row) => [...own, ...weights[row]]), mx.float32).reshape(R, 2 * k);
        const dot = (a: readonly number[], first: number, b: readonly number[], second: number, n: number): number => {
          let sum = 0;
          for (let i = 0; i < n; i++) sum += a[first + i] * b[second + i];
          return sum;
        };
        const values = floats(x);
        const expected = experts.flatMap((own, row) =>
          own.flatMap((e) =>
            Array.from({ length: N }, (_, n) => {
              const at = e * N + n;
              const [g, u] = [gates, ups].map((w) => dot(w, at * H, values, row * H, H));
              return unitOf(unit, g + gateBiases[at], u + upBiases[at]);
            })
          )
        );
        const bound = dtype === mx.float32 ? 1e-10 : dtype === mx.float16 ? 1e-5 : 1e-4;
        bothWays((fuse) => {
          const units = expertUnits(x, choice, gate, up, unit);
          assertEquals([units.shape, units.dtype], [[R, k, N], dtype]);
          const found = floats(units);
          const [error] = [nmse(Float32Array.from(found), Float32Array.from(expected))];
          assert(R === 0 || error <= bound, `NMSE ${error} of units, fused: ${fuse}`);
          const sums = experts.flatMap((own, row) =>
            Array.from({ length: H }, (_, h) =>
              own.reduce((sum, e, i) => {
                const y = dot(downs, (e * H + h) * N, found, (row * k + i) * N, N) + downBiases[e * H + h];
                return sum + weights[row][i] * y;
              }, 0))
          );
          const whole = expertSum(units, choice, down);
          assertEquals([whole.shape, whole.dtype], [[R, H], dtype]);
          const sumError = nmse(Float32Array.from(floats(whole)), Float32Array.from(sums));
          assert(R === 0 || sumError <= bound, `NMSE ${sumError} of sums, fused: ${fuse}`);
        });
      });
    });
  }
}

/** The fused functions of a row and a small layer, to run on them. */
function smallLayer(): { readonly x: mx.Tensor; readonly layer: (x: mx.Tensor, router: mx.Tensor) => mx.Tensor } {
  const one: ProductCase = { mode: "affine", bits: 4, groupSize: 32, sizes: [1, 4, 64, 32], chosen: 2, unit: "silu" };
  const [gate, up, down] = [[4, 32, 64], [4, 32, 64], [4, 64, 32]]
    .map((sizes) => matricesOf(one, sizes as [number, number, number])[0]);
  const layer = (x: mx.Tensor, router: mx.Tensor): mx.Tensor => {
    const choice = chooseExperts(mx.matmul(x, router), { ...PLAIN, among: "chosen" });
    return expertSum(expertUnits(x, choice, gate, up, "silu"), choice, down);
  };
  return { x: mx.array(drawn(64), mx.float32).reshape(1, 64), layer };
}

kernelTest("expert_choice() chooses by the sums of parts and a bias", (backend) => {
  const [splits, rows, experts, chosen] = [3, 5, 40, 4];
  const parts = Float32Array.from(drawn(splits * rows * experts, -2, 2));
  const added = Float32Array.from(drawn(experts));
  const out = new Float32Array(rows * 2 * chosen);
  runKernel(backend, "expert_choice", {
    spec: {
      DTYPE: mx.float32.code,
      AMONG: EXPERTS_CHOSEN,
      SPLITS: splits,
      DTYPE_ADDED: mx.float32.code,
      EXPERTS: experts,
    },
    push: { rows, chosen, groups: 1, closed: 0, normalized: 0, sum_eps: 0, factor: 1 },
    buffers: { scores: parts, out, added },
    grid: rows,
  });
  for (let row = 0; row < rows; row++) {
    const sums = Array.from({ length: experts }, (_, e) => {
      let sum = added[e];
      for (let s = 0; s < splits; s++) sum += parts[(s * rows + row) * experts + e];
      return sum;
    });
    const [numbers, weights] = choiceOf(sums, { ...PLAIN, chosen, among: "chosen" }, undefined);
    const found = [...out.subarray(row * 2 * chosen, (row + 1) * 2 * chosen)];
    assertEquals(found.slice(0, chosen), numbers);
    assert(nmse(Float32Array.from(found.slice(chosen)), Float32Array.from(weights)) < 1e-10);
  }
}, ["expert_choice"]);

for (const device of testDevices()) {
  Deno.test(`${device}: a layer of experts is four dispatches`, () => {
    mx.setDefaultDevice(device);
    const backend = getBackend(device);
    const { compile } = backend;
    const plans: string[][] = [];
    mx.tidy(() => {
      const { x, layer } = smallLayer();
      const router = mx.array(drawn(256), mx.float32).reshape(64, 4);
      mx.eval(x, router, layer(x, router)); // the stacks too
      try {
        backend.compile = (words) => {
          plans.push(dispatchesOf(words).map(({ kernel }) => kernel));
          return compile.call(backend, words);
        };
        const twice = layer(mx.multiply(x, 2), router);
        mx.eval(twice);
      } finally {
        backend.compile = compile;
      }
    });
    const kernels = plans.flat().slice(-4);
    assertEquals(kernels.slice(1), ["expert_choice", "expert_units", "expert_sum"]);
    assert(kernels[0].startsWith("mat"), kernels[0]);
  });
}

Deno.test("fused functions of experts come back from an exported function, and have gradients", async () => {
  const [device] = testDevices();
  mx.setDefaultDevice(device);
  const folder = await Deno.makeTempDir();
  mx.tidy(() => {
    const { x, layer } = smallLayer();
    const router = mx.array(drawn(256), mx.float32).reshape(64, 4);
    const expected = floats(layer(x, router));
    mx.exportFunction(`${folder}/layer`, (a: mx.Tensor, b: mx.Tensor) => [layer(a, b)], x, router);
    using imported = mx.importFunction(`${folder}/layer`);
    assertEquals(floats([imported(x, router)].flat(2)[0] as mx.Tensor), expected);

    const loss = (given: mx.Tensor): mx.Tensor => mx.sum(mx.square(layer(x, given)));
    const gradient = floats(mx.grad(loss)(router));
    const at = 37, step = 1e-2;
    const shifted = (by: number): number => {
      const values = floats(router);
      values[at] += by;
      return Number(loss(mx.array(values, mx.float32).reshape(64, 4)).item());
    };
    const expectedSlope = (shifted(step) - shifted(-step)) / (2 * step);
    assert(
      Math.abs(gradient[at] - expectedSlope) <= 2e-2 * Math.abs(expectedSlope) + 1e-4,
      `${gradient[at]} ${expectedSlope}`,
    );
  });
  await Deno.remove(folder, { recursive: true });
});
