/**
 * Rows of the case table: products, quantized products, and the fused ops of `mx.fast`.
 */

import {
  bfloat16,
  build,
  type Dense,
  dense,
  logsumexp,
  map,
  matmul,
  quantizeGroup,
  read,
  rows,
  sum,
  transpose,
} from "../../support/oracles/oracle.ts";
import { type Case, FLOATS, type Input, productTolerance, type TypeName } from "./case.ts";

/** Matrix products, plain and quantized. */
export function* products(): Generator<Case> {
  const shapes: readonly (readonly [readonly number[], readonly number[]])[] = [
    [[1, 1], [1, 1]],
    [[3, 5], [5, 7]],
    [[1, 300], [300, 33]],
    [[65, 70], [70, 67]],
    [[1, 2, 3, 4, 5], [5, 6]],
    [[2, 1, 4, 5], [3, 5, 6]],
    [[2, 1, 3, 1, 1, 5], [2, 3, 3, 5, 4]], // four batch dimensions, none of which merge
    [[3, 0], [0, 2]],
    [[0, 3], [3, 2]],
    [[129, 64], [64, 130]],
  ];
  for (const dtype of FLOATS) {
    for (const [a, b] of shapes) {
      for (const layout of [undefined, "transposed"] as const) {
        const inputs: Input[] = [{ shape: a, dtype, low: -1, high: 1 }, { shape: b, dtype, low: -1, high: 1, layout }];
        yield {
          op: "matmul",
          what: `${dtype} (${a}) @ (${b}) ${layout ?? ""}`,
          inputs,
          run: (mx, [x, y]) => mx.matmul(x, y),
          oracle: ([x, y]) => matmul(x, y),
          tolerance: productTolerance(dtype),
        };
      }
    }
  }
  for (const bits of [2, 3, 4, 5, 6, 8]) {
    for (const groupSize of [32, 64, 128]) {
      for (const [m, n, k] of [[1, 5, 256], [3, 64, 128], [9, 33, 256], [40, 70, 128]]) {
        if (bits !== 4 && bits !== 8 && m > 9) continue;
        const dtype = bits === 8 ? "bfloat16" : "float32";
        const inputs: Input[] = [{ shape: [m, k], dtype: "float32", low: -1, high: 1 }, {
          shape: [n, k],
          dtype,
          low: -1,
          high: 1,
        }];
        yield {
          op: "quantizedMatmul",
          what: `${bits} bits, groups of ${groupSize}, (${m}, ${k}) @ (${n}, ${k}).T`,
          inputs,
          run: (mx, [x, w]) => mx.quantizedMatmul(x, ...mx.quantize(w, groupSize, bits), true, groupSize, bits),
          oracle: ([x, w]) => matmul(x, transpose(quantizedValues(w, bits, groupSize, dtype), [1, 0])),
          tolerance: 1e-7,
        };
      }
    }
  }
  for (const m of [1, 12]) {
    const inputs: Input[] = [{ shape: [m, 24], dtype: "float32", low: -1, high: 1 }, {
      shape: [24, 128],
      dtype: "float32",
      low: -1,
      high: 1,
    }];
    yield {
      op: "quantizedMatmul",
      what: `not transposed, ${m} rows`,
      inputs,
      run: (mx, [x, w]) => mx.quantizedMatmul(x, ...mx.quantize(w, 32, 4), false, 32, 4),
      oracle: ([x, w]) => matmul(x, quantizedValues(w, 4, 32, "float32")),
      tolerance: 1e-7,
    };
  }
}

/** w after MLX's affine quantization. */
function quantizedValues(w: Dense, bits: number, group: number, dtype: TypeName): Dense {
  const store = (x: number): number => dtype === "bfloat16" ? bfloat16(x) : x;
  const out = dense(w.shape, () => 0);
  for (let at = 0; at < w.data.length; at += group) {
    const { codes, scale, bias } = quantizeGroup(w.data.subarray(at, at + group), bits);
    out.data.set(codes.map((code) => store(scale) * code + store(bias)), at);
  }
  return out;
}

/** Rows of the fused ops. */
export function* fused(): Generator<Case> {
  const norm = (v: number[], eps: number): number[] => {
    const length = Math.sqrt(sum(v.map((x) => x * x)) / v.length + eps);
    return v.map((x) => x / length);
  };
  for (const shape of [[1, 1], [3, 256], [2, 3, 100], [5, 1025]]) {
    for (const dtype of ["float32", "bfloat16"] as const) {
      // As MLX does, 16-bit values are rounded before the weight and after it.
      const store = (value: number): number => dtype === "bfloat16" ? bfloat16(value) : value;
      const inputs: Input[] = [{ shape, dtype, low: -2, high: 2 }, {
        shape: shape.slice(-1),
        dtype,
        low: 0.5,
        high: 1.5,
      }];
      yield {
        op: "fast.rmsNorm",
        what: `${dtype} (${shape})`,
        inputs,
        run: (mx, [x, w]) => mx.fast.rmsNorm(x, w, 1e-5),
        oracle: ([x, w]) => map((a, b) => store(store(a) * b), rows(x, shape.length - 1, (v) => norm(v, 1e-5)), w),
        tolerance: 1e-7,
      };
    }
  }
  for (const traditional of [false, true]) {
    for (
      const [shape, dims, offset] of [[[1, 2, 3, 8], 8, 3], [[2, 3, 5, 64], 64, 40000], [[2, 3, 1, 32], 16, 7]] as const
    ) {
      const inputs: Input[] = [{ shape, dtype: "float32", low: -1, high: 1 }];
      yield {
        op: "fast.rope",
        what: `(${shape}) ${dims} at ${offset}${traditional ? " traditional" : ""}`,
        inputs,
        run: (mx, [x]) => mx.fast.rope(x, dims, { traditional, base: 1e6, scale: 1, offset }),
        oracle: ([x]) => ropeOracle(x, dims, traditional, 1e6, offset),
        tolerance: 1e-7,
      };
    }
  }
  const attention: readonly (readonly [number, number, number, number, number, number])[] = [
    // batch, heads, kv heads, queries, keys, head dimension
    [1, 1, 1, 1, 1, 8],
    [1, 4, 2, 1, 130, 128],
    [2, 4, 2, 7, 7, 64],
    [1, 8, 2, 33, 70, 128],
    [1, 2, 1, 3, 300, 96],
    [1, 16, 8, 1, 700, 128],
  ];
  for (const [b, h, hk, tq, tk, d] of attention) {
    const inputs: Input[] = [
      { shape: [b, h, tq, d], dtype: "float32", low: -1, high: 1 },
      { shape: [b, hk, tk, d], dtype: "float32", low: -1, high: 1 },
      { shape: [b, hk, tk, d], dtype: "float32", low: -1, high: 1 },
    ];
    const scale = 1 / Math.sqrt(d);
    for (const mask of [undefined, "causal"] as const) {
      yield {
        op: "fast.scaledDotProductAttention",
        what: `(${[b, h, tq, d]}) over ${hk} x ${tk} ${mask ?? ""}`,
        inputs,
        run: (mx, [q, k, v]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
        oracle: ([q, k, v]) =>
          attentionOracle(q, k, v, scale, (i, j) => mask === "causal" && j > i + tk - tq ? -Infinity : 0),
        tolerance: 1e-7,
      };
    }
    const softcap = 0.4;
    yield {
      op: "fast.scaledDotProductAttention",
      what: `(${[b, h, tq, d]}) over ${hk} x ${tk} causal, scores bounded`,
      inputs,
      run: (mx, [q, k, v]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask: "causal", softcap }),
      oracle: ([q, k, v]) =>
        attentionOracle(
          q,
          k,
          v,
          scale,
          (i, j) => j > i + tk - tq ? -Infinity : 0,
          (score) => softcap * Math.tanh(score / softcap),
        ),
      tolerance: 1e-7,
    };
    const bool: Input = { shape: [1, 1, tq, tk], dtype: "bool", low: 0, high: 2 };
    yield {
      op: "fast.scaledDotProductAttention",
      what: `(${[b, h, tq, d]}) over ${hk} x ${tk} boolean mask`,
      inputs: [...inputs, bool],
      run: (mx, [q, k, v, mask]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
      oracle: ([q, k, v, m]) => attentionOracle(q, k, v, scale, (i, j) => read(m, [0, 0, i, j]) ? 0 : -Infinity),
      tolerance: 1e-7,
    };
    yield {
      op: "fast.scaledDotProductAttention",
      what: `(${[b, h, tq, d]}) over ${hk} x ${tk} additive mask`,
      inputs: [...inputs, { shape: [tq, tk], dtype: "float32", low: -2, high: 2 }],
      run: (mx, [q, k, v, mask]) => mx.fast.scaledDotProductAttention(q, k, v, { scale, mask }),
      oracle: ([q, k, v, m]) => attentionOracle(q, k, v, scale, (i, j) => read(m, [i, j])),
      tolerance: 1e-7,
    };
  }
}

function ropeOracle(x: Dense, dims: number, traditional: boolean, base: number, offset: number): Dense {
  const half = dims / 2;
  return build(x.shape, (at) => {
    const [b, h, t, i] = at;
    if (i >= dims) return read(x, at);
    const pair = traditional ? i >> 1 : i % half;
    const second = traditional ? i % 2 === 1 : i >= half;
    const angle = (t + offset) * base ** (-2 * pair / dims);
    const first = traditional ? 2 * pair : pair;
    const other = traditional ? first + 1 : first + half;
    const x1 = read(x, [b, h, t, first]);
    const x2 = read(x, [b, h, t, other]);
    return second ? x1 * Math.sin(angle) + x2 * Math.cos(angle) : x1 * Math.cos(angle) - x2 * Math.sin(angle);
  });
}

/** Attention with a mask that is added to the scores; a row without keys gives 0. */
export function attentionOracle(
  q: Dense,
  k: Dense,
  v: Dense,
  scale: number,
  mask: (i: number, j: number) => number,
  bounded: (score: number) => number = (score) => score,
): Dense {
  const [b, h, tq, d] = q.shape;
  const [, hk, tk, dv] = v.shape;
  const out = dense([b, h, tq, dv], () => 0);
  for (let n = 0; n < b * h * tq; n++) {
    const [bi, hi, i] = [Math.floor(n / (h * tq)), Math.floor(n / tq) % h, n % tq];
    const g = Math.floor(hi / (h / hk));
    const scores = Array.from({ length: tk }, (_, j) => {
      let s = 0;
      for (let c = 0; c < d; c++) s += q.data[n * d + c] * k.data[((bi * hk + g) * tk + j) * d + c];
      return bounded(s * scale) + mask(i, j);
    });
    const all = logsumexp(scores);
    if (all === -Infinity) continue; // nothing to attend to: zeros
    scores.forEach((s, j) => {
      const p = Math.exp(s - all);
      for (let c = 0; c < dv; c++) out.data[n * dv + c] += p * v.data[((bi * hk + g) * tk + j) * dv + c];
    });
  }
  return out;
}
