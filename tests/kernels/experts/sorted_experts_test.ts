/**
 * The order of choices by expert, their products, whose lanes dequantize their own codes, and sums of them, against float64 loops. On a device
 * without cooperative matrices the tests of products there are ignored by name, and emulated ones run.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../../src/graph/dtype.ts";
import type { ExpertUnit } from "../../../src/graph/experts.ts";
import { MODE_CODES } from "../../../src/schedule/ops/matmul/dequantize.ts";
import { UNITS } from "../../../src/schedule/ops/matmul/direct_experts.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { kernelTest, runKernel } from "../../support/devices/harness.ts";
import { assertClose, pack, unpack } from "../../support/oracles/kernel_values.ts";
import {
  type Case,
  choicesOf,
  DEFAULTS,
  expectedOf,
  expertsOf,
  matricesOf,
  orderOf,
  random,
  unitOf,
} from "../../support/oracles/sorted_experts.ts";

/** Units are stored as a sixteenth of themselves. */
const SHRINK = 16;

kernelTest("expert_order() orders choices by expert", (backend) => {
  for (const [rows, chosen, experts] of [[1, 1, 1], [3, 2, 9], [40, 3, 7], [150, 8, 130]]) {
    for (const [height, threads] of [[16, 64], [64, 256]]) {
      const { choice } = choicesOf(rows, chosen, experts);
      const chosenBy = choice.filter((_, i) => i % (2 * chosen) < chosen);
      const expected = orderOf(chosenBy, experts, height);
      const order = new Uint32Array(rows * chosen);
      const tiles = new Uint32Array(expected.tiles.length).fill(7);
      runKernel(backend, "expert_order", {
        spec: { THREADS: threads, HEIGHT: height, CHOSEN: chosen },
        push: { rows },
        buffers: { choice: Float32Array.from(choice), order, tiles },
        grid: [experts, 1, 1],
      });
      const what = `${rows} rows, ${chosen} of ${experts} experts, tiles of ${height}`;
      assertEquals([...order], expected.order, what);
      assertEquals([...tiles], expected.tiles, what);
    }
  }
}, ["expert_order"]);

kernelTest("expert_mix() adds the choices of each row by weight", (backend) => {
  const limits: Record<string, number> = { float32: 1e-12, float16: 1e-6, bfloat16: 1e-4 };
  for (const dtype of [float32, float16, bfloat16]) {
    for (const [rows, chosen, cols] of [[1, 1, 8], [5, 3, 72]]) {
      const { choice, weights } = choicesOf(rows, chosen, 4);
      const x = unpack(dtype, pack(dtype, random(rows * chosen * cols)));
      const out = pack(dtype, new Array(rows * cols).fill(7));
      runKernel(backend, "expert_mix", {
        spec: { THREADS: 64, DTYPE: dtype.code },
        push: { rows, chosen, cols },
        buffers: { x: pack(dtype, x), choice: Float32Array.from(choice), out },
        items: rows * cols / 8,
      });
      const expected = Float64Array.from({ length: rows * cols }, (_, at) => {
        const [row, column] = [Math.floor(at / cols), at % cols];
        return weights[row].reduce((sum, w, i) => sum + Math.fround(w) * x[(row * chosen + i) * cols + column], 0);
      });
      assertClose(
        unpack(dtype, out),
        expected,
        limits[dtype.name],
        dtype.name,
      );
    }
  }
}, ["expert_mix"]);

interface ProductCase extends Case {
  /** Gate and up of this unit in the place of one product. */
  readonly unit?: ExpertUnit;
  readonly bias?: Dtype;
  /** Choices that share a row of x. */
  readonly divisor?: number;
  readonly inPlace?: boolean;
  /** The experts of each row, in which workgroups look for their own. In their order, `counts` are the choices of each expert. */
  readonly found?: { readonly choice: readonly number[]; readonly chosen: number; readonly order: readonly number[] };
}

/** A case of the choices of so many rows, which kernels of few rows find by themselves. */
function foundCase(rows: number, chosen: number, experts: number, c: Omit<ProductCase, "counts">): ProductCase {
  const { choice } = choicesOf(rows, chosen, experts);
  const chosenBy = choice.filter((_, i) => i % (2 * chosen) < chosen);
  const counts = Array.from({ length: experts }, (_, e) => chosenBy.filter((expert) => expert === e).length);
  const { order } = orderOf(chosenBy, experts, 8);
  return { ...c, counts, inPlace: true, divisor: c.unit ? chosen : 1, found: { choice, chosen, order } };
}

function product(
  backend: Backend,
  kernel: KernelName,
  [height, columns]: readonly [number, number],
  c: ProductCase,
): void {
  const { counts, n, k: depth, mode = "affine", scales: scalesDtype = float16, unit, divisor = 1, inPlace } = c;
  const { x: dtype = float16, out: outDtype = float32 } = c;
  const [bits, group] = [c.bits ?? DEFAULTS[mode]![0], c.group ?? DEFAULTS[mode]![1]];
  const what = `${kernel} ${JSON.stringify(c, (_, v) => v?.code === undefined ? v : v.name)}`;
  const rows = counts.reduce((a, b) => a + b);
  const xRows = Math.ceil(rows / divisor);
  const stacks = (unit ? [0, 1] : [0]).map(() => matricesOf(counts.length, { ...c, bits, group }));
  const biases = c.bias && stacks.map(() => unpack(c.bias!, pack(c.bias!, random(counts.length * n))));
  // Rows in blocks of 16 differ by powers of two: each has its own scale then.
  const x = unpack(
    dtype,
    pack(dtype, random(xRows * depth).map((v, i) => dtype === float16 ? v : v * 2 ** (i / depth / 16 & 7))),
  );
  // Each once: 11 divides no number of rows.
  const left = Uint32Array.from(c.found?.order ?? Array.from({ length: rows }, (_, i) => (11 * i + 3) % rows));
  let half = new Uint16Array(pack(float16, x).buffer);
  const powers = new Float32Array(Math.ceil(xRows / 16));
  if (dtype !== float16) {
    half = new Uint16Array(xRows * depth);
    runKernel(backend, "half_rows", {
      spec: { THREADS: 64, DTYPE_X: dtype.code, BLOCK: 16, TERMS: 1, DTYPE_OUT: float16.code },
      push: { rows: xRows, cols: depth },
      buffers: { x: pack(dtype, x), out: half, powers },
      grid: powers.length,
    });
  }
  const { tiles } = orderOf([...expertsOf(counts)], counts.length, height);
  const out = pack(outDtype, new Array(rows * n).fill(7));
  const buffers = stacks.map(({ parts: [codes, scales, shifts] }, i) => {
    const names = i === 0 ? ["codes", "scales", "biases"] : ["up", "up_scales", "up_biases"];
    return { [names[0]]: codes!, [names[1]]: scales!, ...(shifts && { [names[2]]: shifts }) };
  });
  runKernel(backend, kernel, {
    spec: {
      THREADS: 128,
      GROUP: group,
      DTYPE_SCALES: (mode === "affine" ? scalesDtype : mx.uint8).code,
      MODE: MODE_CODES[mode],
      SCALED: dtype === float16 ? 0 : 1,
      DTYPE_OUT: outDtype.code,
      DTYPE_BIAS: (c.bias ?? float32).code,
      HAS_BIAS: biases ? 1 : 0,
      UNIT: UNITS[unit ?? "silu"],
      IN_PLACE: inPlace ? 1 : 0,
      K: depth,
      ...(c.found && { CHOSEN: c.found.chosen }),
    },
    push: { n, x_rows: xRows, divisor },
    buffers: {
      x: half,
      ...(dtype === float16 ? {} : { powers }),
      ...buffers[0],
      ...buffers[1],
      ...(biases && { gate_bias: pack(c.bias!, biases[0]) }),
      ...(biases && unit && { up_bias: pack(c.bias!, biases[1]) }),
      out,
      ...(c.found ? { left: Float32Array.from(c.found.choice) } : { left, tiles: Uint32Array.from(tiles) }),
    },
    grid: [c.found ? counts.length : tiles.length / 2, Math.ceil(n * stacks.length / columns), 1],
  });
  const experts = expertsOf(counts);
  const sums = stacks.map(({ numbers }, s) => {
    const own = expectedOf(c, x, left.map((i) => Math.floor(i / divisor)), numbers);
    return own.map((sum, at) => sum + (biases?.[s][experts[Math.floor(at / n)] * n + at % n] ?? 0));
  });
  const expected = new Float64Array(rows * n);
  for (let at = 0; at < expected.length; at++) {
    const row = Math.floor(at / n);
    expected[(inPlace ? left[row] : row) * n + at % n] = unit
      ? unitOf(unit, sums[0][at], sums[1][at]) / SHRINK
      : sums[0][at];
  }
  // x of float32 is rounded to float16.
  const limit = outDtype === bfloat16 ? 1e-4 : outDtype === float16 || dtype === float32 ? 1e-6 : 1e-10;
  assertClose(unpack(outDtype, out), expected, limit, what);
}

/** Cases for tiles of so many rows. Some have more than 16 groups, or more than 32, and odd numbers of them. */
function casesOf(height: number): readonly ProductCase[] {
  return [
    { counts: [3, 0, 17, 1], n: 128, k: 64 },
    { counts: [height, height + 1, 0, 2 * height - 1], n: 144, k: 160, group: 32, out: float16, inPlace: true },
    { counts: [0, 5], n: 48, k: 96, group: 32, x: float32, bias: float32, divisor: 2 },
    {
      counts: [40, 9],
      n: 32,
      k: 1056,
      group: 32,
      x: bfloat16,
      out: bfloat16,
      scales: bfloat16,
      bias: bfloat16,
      inPlace: true,
    },
    { counts: [2, 9], n: 48, k: 384, group: 128, unit: "silu" },
    { counts: [5], n: 32, k: 512, group: 64 },
    { counts: [2, 3], n: 48, k: 256, bits: 8, group: 128 },
    { counts: [2, 21], n: 80, k: 96, bits: 8, group: 32, unit: "geluTanh", divisor: 3, inPlace: true },
    { counts: [20, 1, 6], n: 80, k: 576, group: 32, unit: "silu", x: bfloat16, out: float16, scales: bfloat16 },
    { counts: [4, 1], n: 32, k: 576, mode: "mxfp4" },
    { counts: [9, 0, 18], n: 96, k: 224, mode: "mxfp4", unit: "clipped", bias: bfloat16, inPlace: true, out: float16 },
  ];
}

/** Cases of kernels of few rows alone. */
const FOUND: readonly ProductCase[] = [
  foundCase(8, 3, 9, { n: 48, k: 96, group: 32 }),
  foundCase(7, 20, 31, { n: 32, k: 64, group: 32, out: bfloat16 }),
  foundCase(5, 4, 13, { n: 48, k: 96, group: 32, unit: "silu" }),
  foundCase(8, 2, 6, { n: 32, k: 64, bits: 8, group: 64 }),
  foundCase(1, 1, 1, { n: 32, k: 64, bits: 8, group: 64, unit: "geluTanh" }),
];

/** Tiles of kernels, for codes of 4 and 8 bits. */
const TILES = [
  ["8", 8, 128, 4],
  ["16", 16, 128, 4],
  ["32", 32, 128, 4],
  ["64x256", 64, 256, 4],
  ["emulated", 16, 128, 4],
  ["few_emulated", 8, 128, 4],
  ["8_8bit", 8, 128, 8],
  ["16_8bit", 16, 128, 8],
  ["32_8bit", 32, 128, 8],
  ["64_8bit", 64, 128, 8],
  ["emulated_8bit", 16, 128, 8],
  ["few_emulated_8bit", 8, 128, 8],
] as const;

for (const [tile, height, columns, own] of TILES) {
  for (const kind of ["direct", "gated"] as const) {
    const name = `coopmat_experts_${kind}_${tile}` as KernelName;
    const needs: KernelName[] = tile.includes("emulated") ? [name] : ["coopmat_map", name];
    kernelTest(`${name}() multiplies the choices of each expert`, (backend) => {
      const cases = [...casesOf(height), ...(height === 8 ? FOUND : [])].filter(({ bits = 4, unit }) =>
        bits === own && (unit !== undefined) === (kind === "gated")
      );
      for (const c of drawSome(backend.name, name, cases, 3)) product(backend, name, [height, columns], c);
    }, [...needs, "half_rows"]);
  }
}
