/**
 * Gradients of attention on every device: mx.vjp() and so its three kernels, against float64 loops.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import type { Backend } from "../../src/backend/backend.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices/devices.ts";
import { assertClose } from "../support/oracles/kernel_values.ts";
import { isDrawn } from "../support/draw_cases.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { generator } from "../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

type T = mx.Tensor;

interface Case {
  readonly batch?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
  readonly dim: number;
  readonly vDim?: number;
  readonly mask?: "causal" | "bool" | "add";
  readonly lengths?: readonly number[];
  readonly dtype?: mx.Dtype;
  /** (B, T, H, D) seen as (B, H, T, D), as models do. */
  readonly interleaved?: boolean;
  /** As on a device with matrix units: products of halves. */
  readonly matrices?: boolean;
}

const CASES: readonly Case[] = [
  { heads: 1, kvHeads: 1, qLen: 1, kvLen: 1, dim: 1 },
  { heads: 2, kvHeads: 1, qLen: 3, kvLen: 5, dim: 7, vDim: 3 },
  { heads: 4, kvHeads: 2, qLen: 37, kvLen: 37, dim: 64, mask: "causal", interleaved: true },
  { heads: 2, kvHeads: 2, qLen: 70, kvLen: 131, dim: 33, mask: "causal" },
  { heads: 2, kvHeads: 2, qLen: 9, kvLen: 4, dim: 8, mask: "causal" }, // the first queries see nothing
  { batch: 2, heads: 6, kvHeads: 2, qLen: 19, kvLen: 40, dim: 16, mask: "bool" },
  { batch: 2, heads: 3, kvHeads: 3, qLen: 33, kvLen: 65, dim: 40, vDim: 24, mask: "add" },
  { batch: 2, heads: 2, kvHeads: 1, qLen: 5, kvLen: 21, dim: 12, lengths: [17, 0] },
  { batch: 1, heads: 2, kvHeads: 1, qLen: 20, kvLen: 50, dim: 20, mask: "causal", lengths: [41] },
  { heads: 1, kvHeads: 1, qLen: 5, kvLen: 34, dim: 256, vDim: 130 },
  { heads: 4, kvHeads: 1, qLen: 35, kvLen: 35, dim: 64, mask: "causal", dtype: mx.float16, interleaved: true },
  { heads: 2, kvHeads: 1, qLen: 18, kvLen: 18, dim: 24, mask: "bool", dtype: mx.bfloat16 },
  ...[
    { heads: 2, kvHeads: 2, qLen: 64, kvLen: 64, dim: 16 },
    { heads: 4, kvHeads: 2, qLen: 80, kvLen: 80, dim: 24, mask: "causal", interleaved: true },
    { batch: 2, heads: 2, kvHeads: 1, qLen: 70, kvLen: 66, dim: 16, vDim: 24, mask: "bool" },
    { heads: 2, kvHeads: 2, qLen: 65, kvLen: 67, dim: 8, mask: "add" },
    { batch: 2, heads: 2, kvHeads: 1, qLen: 64, kvLen: 70, dim: 8, mask: "causal", lengths: [70, 3] }, // queries that see nothing
  ].flatMap((c) => [mx.float16, mx.bfloat16].map((dtype) => ({ ...c, dtype, matrices: true }) as Case)),
];

/** Runs `fn`, which only traces, as on a device with matrix units. */
function withMatrices<R>(device: string, fn: () => R): R {
  const backend = getBackend(device) as { has: Backend["has"] };
  const has = backend.has.bind(backend);
  backend.has = (kernel) => kernel.startsWith("coopmat_dense") || has(kernel);
  try {
    return fn();
  } finally {
    backend.has = has;
  }
}

/** Gradients by loops; arrays are contiguous, kept[…] says which keys a query sees and added[…] what its scores get. */
function oracle(
  c: Required<Pick<Case, "batch" | "heads" | "kvHeads" | "qLen" | "kvLen" | "dim" | "vDim">>,
  [q, k, v, g]: readonly ArrayLike<number>[],
  scale: number,
  sees: (b: number, h: number, i: number, j: number) => number | undefined,
): Float64Array[] {
  const { batch, heads, kvHeads, qLen, kvLen, dim, vDim } = c;
  const [dq, dk, dv] = [q, k, v].map((x) => new Float64Array(x.length));
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const kv = b * kvHeads + Math.floor(h / (heads / kvHeads));
      for (let i = 0; i < qLen; i++) {
        const row = (b * heads + h) * qLen + i;
        const dot = (x: ArrayLike<number>, a: number, y: ArrayLike<number>, e: number, n: number): number => {
          let total = 0;
          for (let d = 0; d < n; d++) total += x[a * n + d] * y[e * n + d];
          return total;
        };
        const keys: number[] = [];
        const scores: number[] = [];
        for (let j = 0; j < kvLen; j++) {
          const added = sees(b, h, i, j);
          if (added === undefined) continue;
          keys.push(kv * kvLen + j);
          scores.push(scale * dot(q, row, k, kv * kvLen + j, dim) + added);
        }
        const most = Math.max(...scores);
        const weights = scores.map((s) => Math.exp(s - most));
        const total = weights.reduce((x, y) => x + y, 0);
        const p = weights.map((w) => w / total);
        const ofValues = keys.map((j) => dot(g, row, v, j, vDim));
        const delta = p.reduce((sum, w, n) => sum + w * ofValues[n], 0);
        keys.forEach((j, n) => {
          const ds = p[n] * (ofValues[n] - delta) * scale;
          for (let d = 0; d < dim; d++) {
            dq[row * dim + d] += ds * k[j * dim + d];
            dk[j * dim + d] += ds * q[row * dim + d];
          }
          for (let d = 0; d < vDim; d++) dv[j * vDim + d] += p[n] * g[row * vDim + d];
        });
      }
    }
  }
  return [dq, dk, dv];
}

/** Rows of causal attention of one batch row whose heads share one kv head. */
function attentionRows(
  [q, k, v]: readonly ArrayLike<number>[],
  c: Pick<Required<Case>, "heads" | "qLen" | "kvLen" | "dim" | "vDim">,
  scale: number,
): number[] {
  return Array.from({ length: c.heads * c.qLen }, (_, row) => {
    const seen = Math.max(0, row % c.qLen + 1 + c.kvLen - c.qLen);
    const weights = Array.from({ length: seen }, (_, j) => {
      let score = 0;
      for (let d = 0; d < c.dim; d++) score += scale * q[row * c.dim + d] * k[j * c.dim + d];
      return Math.exp(score);
    });
    const total = weights.reduce((a, b) => a + b, 0);
    return Array.from(
      { length: c.vDim },
      (_, d) => weights.reduce((sum, w, j) => sum + w * v[j * c.vDim + d], 0) / total,
    );
  }).flat();
}

/** An array of values; `interleaved`, a view with positions before heads. */
function arrayOf(values: readonly number[], shape: readonly number[], c: Case): T {
  const x = mx.array(values).reshape([...shape]).astype(c.dtype ?? mx.float32);
  return c.interleaved ? mx.contiguous(x.transpose([0, 2, 1, 3])).transpose([0, 2, 1, 3]) as T : x as T;
}

const numbers = (x: T): number[] => [...x.astype(mx.float32).flatten().tolist() as number[]];

async function check(device: string, c: Case, seed: number): Promise<void> {
  const { batch = 1, heads, kvHeads, qLen, kvLen, dim, vDim = dim, mask, lengths, dtype = mx.float32 } = c;
  const next = generator(seed + 1);
  const draw = (shape: readonly number[]): T => {
    const count = shape.reduce((a, b) => a * b, 1);
    return arrayOf(Array.from({ length: count }, () => 2 * next() - 1), shape, c);
  };
  const [q, k, v, g] = [
    [batch, heads, qLen, dim],
    [batch, kvHeads, kvLen, dim],
    [batch, kvHeads, kvLen, vDim],
    [batch, heads, qLen, vDim],
  ].map(draw);
  const at = (b: number, h: number, i: number, j: number): number => ((b * heads + h) * qLen + i) * kvLen + j;
  const kept = Array.from({ length: batch * heads * qLen * kvLen }, () => next() < 0.7);
  if (mask === "bool" || mask === "add") kept.fill(false, 0, kvLen); // the first query sees nothing
  const added = numbers(mx.array(kept.map((x) => x ? next() : -Infinity)).astype(dtype) as T);
  const shape = [batch, heads, qLen, kvLen] as const;
  const given = mask === "bool"
    ? mx.array(kept).reshape(shape)
    : mask === "add"
    ? mx.array(added).reshape(shape).astype(dtype)
    : mask ?? null;
  const own = lengths && mx.array([...lengths], mx.int32);
  const scale = 1 / Math.sqrt(dim);
  const run = (q: T, k: T, v: T): T =>
    mx.fast.scaledDotProductAttention(q, k, v, { scale, mask: given, lengths: own }) as T;
  const sees = (b: number, h: number, i: number, j: number): number | undefined => {
    const length = lengths ? lengths[lengths.length === 1 ? 0 : b] : kvLen;
    if (j >= length || (mask === "causal" && j > i + length - qLen)) return undefined;
    if (mask !== "bool" && mask !== "add") return 0;
    return kept[at(b, h, i, j)] ? (mask === "add" ? added[at(b, h, i, j)] : 0) : undefined;
  };
  const expected = oracle({ batch, heads, kvHeads, qLen, kvLen, dim, vDim }, [q, k, v, g].map(numbers), scale, sees);
  let back: T[] = [];
  const { kernels } = await mx.profile(() => {
    const trace = (): T[] => mx.vjp(run as (...args: unknown[]) => unknown, [q, k, v], [g])[1] as T[];
    back = c.matrices ? withMatrices(device, trace) : trace();
    mx.eval(...back);
  }, { timed: false });
  const used = new Set<string>(kernels.map(({ kernel }) => kernel));
  const wanted = ["attention_stats", "attention_vjp_queries", "attention_vjp_keys"];
  assertEquals(wanted.filter((name) => used.has(name)), c.matrices ? [] : wanted, `kernels of ${device}`);
  const names = ["dq", "dk", "dv"];
  back.forEach((x, i) => {
    assertEquals([x.shape, x.dtype], [[q, k, v][i].shape, dtype]);
    const found = numbers(x);
    const what = `${names[i]} of ${JSON.stringify(c)} on ${device}`;
    assert(found.every(Number.isFinite), what);
    const size = Math.max(...expected[i].map(Math.abs));
    // A gradient that is 0, such as that of the one score of a row, is so up to rounding.
    if (size < 1e-9) assert(found.every((y) => Math.abs(y) < 1e-3), what);
    else assertClose(found, expected[i], dtype === mx.float32 ? 1e-7 : 5e-4, what);
  });
}

for (const device of testDevices()) {
  Deno.test(`gradients of attention are those of float64 loops, on ${device}`, async () => {
    for (const [seed, c] of CASES.entries()) {
      if (isDrawn(device, c, 6)) await mx.withDevice(device, () => check(device, c, seed));
    }
  });
}

kernelTest("tiles of 64 rows give the same gradients of attention as loops", (backend) => {
  const [heads, qLen, kvLen, dim, vDim, tile] = [2, 70, 90, 40, 72, 64];
  const shape = { batch: 1, heads, kvHeads: 1, qLen, kvLen, dim, vDim };
  const next = generator(7);
  const draw = (n: number): Float32Array => Float32Array.from({ length: n }, () => 2 * next() - 1);
  const [q, k, v, cotangent] = [heads * qLen * dim, kvLen * dim, kvLen * vDim, heads * qLen * vDim].map(draw);
  const scale = 0.25;
  const ahead = kvLen - qLen;
  const expected = oracle(shape, [q, k, v, cotangent], scale, (_b, _h, i, j) => j <= i + ahead ? 0 : undefined);
  const y = Float32Array.from(attentionRows([q, k, v], shape, scale));
  const { code } = mx.float32;
  const dtypes = { DTYPE_Q: code, DTYPE_KV: code, DTYPE_C: code };
  const spec = { THREADS: 256, HEAD_DIM: dim, V_DIM: vDim, ...dtypes, MASK_MODE: 1, TILE: tile };
  const push = {
    batch: 1,
    heads,
    kv_heads: 1,
    q_len: qLen,
    kv_len: kvLen,
    scale,
    k_strides: [kvLen * dim, kvLen * dim, dim],
    v_strides: [kvLen * vDim, kvLen * vDim, vDim],
  };
  const stats = new Float32Array(heads * qLen * 2);
  const grid = heads * Math.ceil(qLen / tile);
  runKernel(backend, "attention_stats", { spec, push, buffers: { q, k, y, cotangent, out: stats }, grid });
  const dq = new Float32Array(q.length);
  runKernel(backend, "attention_vjp_queries", { spec, push, buffers: { q, k, v, cotangent, stats, out: dq }, grid });
  const dkv = new Float32Array(k.length + v.length);
  const buffers = { q, k, v, cotangent, stats, out: dkv };
  runKernel(backend, "attention_vjp_keys", { spec, push, buffers, grid: Math.ceil(kvLen / tile) });
  const found = [dq, dkv.subarray(0, k.length), dkv.subarray(k.length)];
  found.forEach((x, i) => assertClose([...x], expected[i], 1e-7, `${["dq", "dk", "dv"][i]} on ${backend.name}`));
});
