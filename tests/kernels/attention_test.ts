/**
 * attention on every device, one dispatch each, against float64 loops.
 */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import { isDrawn } from "../support/draw_cases.ts";
import { kernelTest as test, runKernel } from "../support/devices/harness.ts";
import {
  BF16,
  BOOL,
  check,
  F16,
  F32,
  folded,
  next,
  random,
  THREADS,
  type Type,
} from "../support/oracles/product_values.ts";

interface AttentionCase {
  readonly batch?: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly qLen: number;
  readonly kvLen: number;
  readonly dim: number;
  readonly vDim?: number;
  readonly mask?: "none" | "causal" | "bool" | "add";
  /** The last keys that a query sees of those that it sees otherwise. */
  readonly window?: number;
  /** One more score for each head, which has no value. */
  readonly sinks?: readonly number[];
  /** Value in `lengths`, or one a batch row. */
  readonly length?: number | readonly number[];
  readonly types?: readonly [q: Type, kv: Type, out: Type];
  /** Elements between rows beyond their dimension, so that rows are not aligned. */
  readonly gap?: number;
  /** Heads are the faster dimension: (B, T, H, D) seen as (B, H, T, D). */
  readonly interleaved?: boolean;
  /** The mask has one row for all queries and heads. */
  readonly broadcastMask?: boolean;
  /** Runs with every seed. */
  readonly always?: boolean;
}

const MASKS = { none: 0, causal: 1, bool: 2, add: 3 } as const;

function attention(backend: Backend, c: AttentionCase, threads: number): void {
  const { batch = 1, heads, kvHeads, qLen, kvLen, dim, vDim = dim, mask = "none", gap = 0 } = c;
  if (!c.always && !isDrawn(backend.name, [c, threads, c.types?.map(({ name }) => name)], 5)) return;
  const [Q, Kv, Out] = c.types ?? [F32, F32, F32];
  const layout = (h: number, t: number, d: number): [number, number, number] =>
    c.interleaved ? [t * h * (d + gap), d + gap, h * (d + gap)] : [h * t * (d + gap), t * (d + gap), d + gap];
  const qs = layout(heads, qLen, dim);
  const ks = layout(kvHeads, kvLen, dim);
  const vs = layout(kvHeads, kvLen, vDim);
  const lengths = typeof c.length === "number" ? [c.length] : c.length;
  const lengthOf = (b: number): number => {
    const length = lengths?.[lengths.length > 1 ? b : 0] ?? kvLen;
    return Math.min(kvLen, Math.max(0, length));
  };
  const q = Q.pack(random(batch * heads * qLen * (dim + gap), 3));
  // Rows beyond the length hold NaN: nothing may look at them.
  const rows = (strides: readonly number[], d: number): Float64Array => {
    const all = random(batch * kvHeads * kvLen * (d + gap));
    for (let b = 0; b < batch; b++) {
      for (let h = 0; h < kvHeads; h++) {
        for (let row = lengthOf(b); row < kvLen; row++) {
          const at = b * strides[0] + h * strides[1] + row * strides[2];
          all.fill(NaN, at, at + d);
        }
      }
    }
    return all;
  };
  const k = Kv.pack(rows(ks, dim));
  const v = Kv.pack(rows(vs, vDim));
  const ms = c.broadcastMask ? [0, 0, 0, 1] : [heads * qLen * kvLen, qLen * kvLen, kvLen, 1];
  const maskSize = c.broadcastMask ? kvLen : batch * heads * qLen * kvLen;
  const kept = Uint8Array.from({ length: maskSize }, () => next() < 0.7 ? 1 : 0);
  if (!c.broadcastMask && mask !== "none") kept.fill(0, 0, kvLen); // the first row sees nothing
  const added = Float32Array.from(kept, (x) => x ? next() : -Infinity);
  const [qv, kv, vv] = [Q.values(q), Kv.values(k), Kv.values(v)];
  const scale = 1 / Math.sqrt(dim);
  const expected = new Float64Array(batch * heads * qLen * vDim);
  for (let b = 0; b < batch; b++) {
    const length = lengthOf(b);
    for (let h = 0; h < heads; h++) {
      const g = Math.floor(h / (heads / kvHeads));
      for (let i = 0; i < qLen; i++) {
        const scores: number[] = [];
        for (let j = 0; j < length; j++) {
          const at = b * ms[0] + h * ms[1] + i * ms[2] + j;
          const last = mask === "causal" ? i + length - qLen : length - 1;
          if (j <= last - (c.window ?? Infinity)) {
            scores.push(-Infinity);
            continue;
          }
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
        const sink = c.sinks?.[h] ?? -Infinity;
        const most = Math.max(...scores, sink, -1e300);
        const weights = scores.map((s) => Math.exp(s - most));
        const sum = weights.reduce((x, y) => x + y, Math.exp(sink - most));
        for (let d = 0; d < vDim && sum > 0; d++) {
          let total = 0;
          for (let j = 0; j < length; j++) total += weights[j] * vv[b * vs[0] + g * vs[1] + j * vs[2] + d];
          expected[((b * heads + h) * qLen + i) * vDim + d] = total / sum;
        }
      }
    }
  }
  const buffers: Record<string, ArrayBufferView> = { q, k, v };
  if (mask === "bool") buffers.mask_or_pages = kept;
  if (mask === "add") buffers.mask_or_pages = added;
  if (lengths) buffers.lengths = Int32Array.from(lengths);
  if (c.sinks) buffers.sinks = Float32Array.from(c.sinks);
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
        HAS_LENGTHS: Math.min(2, lengths?.length ?? 0),
        WINDOW: c.window ?? 0,
        GROUP: heads / kvHeads,
        HAS_SINKS: c.sinks ? 1 : 0,
        DTYPE_SINKS: F32.code,
      },
      push: {
        batch,
        heads,
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
      // Few rows read float16 keys and values in place, whole pieces of them; many rows convert a piece first.
      const types = [F32, type, F32] as const;
      attention(backend, { heads: 6, kvHeads: 2, qLen: 1, kvLen: 96, dim: 64, vDim: 40, types, length: 81 }, threads);
      attention(backend, { heads: 6, kvHeads: 2, qLen: 1, kvLen: 96, dim: 64, types, interleaved: true }, threads);
      attention(backend, { heads: 4, kvHeads: 2, qLen: 30, kvLen: 70, dim: 40, mask: "causal", types }, threads);
    }
  }
});

test("attention() keeps infinities among float16 values", (backend) => {
  const [heads, kvLen, dim] = [2, 70, 16];
  for (const qLen of [1, 12]) {
    const v = random(kvLen * dim);
    v[40 * dim + 3] = Infinity;
    const out = new Float32Array(heads * qLen * dim);
    runKernel(backend, "attention", {
      spec: { HEAD_DIM: dim, V_DIM: dim, DTYPE_Q: F32.code, DTYPE_KV: F16.code, DTYPE_OUT: F32.code, GROUP: 2 },
      push: {
        batch: 1,
        heads,
        q_len: qLen,
        kv_len: kvLen,
        scale: 0.25,
        q_strides: [0, qLen * dim, dim],
        k_strides: [0, 0, dim],
        v_strides: [0, 0, dim],
      },
      buffers: { q: F32.pack(random(out.length)), k: F16.pack(random(kvLen * dim)), v: F16.pack(v), out },
      grid: folded(heads * Math.ceil(qLen / 8)),
    });
    out.forEach((x, i) => assertEquals(Number.isFinite(x), i % dim !== 3, `element ${i} of ${qLen} queries is ${x}`));
  }
});

test("attention() leaves nothing of one call to the next", (backend) => {
  const [qLen, kvLen, dim] = [6, 12, 12];
  const nothing = F16.pack(new Float64Array(kvLen * dim).fill(NaN));
  const out = new Float32Array(2 * qLen * dim);
  const rows = [0, 0, dim];
  runKernel(backend, "attention", {
    spec: { HEAD_DIM: dim, V_DIM: dim, DTYPE_Q: F32.code, DTYPE_KV: F16.code, DTYPE_OUT: F32.code, GROUP: 2 },
    push: {
      batch: 1,
      heads: 2,
      q_len: qLen,
      kv_len: kvLen,
      q_strides: rows,
      k_strides: rows,
      v_strides: rows,
    },
    buffers: { q: new Float32Array(qLen * dim), k: nothing, v: nothing, out },
    grid: folded(2),
  });
  assert(out.every(Number.isNaN));
  // Fewer features and keys than a vector holds: what fills it up may not be what lay there.
  attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 3, dim: 5, types: [F32, F16, F32] }, 64);
});

test("attention() gives 0 where no key is left", (backend) => {
  attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 0, dim: 8 }, 64);
  for (const length of [0, -5]) attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 6, dim: 8, length }, 64);
  attention(backend, { heads: 2, kvHeads: 1, qLen: 3, kvLen: 6, dim: 8, length: 99 }, 64); // clamped to kv_len
});

test("attention() gives each row of a batch as many keys as its own length says", (backend) => {
  const length = [5, 9, -1, 40];
  attention(backend, { batch: 4, heads: 4, kvHeads: 2, qLen: 1, kvLen: 17, dim: 16, length, always: true }, 64);
  attention(backend, { batch: 4, heads: 2, kvHeads: 1, qLen: 3, kvLen: 17, dim: 8, mask: "causal", length }, 64);
});

test("attention() gives each of the last queries the keys up to its own", (backend) => {
  const causal = { heads: 4, kvHeads: 2, dim: 16, mask: "causal" } as const;
  attention(backend, { ...causal, qLen: 5, kvLen: 64, length: 37 }, 64);
  attention(backend, { ...causal, batch: 2, qLen: 13, kvLen: 90, length: 80, gap: 2 }, 64);
  attention(backend, { ...causal, qLen: 9, kvLen: 9, length: 9, interleaved: true }, 64);
  attention(backend, { ...causal, qLen: 6, kvLen: 20, length: 4 }, 64); // the first two see nothing
  attention(backend, { ...causal, qLen: 3, kvLen: 8, length: 99, types: [BF16, BF16, BF16] }, 64);
});

test("attention() gives each query no more than the last keys of a window", (backend) => {
  const some = { heads: 4, kvHeads: 2, dim: 16 } as const;
  const types = [F32, F16, F32] as const;
  for (const window of [1, 33, 1000]) {
    attention(backend, { ...some, qLen: 1, kvLen: 90, length: 70, window, always: window === 33 }, 64);
    attention(backend, { ...some, qLen: 1, kvLen: 130, window, types, length: 129 }, 64);
    attention(backend, { ...some, qLen: 13, kvLen: 90, length: 80, mask: "causal", window, always: window === 33 }, 64);
    attention(backend, { ...some, batch: 2, qLen: 40, kvLen: 300, mask: "causal", window, gap: 2 }, 64);
    attention(backend, { ...some, batch: 3, qLen: 3, kvLen: 100, mask: "causal", window, length: [99, 2, 41] }, 64);
  }
  attention(backend, { ...some, qLen: 6, kvLen: 20, length: 4, mask: "causal", window: 2 }, 64); // the first two see nothing
  attention(backend, { ...some, qLen: 3, kvLen: 6, length: 0, window: 2 }, 64);
  attention(backend, { ...some, qLen: 2, kvLen: 5000, mask: "causal", window: 100 }, 64);
});

test("attention() counts a sink of each head", (backend) => {
  const some = { heads: 4, kvHeads: 2, dim: 16, sinks: [0, 40, -3, -Infinity] } as const;
  attention(backend, { ...some, qLen: 1, kvLen: 90, length: 70, always: true }, 64);
  attention(backend, { ...some, batch: 2, qLen: 13, kvLen: 90, mask: "causal", window: 33 }, 64);
  attention(backend, { ...some, qLen: 3, kvLen: 6, length: 0 }, 64); // sinks alone
  attention(backend, { ...some, qLen: 20, kvLen: 40, mask: "bool", types: [F16, F16, F16] }, 64);
});

test("attention() walks over a long cache", (backend) => {
  attention(backend, { heads: 2, kvHeads: 1, qLen: 1, kvLen: 70_000, dim: 16 }, 64);
});
