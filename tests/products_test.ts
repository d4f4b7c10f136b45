/**
 * The product kernels on every device, one dispatch each, against float64 loops: matmul, matvec, quantize, dequantize,
 * quantized_matvec, quantized_matmul, attention. Bounds are normalised mean squared errors.
 */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../src/backend/backend.ts";
import type { KernelName } from "../src/backend/kernels.ts";
import { type KernelRun, kernelTest as test, runKernel } from "./harness.ts";
import { generator, nmse } from "./oracle.ts";

// ---- dtypes -------------------------------------------------------------------------------------------------------

type Words = Float32Array | Float16Array | Uint16Array | Int32Array | Uint8Array;

interface Type {
  readonly name: string;
  readonly code: number;
  /** Bound of products whose result has this dtype. */
  readonly bound: number;
  pack(values: ArrayLike<number>): Words;
  values(words: Words): Float64Array;
}

const plain = (name: string, code: number, bound: number, From: { from(v: ArrayLike<number>): Words }): Type => ({
  name,
  code,
  bound,
  pack: (values) => From.from(values),
  values: (words) => Float64Array.from(words),
});

const U8 = plain("u8", 1, 0, Uint8Array);
const I32 = plain("i32", 6, 0, Int32Array);
const F16 = plain("f16", 7, 5e-4, Float16Array);
const F32 = plain("f32", 9, 1e-7, Float32Array);
const BF16: Type = {
  name: "bf16",
  code: 8,
  bound: 5e-4,
  pack(values) {
    const bits = new Uint32Array(Float32Array.from(values).buffer);
    return Uint16Array.from(bits, (u) => (u + 0x7fff + ((u >>> 16) & 1)) >>> 16);
  },
  values(words) {
    const bits = Uint32Array.from(words, (u) => u << 16);
    return Float64Array.from(new Float32Array(bits.buffer));
  },
};

/** The values as the dtype holds them. */
function rounded(type: Type, values: ArrayLike<number>): Float64Array {
  return type.values(type.pack(values));
}

const BOOL = 0;
const next = generator(7);
const random = (n: number, scale = 1): Float64Array => Float64Array.from({ length: n }, () => (next() * 2 - 1) * scale);

// ---- running ------------------------------------------------------------------------------------------------------

const THREADS = [64, 256] as const;

/** A grid of `groups` workgroups, folded into (x, y) as lowering does; the odd width leaves workgroups over. */
function folded(groups: number): [number, number, number] {
  const x = Math.max(1, Math.min(groups, 7));
  return [x, Math.max(1, Math.ceil(groups / x)), 1];
}

function tiles(threads: number, ...sizes: [number, number]): number {
  const tile = threads === 256 ? 64 : 32;
  return Math.ceil(sizes[0] / tile) * Math.ceil(sizes[1] / tile);
}

/** Runs with an output of `n` values of `type` and compares. */
function check(
  backend: Backend,
  kernel: KernelName,
  run: KernelRun,
  type: Type,
  expected: Float64Array,
  what: string,
  bound = type.bound,
): void {
  const out = type.pack(new Float64Array(expected.length).fill(-1));
  runKernel(backend, kernel, { ...run, buffers: { ...run.buffers, out } });
  const error = nmse(type.values(out), expected);
  assert(error <= bound, `${kernel} ${what} on ${backend.name}: NMSE ${error.toExponential(2)} > ${bound}`);
}

// ---- matmul and matvec --------------------------------------------------------------------------------------------

interface Product {
  readonly batchShape: readonly number[];
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly types: readonly [Type, Type, Type];
  /** Whether a and b are stored with their last two dimensions swapped, and whether every second element is skipped. */
  readonly swapped?: readonly [boolean, boolean];
  readonly gaps?: boolean;
  /** b is one matrix for all. */
  readonly broadcast?: boolean;
  /** Both run backwards along k. */
  readonly reversed?: boolean;
}

function product(backend: Backend, kernel: "matmul" | "matvec", p: Product, threads: number): void {
  const { m, n, k, types: [A, B, Out] } = p;
  const batch = p.batchShape.reduce((x, d) => x * d, 1);
  const gap = p.gaps ? 2 : 1;
  const whole = Out.bound === 0;
  const numbers = (count: number): Float64Array =>
    random(count * gap, whole ? 50 : 1).map((v) => whole ? Math.trunc(v) : v);
  const a = A.pack(numbers(batch * m * k));
  const b = B.pack(numbers((p.broadcast ? 1 : batch) * k * n));
  const av = A.values(a);
  const bv = B.values(b);
  const strides = (rows: number, cols: number, swap: boolean): [number, number] =>
    swap ? [gap, rows * gap] : [cols * gap, gap];
  const [am, ak] = strides(m, k, p.swapped?.[0] ?? false);
  const [bk, bn] = strides(k, n, p.swapped?.[1] ?? false);
  const sign = p.reversed ? -1 : 1;
  const start = p.reversed && k > 0 ? k - 1 : 0;
  const expected = new Float64Array(batch * m * n);
  for (let z = 0; z < batch; z++) {
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let t = 0; t < k; t++) {
          const at = start + sign * t;
          sum += av[z * m * k * gap + i * am + at * ak] * bv[(p.broadcast ? 0 : z * k * n * gap) + at * bk + j * bn];
        }
        expected[(z * m + i) * n + j] = sum;
      }
    }
  }
  // Strides of the batch dimensions, slowest first.
  const batchStrides = (step: number): number[] => {
    const list: number[] = [];
    for (let d = p.batchShape.length - 1; d >= 0; d--) {
      list.unshift(step);
      step *= p.batchShape[d];
    }
    return list;
  };
  const pad = (list: readonly number[], value: number): number[] => [...list, ...Array(3 - list.length).fill(value)];
  const groups = kernel === "matmul" ? batch * tiles(threads, m, n) : batch * Math.ceil(n / 16);
  check(
    backend,
    kernel,
    {
      spec: { THREADS: threads, DTYPE_A: A.code, DTYPE_B: B.code, DTYPE_OUT: Out.code },
      push: {
        batch,
        m,
        n,
        k,
        batch_shape: pad(p.batchShape, 1),
        a_batch_strides: pad(batchStrides(m * k * gap), 0),
        b_batch_strides: pad(batchStrides(p.broadcast ? 0 : k * n * gap), 0),
        a_strides: [am, ak * sign],
        b_strides: [bk * sign, bn],
      },
      buffers: { a, b },
      offsets: { a: start * ak * a.BYTES_PER_ELEMENT, b: start * bk * b.BYTES_PER_ELEMENT },
      grid: folded(groups),
    },
    Out,
    expected,
    JSON.stringify({ ...p, types: p.types.map((t) => t.name), threads }),
  );
}

const FLOATS: readonly (readonly [Type, Type, Type])[] = [[F32, F32, F32], [BF16, BF16, BF16], [F16, F16, F16], [
  F32,
  BF16,
  F32,
]];
const LAYOUTS: readonly (readonly [boolean, boolean])[] = [[false, false], [false, true], [true, false], [true, true]];

for (const kernel of ["matmul", "matvec"] as const) {
  const rows = kernel === "matmul" ? [1, 5, 33, 70] : [1, 3, 8];
  test(`${kernel}() matches plain loops over layouts and float dtypes`, (backend) => {
    for (const threads of THREADS) {
      for (const types of FLOATS) {
        for (const swapped of LAYOUTS) {
          product(backend, kernel, { batchShape: [], m: rows[1], n: 37, k: 45, types, swapped }, threads);
          product(backend, kernel, { batchShape: [], m: rows.at(-1)!, n: 64, k: 64, types, swapped }, threads);
        }
      }
    }
  });

  test(`${kernel}() takes sizes 0 and 1, gaps, negative strides and batches`, (backend) => {
    const types = [F32, F32, F32] as const;
    for (const threads of THREADS) {
      product(backend, kernel, { batchShape: [], m: 3, n: 5, k: 0, types }, threads);
      product(backend, kernel, { batchShape: [], m: 0, n: 5, k: 3, types }, threads);
      product(backend, kernel, { batchShape: [0], m: 2, n: 5, k: 3, types }, threads);
      for (const m of rows) product(backend, kernel, { batchShape: [], m, n: 1, k: 1, types }, threads);
      for (const swapped of LAYOUTS) {
        product(backend, kernel, { batchShape: [2, 3], m: 2, n: 19, k: 9, types, swapped, gaps: true }, threads);
        product(
          backend,
          kernel,
          { batchShape: [2, 1, 3], m: 3, n: 17, k: 40, types, swapped, broadcast: true },
          threads,
        );
        product(backend, kernel, { batchShape: [2], m: 2, n: 18, k: 33, types, swapped, reversed: true }, threads);
      }
    }
  });

  test(`${kernel}() computes integers exactly`, (backend) => {
    for (const [A, B] of [[I32, I32], [U8, I32]]) {
      for (const swapped of LAYOUTS) {
        product(backend, kernel, { batchShape: [2], m: 4, n: 21, k: 35, types: [A, B, I32], swapped }, 64);
      }
    }
  });

  test(`${kernel}() keeps every term of a long sum`, (backend) => {
    for (const swapped of LAYOUTS) {
      product(backend, kernel, { batchShape: [], m: 2, n: 3, k: 70_001, types: [F32, F32, F32], swapped }, 64);
    }
  });
}

// ---- quantization -------------------------------------------------------------------------------------------------

const BITS = [2, 3, 4, 5, 6, 8] as const;
const GROUPS = [32, 64, 128] as const;

/** Codes as MLX packs them: each row a bitstream, lowest bits first. A row's bits fill whole bytes. */
function packCodes(codes: ArrayLike<number>, bits: number): Uint8Array {
  const bytes = new Uint8Array(codes.length * bits / 8);
  for (let i = 0; i < codes.length * bits; i++) {
    bytes[i >> 3] |= ((codes[Math.floor(i / bits)] >> (i % bits)) & 1) << (i & 7);
  }
  return bytes;
}

/** Back to codes. */
function unpackCodes(bytes: Uint8Array, bits: number): number[] {
  const bit = (i: number): number => bytes[i >> 3] >> (i & 7) & 1;
  const code = (at: number): number => Array.from({ length: bits }, (_, b) => bit(at + b) << b).reduce((a, b) => a | b);
  return Array.from({ length: bytes.length * 8 / bits }, (_, i) => code(i * bits));
}

interface Quantized {
  readonly words: Uint8Array;
  readonly scales: Words;
  readonly biases: Words;
  /** scale * code + bias, not rounded. */
  readonly values: Float64Array;
  readonly codes: Uint8Array;
}

function randomQuantized(count: number, bits: number, group: number, type: Type): Quantized {
  const codes = Uint8Array.from({ length: count }, () => Math.floor(next() * (1 << bits)));
  const scale = 2 / (1 << bits);
  const scales = type.pack(random(count / group, scale));
  const biases = type.pack(random(count / group));
  const s = type.values(scales);
  const b = type.values(biases);
  const values = Float64Array.from(codes, (c, i) => s[Math.floor(i / group)] * c + b[Math.floor(i / group)]);
  return { words: packCodes(codes, bits), scales, biases, values, codes };
}

/** MLX's quantize() of one group, in float32 steps. */
function quantizeGroup(
  w: Float64Array,
  bits: number,
): { readonly codes: number[]; readonly steps: number[]; readonly scale: number; readonly bias: number } {
  const f = Math.fround;
  const even = (x: number): number => {
    const r = Math.round(x);
    return Math.abs(x % 1) === 0.5 && r % 2 !== 0 ? r - 1 : r;
  };
  const most = (1 << bits) - 1;
  const low = Math.min(...w);
  const high = Math.max(...w);
  const mask = Math.abs(low) > Math.abs(high);
  let scale = Math.max(f(f(high - low) / most), f(1e-7));
  if (!mask) scale = -scale;
  const edge = mask ? low : high;
  const q0 = even(f(edge / scale));
  const bias = q0 === 0 ? 0 : edge;
  if (q0 !== 0) scale = f(edge / q0);
  const steps = Array.from(w, (x) => f(f(x - bias) / scale));
  return { codes: steps.map((x) => Math.min(most, Math.max(0, even(x)))), steps, scale, bias };
}

/** Equal on WASM; a GPU's division may be off by units in the last place, which a 16-bit result may round apart. */
function near(backend: Backend, type: Type, found: Words, expected: readonly number[], what: string): void {
  const [values, wanted] = [type.values(found), rounded(type, expected)];
  if (backend.name === "wasm") return assertEquals(values, wanted, what);
  const error = nmse(values, wanted);
  assert(error <= (type === F32 ? 1e-13 : 1e-6), `${what}: NMSE ${error}`);
}

test("quantize() gives MLX's codes, scales and biases", (backend) => {
  for (const type of [F32, BF16, F16]) {
    for (const bits of BITS) {
      for (const group of GROUPS) {
        const [rows, cols] = [3, 256];
        const w = type.pack(random(rows * cols));
        const values = type.values(w);
        values.fill(0, 0, group); // a group of zeros and one of a constant
        values.fill(0.75, group, 2 * group);
        const held = type.pack(values);
        const groups = Array.from(
          { length: rows * cols / group },
          (_, g) => quantizeGroup(type.values(held).subarray(g * group, (g + 1) * group), bits),
        );
        const codes = new Uint8Array(rows * cols * bits / 8);
        const scales = type.pack(new Float64Array(groups.length));
        const biases = type.pack(new Float64Array(groups.length));
        runKernel(backend, "quantize", {
          spec: { BITS: bits, GROUP: group, DTYPE: type.code },
          push: { rows, cols },
          buffers: { w: held, codes, scales, biases },
          items: groups.length,
        });
        const what = `${type.name}, ${bits} bits, groups of ${group} on ${backend.name}`;
        near(backend, type, scales, groups.map((g) => g.scale), `scales of ${what}`);
        near(backend, type, biases, groups.map((g) => g.bias), `biases of ${what}`);
        const steps = groups.flatMap((g) => g.steps);
        const wanted = groups.flatMap((g) => g.codes);
        const wrong = unpackCodes(codes, bits).filter((code, i) => {
          const tie = backend.name !== "wasm" && Math.abs(Math.abs(steps[i] % 1) - 0.5) < 1e-4;
          return tie ? Math.abs(code - wanted[i]) > 1 : code !== wanted[i];
        });
        assertEquals(wrong, [], `codes of ${what}`);
      }
    }
  }
});

test("quantize() gives the words that MLX gave for linspace(-1, 2, 32)", (backend) => {
  const w = BF16.pack(Float64Array.from({ length: 32 }, (_, i) => -1 + 3 * i / 31));
  const codes = new Uint32Array(4);
  const scales = new Uint16Array(1);
  const biases = new Uint16Array(1);
  runKernel(backend, "quantize", {
    spec: { BITS: 4, GROUP: 32, DTYPE: BF16.code },
    push: { rows: 1, cols: 32 },
    buffers: { w, codes, scales, biases },
  });
  assertEquals([...codes.subarray(0, 2)], [3437096703, 2291772091]);
  assertEquals([...BF16.values(scales), ...BF16.values(biases)], [-0.2001953125, 2]);
});

test("dequantize() rounds each step to the dtype of the scales", (backend) => {
  for (const type of [F32, BF16, F16]) {
    for (const out of [type, F32]) {
      for (const bits of BITS) {
        for (const group of GROUPS) {
          const [rows, cols] = [3, 128];
          const q = randomQuantized(rows * cols, bits, group, type);
          const s = type.values(q.scales);
          const b = type.values(q.biases);
          const products = rounded(type, Float64Array.from(q.codes, (c, i) => s[Math.floor(i / group)] * c));
          const sums = rounded(type, products.map((v, i) => v + b[Math.floor(i / group)]));
          check(
            backend,
            "dequantize",
            {
              spec: { BITS: bits, GROUP: group, DTYPE_SCALES: type.code, DTYPE_OUT: out.code },
              push: { rows, cols },
              buffers: { codes: q.words, scales: q.scales, biases: q.biases },
              items: rows * cols / 8,
            },
            out,
            rounded(out, sums),
            `${type.name} to ${out.name}, ${bits} bits, groups of ${group}`,
            backend.name === "wasm" ? 0 : type === F32 ? 1e-13 : 1e-6,
          );
        }
      }
    }
  }
});

interface QuantizedCase {
  readonly batch?: number;
  readonly wBatch?: number;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly group: number;
  readonly types?: readonly [Type, Type, Type];
  readonly transpose?: boolean;
  readonly rows?: number;
}

function quantizedProduct(
  backend: Backend,
  kernel: "quantized_matvec" | "quantized_matmul",
  c: QuantizedCase,
  threads: number,
): void {
  const { batch = 1, wBatch = 1, m, n, k, bits, group, types = [F32, F32, F32], transpose = true, rows = 1 } = c;
  const [X, S, Out] = types;
  const x = X.pack(random(batch * m * k));
  const xv = X.values(x);
  const w = randomQuantized(wBatch * n * k, bits, group, S);
  const expected = new Float64Array(batch * m * n);
  for (let i = 0; i < batch * m; i++) {
    const base = wBatch === 1 ? 0 : Math.floor(i / m) * n * k;
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let t = 0; t < k; t++) sum += xv[i * k + t] * w.values[base + (transpose ? j * k + t : t * n + j)];
      expected[i * n + j] = sum;
    }
  }
  const spec = {
    THREADS: threads,
    BITS: bits,
    GROUP: group,
    DTYPE_X: X.code,
    DTYPE_SCALES: S.code,
    DTYPE_OUT: Out.code,
  };
  const vector = kernel === "quantized_matvec";
  check(
    backend,
    kernel,
    {
      spec: vector ? { ...spec, ROWS: rows } : { ...spec, TRANSPOSE: transpose ? 1 : 0 },
      push: { batch, m, n, k, w_batch: wBatch },
      buffers: { x, w: w.words, scales: w.scales, biases: w.biases },
      grid: folded(vector ? batch * Math.ceil(n / (threads / 8)) : batch * tiles(threads, m, n)),
    },
    Out,
    expected,
    JSON.stringify({ ...c, types: types.map((t) => t.name), threads }),
  );
}

const MIXED: readonly (readonly [Type, Type, Type])[] = [[F32, F32, F32], [F32, BF16, F32], [BF16, BF16, BF16], [
  F16,
  F16,
  F16,
]];

test("quantized_matvec() matches plain loops for every width and group", (backend) => {
  for (const bits of BITS) {
    for (const group of GROUPS) {
      for (const threads of group === 64 ? THREADS : [64]) {
        quantizedProduct(backend, "quantized_matvec", { m: 1, n: 37, k: 384, bits, group }, threads);
        quantizedProduct(backend, "quantized_matvec", { m: 5, n: 9, k: 128, bits, group, rows: 2 }, threads);
      }
    }
  }
});

test("quantized_matvec() takes mixed dtypes, rows and batches", (backend) => {
  for (const types of MIXED) {
    for (const bits of [4, 8]) {
      quantizedProduct(backend, "quantized_matvec", { m: 1, n: 33, k: 256, bits, group: 64, types }, 64);
      quantizedProduct(backend, "quantized_matvec", { m: 8, n: 18, k: 256, bits, group: 64, types, rows: 8 }, 64);
    }
  }
  for (const m of [0, 1, 3]) {
    for (const wBatch of [1, 3]) {
      quantizedProduct(
        backend,
        "quantized_matvec",
        { batch: 3, wBatch, m, n: 7, k: 64, bits: 4, group: 32, rows: 2 },
        64,
      );
    }
  }
});

test("quantized_matvec() copes with one large value in a group", (backend) => {
  const k = 128;
  const x = Float32Array.from(random(k));
  x[5] = 1000;
  const w = randomQuantized(4 * k, 4, 64, F32);
  const expected = Float64Array.from({ length: 4 }, (_, j) => x.reduce((s, v, t) => s + v * w.values[j * k + t], 0));
  check(
    backend,
    "quantized_matvec",
    {
      spec: { BITS: 4, GROUP: 64, DTYPE_X: F32.code, DTYPE_SCALES: F32.code, DTYPE_OUT: F32.code, ROWS: 1 },
      push: { batch: 1, m: 1, n: 4, k, w_batch: 1 },
      buffers: { x, w: w.words, scales: w.scales, biases: w.biases },
      grid: 1,
    },
    F32,
    expected,
    "outlier",
  );
});

test("quantized_matmul() matches plain loops for every width and group, both ways", (backend) => {
  for (const bits of BITS) {
    for (const group of GROUPS) {
      for (const threads of group === 64 ? [256] : [64]) {
        quantizedProduct(backend, "quantized_matmul", { m: 9, n: 70, k: 128, bits, group }, threads);
        quantizedProduct(backend, "quantized_matmul", { m: 9, n: 128, k: 45, bits, group, transpose: false }, threads);
      }
    }
  }
});

test("quantized_matmul() takes mixed dtypes, odd rows and batches", (backend) => {
  for (const transpose of [true, false]) {
    for (const types of MIXED) {
      quantizedProduct(backend, "quantized_matmul", { m: 67, n: 96, k: 160, bits: 4, group: 32, types, transpose }, 64);
    }
    for (const m of [0, 1, 33]) {
      for (const wBatch of [1, 2]) {
        quantizedProduct(
          backend,
          "quantized_matmul",
          { batch: 2, wBatch, m, n: 64, k: 64, bits: 8, group: 64, transpose },
          256,
        );
      }
    }
  }
});

// ---- attention ----------------------------------------------------------------------------------------------------

interface AttentionCase {
  readonly batch?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
  readonly dim: number;
  readonly vDim?: number;
  readonly mask?: "none" | "causal" | "bool" | "add";
  /** Value in `lengths`. */
  readonly length?: number;
  readonly types?: readonly [q: Type, kv: Type, out: Type];
  /** Elements between rows beyond their dimension, so that rows are not aligned. */
  readonly gap?: number;
  /** Heads are the faster dimension: (B, T, H, D) seen as (B, H, T, D). */
  readonly interleaved?: boolean;
  /** The mask has one row for all queries and heads. */
  readonly broadcastMask?: boolean;
}

const MASKS = { none: 0, causal: 1, bool: 2, add: 3 } as const;

function attention(backend: Backend, c: AttentionCase, threads: number): void {
  const { batch = 1, heads, kvHeads, qLen, kvLen, dim, vDim = dim, mask = "none", gap = 0 } = c;
  const [Q, Kv, Out] = c.types ?? [F32, F32, F32];
  const layout = (h: number, t: number, d: number): [number, number, number] =>
    c.interleaved ? [t * h * (d + gap), d + gap, h * (d + gap)] : [h * t * (d + gap), t * (d + gap), d + gap];
  const qs = layout(heads, qLen, dim);
  const ks = layout(kvHeads, kvLen, dim);
  const vs = layout(kvHeads, kvLen, vDim);
  const q = Q.pack(random(batch * heads * qLen * (dim + gap), 3));
  const k = Kv.pack(random(batch * kvHeads * kvLen * (dim + gap)));
  const v = Kv.pack(random(batch * kvHeads * kvLen * (vDim + gap)));
  const ms = c.broadcastMask ? [0, 0, 0, 1] : [heads * qLen * kvLen, qLen * kvLen, kvLen, 1];
  const maskSize = c.broadcastMask ? kvLen : batch * heads * qLen * kvLen;
  const kept = Uint8Array.from({ length: maskSize }, () => next() < 0.7 ? 1 : 0);
  if (!c.broadcastMask && mask !== "none") kept.fill(0, 0, kvLen); // the first row sees nothing
  const added = Float32Array.from(kept, (x) => x ? next() : -Infinity);
  const length = c.length === undefined ? kvLen : Math.min(kvLen, Math.max(0, c.length));
  const [qv, kv, vv] = [Q.values(q), Kv.values(k), Kv.values(v)];
  const scale = 1 / Math.sqrt(dim);
  const expected = new Float64Array(batch * heads * qLen * vDim);
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const g = Math.floor(h / (heads / kvHeads));
      for (let i = 0; i < qLen; i++) {
        const scores: number[] = [];
        for (let j = 0; j < length; j++) {
          const at = b * ms[0] + h * ms[1] + i * ms[2] + j;
          if (mask === "causal" && j > i + length - qLen || (mask === "bool" || mask === "add") && !kept[at]) {
            scores.push(-Infinity);
            continue;
          }
          let dot = 0;
          for (let d = 0; d < dim; d++) {
            dot += qv[b * qs[0] + h * qs[1] + i * qs[2] + d] * kv[b * ks[0] + g * ks[1] + j * ks[2] + d];
          }
          scores.push(dot * scale + (mask === "add" ? added[at] : 0));
        }
        const most = Math.max(...scores, -1e300);
        const weights = scores.map((s) => Math.exp(s - most));
        const sum = weights.reduce((x, y) => x + y, 0);
        for (let d = 0; d < vDim && sum > 0; d++) {
          let total = 0;
          for (let j = 0; j < length; j++) total += weights[j] * vv[b * vs[0] + g * vs[1] + j * vs[2] + d];
          expected[((b * heads + h) * qLen + i) * vDim + d] = total / sum;
        }
      }
    }
  }
  const buffers: Record<string, ArrayBufferView> = { q, k, v };
  if (mask === "bool") buffers.mask = kept;
  if (mask === "add") buffers.mask = added;
  if (c.length !== undefined) buffers.lengths = Int32Array.of(c.length);
  check(
    backend,
    "attention",
    {
      spec: {
        THREADS: threads,
        HEAD_DIM: dim,
        V_DIM: vDim,
        DTYPE_Q: Q.code,
        DTYPE_KV: Kv.code,
        DTYPE_OUT: Out.code,
        MASK_MODE: MASKS[mask],
        DTYPE_MASK: mask === "bool" ? BOOL : F32.code,
        HAS_LENGTHS: c.length === undefined ? 0 : 1,
      },
      push: {
        batch,
        heads,
        kv_heads: kvHeads,
        q_len: qLen,
        kv_len: kvLen,
        scale,
        q_strides: qs,
        k_strides: ks,
        v_strides: vs,
        mask_strides: mask === "bool" || mask === "add" ? ms : [],
      },
      buffers,
      grid: folded(batch * heads * Math.ceil(qLen / 8)),
    },
    Out,
    expected,
    JSON.stringify({ ...c, types: c.types?.map((t) => t.name), threads }),
    Math.max(Out.bound, Q.bound, Kv.bound),
  );
}

test("attention() matches plain softmax(q k) v over masks, ratios of heads and lengths", (backend) => {
  for (const [threads, masks] of [[64, ["none", "causal"]], [256, ["bool", "add"]]] as const) {
    for (const mask of masks) {
      attention(backend, { heads: 4, kvHeads: 2, qLen: 1, kvLen: 70, dim: 64, mask }, threads);
      attention(backend, { batch: 2, heads: 6, kvHeads: 2, qLen: 11, kvLen: 40, dim: 32, mask }, threads);
      attention(backend, { heads: 2, kvHeads: 2, qLen: 9, kvLen: 5, dim: 16, mask }, threads); // more queries than keys
      attention(backend, { heads: 3, kvHeads: 1, qLen: 7, kvLen: 33, dim: 20, vDim: 12, mask, gap: 3 }, threads);
      attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 300, dim: 8, mask, interleaved: true }, threads);
      attention(backend, { heads: 2, kvHeads: 1, qLen: 2, kvLen: 64, dim: 16, mask, length: 37 }, threads);
    }
    attention(
      backend,
      { batch: 2, heads: 2, kvHeads: 1, qLen: 4, kvLen: 21, dim: 5, mask: "add", broadcastMask: true },
      threads,
    );
  }
});

test("attention() takes large heads and 16-bit dtypes", (backend) => {
  for (const threads of THREADS) {
    attention(backend, { heads: 2, kvHeads: 1, qLen: 9, kvLen: 45, dim: 256, mask: "causal" }, threads);
    attention(backend, { heads: 2, kvHeads: 1, qLen: 1, kvLen: 45, dim: 128, vDim: 256 }, threads);
    for (const type of threads === 64 ? [BF16, F16] : [BF16]) {
      attention(backend, { heads: 4, kvHeads: 2, qLen: 1, kvLen: 90, dim: 128, types: [type, type, type] }, threads);
      attention(
        backend,
        { heads: 2, kvHeads: 1, qLen: 10, kvLen: 33, dim: 24, mask: "causal", types: [F32, type, F32], gap: 1 },
        threads,
      );
    }
  }
});

test("attention() gives 0 where no key is left", (backend) => {
  attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 0, dim: 8 }, 64);
  for (const length of [0, -5]) attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 6, dim: 8, length }, 64);
  attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 6, dim: 8, length: 99 }, 64); // clamped to kv_len
});

test("attention() walks over a long cache", (backend) => {
  attention(backend, { heads: 2, kvHeads: 1, qLen: 1, kvLen: 70_000, dim: 16 }, 64);
});
