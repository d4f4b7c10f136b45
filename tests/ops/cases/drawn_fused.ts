/**
 * Families of the fused functions of `mx.fast`.
 */

import { build, type Dense, map, ravel, read, rows, size, sum } from "../../support/oracles/oracle.ts";
import { FLOATS } from "./case.ts";
import { type Draw, meet, stored } from "./draw.ts";
import { uniforms } from "./drawn_random.ts";
import type { Drawn, Families } from "./family.ts";
import { attentionOracle } from "./products.ts";

/** Rotates pairs of the first `dims` features; positions count along the axis before the last. */
function rotated(
  x: Dense,
  dims: number,
  traditional: boolean,
  at: (batch: number, t: number) => number,
  per: number[],
): Dense {
  const half = dims / 2;
  const last = x.shape.length - 1;
  return build(x.shape, (place) => {
    const i = place[last];
    if (i >= dims) return x.data[ravel(x.shape, place)];
    const pair = traditional ? i >> 1 : i % half;
    const second = traditional ? i % 2 === 1 : i >= half;
    const first = traditional ? 2 * pair : pair;
    const angle = at(place[0], place[last - 1]) * per[pair];
    const value = (j: number): number => x.data[ravel(x.shape, [...place.slice(0, -1), j])];
    const [a, b] = [value(first), value(traditional ? first + 1 : first + half)];
    return second ? a * Math.sin(angle) + b * Math.cos(angle) : a * Math.cos(angle) - b * Math.sin(angle);
  });
}

/** The token of a row as mlx-lm's filters leave it. */
function chosen(
  row: number[],
  u: number,
  o: { temperature: number; topP: number; minP: number; topK: number },
): number {
  const order = row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b);
  if (o.temperature === 0) return order[0];
  const most = row[order[0]];
  const total = sum(row.map((x) => Math.exp(x - most)));
  let before = 0;
  let least = Infinity;
  for (const i of order) {
    if (before < o.topP) least = row[i];
    before += Math.exp(row[i] - most) / total;
  }
  const kept = row.map((x, i) =>
    (o.minP === 0 || x >= most + Math.log(o.minP)) && (o.topP === 0 || o.topP === 1 || x >= least) &&
    (o.topK === 0 || order.indexOf(i) < o.topK)
  );
  const mass = row.map((x, i) => kept[i] ? Math.exp((x - most) / o.temperature) : 0);
  const goal = u * sum(mass);
  let reached = 0;
  return mass.findIndex((m) => (reached += m) > goal);
}

function norm(d: Draw, name: "rmsNorm" | "layerNorm"): Drawn {
  const dtype = d.dtype(FLOATS);
  const other = d.chance(0.2) ? d.dtype(FLOATS) : dtype;
  const shape = [...d.shape(0, 3).map((n) => Math.min(n, 5)), d.pick([1, 3, 64, 100, 257, 1025])];
  const n = shape[shape.length - 1];
  const eps = d.pick([1e-5, 1e-6, 1e-2]);
  const [hasWeight, hasBias] = [d.chance(0.8), name === "layerNorm" && d.chance(0.7)];
  const result = hasWeight || hasBias ? meet(dtype, other) : dtype;
  const store = (v: number): number => stored(result, v);
  return {
    what: `${hasWeight ? "weight" : ""} ${hasBias ? "bias" : ""} ${eps}`,
    inputs: [d.input(shape, dtype, [-2, 2]), d.input([n], other, [0.5, 1.5]), d.input([n], other, [-1, 1])],
    run: (mx, [x, w, b]) =>
      name === "rmsNorm"
        ? mx.fast.rmsNorm(x, hasWeight ? w : null, eps)
        : mx.fast.layerNorm(x, hasWeight ? w : null, hasBias ? b : null, eps),
    oracle: ([x, w, b]) => {
      const normal = rows(x, shape.length - 1, (v) => {
        const mean = name === "layerNorm" ? sum(v) / n : 0;
        const scale = 1 / Math.sqrt(sum(v.map((q) => (q - mean) ** 2)) / n + eps);
        return v.map((q) => (q - mean) * scale);
      });
      const scaled = hasWeight ? map((p, q) => store(p) * q, normal, w) : normal;
      return hasBias ? map((p, q) => store(p) + q, scaled, b) : scaled;
    },
    tolerance: result === "float32" ? 1e-7 : 3e-5,
    dtype: result,
  };
}

/** Fused functions. */
export function drawnFused(): Families {
  return {
    "fast.rmsNorm": (d) => norm(d, "rmsNorm"),
    "fast.layerNorm": (d) => norm(d, "layerNorm"),
    "fast.rope": (d) => {
      const dtype = d.dtype(FLOATS);
      const lead = d.pick([[1], [2], [2, 3], [1, 2, 2], [3, 1]]);
      const dims = d.pick([2, 4, 8, 16, 64]);
      const shape = [...lead, d.int(1, 7), dims + d.pick([0, 0, 1, 4])];
      const traditional = d.chance(0.5);
      const [base, scale] = [d.pick([10000, 1e6]), d.pick([1, 0.25])];
      const form = d.pick(["number", "one", "batch"] as const);
      const offsets = Array.from({ length: form === "batch" ? lead[0] : 1 }, () => d.int(0, 3000));
      const freqs = d.chance(0.3) ? d.values(dims / 2, "float32", [1, 100]) : undefined;
      return {
        what: `${dims} ${form} ${offsets}${traditional ? " traditional" : ""}${freqs ? " freqs" : ""} scale ${scale}`,
        inputs: [d.input(shape, dtype, [-1, 1])],
        run: (mx, [x]) =>
          mx.fast.rope(x, dims, {
            traditional,
            scale,
            offset: form === "number" ? offsets[0] : mx.array(offsets, mx.int32),
            ...(freqs ? { base: null, freqs: mx.array(freqs) } : { base }),
          }),
        oracle: ([x]) => {
          const per = Array.from({ length: dims / 2 }, (_, i) => freqs ? 1 / freqs[i] : base ** (-2 * i / dims));
          return rotated(x, dims, traditional, (b, t) => (t + (offsets[form === "batch" ? b : 0])) * scale, per);
        },
        tolerance: dtype === "float32" ? 1e-7 : 1e-5,
        dtype,
      };
    },
    "fast.scaledDotProductAttention": (d) => {
      const dtype = d.dtype(FLOATS);
      const [b, hk, group] = [d.int(1, 2), d.int(1, 2), d.int(1, 3)];
      const [tq, tk, dim] = [d.int(1, 9), d.pick([1, 3, 9, 33, 70]), d.few([4, 8, 32, 64])];
      const h = hk * group;
      const mask = d.few([null, "causal", "bool", "add"] as const);
      const lengths = d.chance(0.3) ? Array.from({ length: d.pick([1, b]) }, () => d.int(0, tk)) : undefined;
      const sinks = !lengths && mask !== "add" && dtype === "float32" && d.chance(0.2);
      const window = (mask === null || mask === "causal") && d.chance(0.4) ? d.pick([1, 2, 5, 40]) : undefined;
      const scale = 1 / Math.sqrt(dim);
      const wide = d.pick([[tq, tk], [b, 1, tq, tk], [b, h, tq, tk], [1, h, 1, tk]]);
      return {
        what: `${mask}${window ? ` window ${window}` : ""}${lengths ? ` lengths ${lengths}` : ""}${
          sinks ? " sinks" : ""
        }`,
        inputs: [
          d.input([b, h, tq, dim], dtype, [-1, 1]),
          d.input([b, hk, tk, dim], dtype, [-1, 1]),
          d.input([b, hk, tk, dim], dtype, [-1, 1]),
          mask === "bool" ? d.input(wide, "bool", [0, 1]) : d.input(wide, dtype, [-2, 2]),
          d.input([h], dtype, [-2, 2]),
        ],
        run: (mx, [q, k, v, m, s]) =>
          mx.fast.scaledDotProductAttention(q, k, v, {
            scale,
            mask: mask === "bool" || mask === "add" ? m : mask,
            window,
            lengths: lengths && mx.array(lengths, mx.int32),
            sinks: sinks ? s : null,
          }),
        oracle: ([q, k, v, m, s]) => {
          const out = build([b, h, tq, dim], () => 0);
          for (let bi = 0; bi < b; bi++) {
            for (let hi = 0; hi < h; hi++) {
              const g = Math.floor(hi / group);
              const of = (x: Dense, head: number): Dense => {
                const n = x.shape[2] * dim;
                const from = (bi * x.shape[1] + head) * n;
                return { shape: [1, 1, x.shape[2], dim], data: x.data.subarray(from, from + n) };
              };
              const keys = lengths ? lengths[lengths.length > 1 ? bi : 0] : tk;
              const add = (i: number, j: number): number => {
                const last = mask === "causal" ? i + keys - tq : keys - 1;
                if (j >= keys || j > last || (window !== undefined && j <= last - window)) return -Infinity;
                if (mask === "bool") return read(m, [bi, hi, i, j]) ? 0 : -Infinity;
                return mask === "add" ? read(m, [bi, hi, i, j]) : 0;
              };
              const one = sinks
                ? withSink(of(q, hi), of(k, g), of(v, g), scale, add, s.data[hi])
                : attentionOracle(of(q, hi), of(k, g), of(v, g), scale, add);
              out.data.set(one.data, (bi * h + hi) * tq * dim);
            }
          }
          return out;
        },
        tolerance: dtype === "float32" ? 1e-7 : 5e-4,
        dtype,
      };
    },
    "fast.sample": (d) => {
      const lead = d.shape(0, 2, false).map((n) => Math.min(n, 4));
      const cols = d.pick([1, 5, 33, 300, 1025]);
      const seed = d.int(0, 1000);
      const options = {
        temperature: d.pick([0, 1, 0.7, 2]),
        topP: d.pick([1, 0.9, 0.5, 0]),
        minP: d.pick([0, 0.05]),
        topK: d.pick([0, 1, 5, 40]),
      };
      return {
        what: JSON.stringify(options),
        inputs: [d.input([...lead, cols], d.dtype(FLOATS), [-6, 6])],
        run: (mx, [x]) => mx.fast.sample(x, { ...options, key: mx.random.key(seed) }),
        oracle: ([x]) => {
          const u = uniforms([0, seed], size(lead));
          return build(lead, (at) => {
            const r = ravel(lead, at);
            return chosen([...x.data.subarray(r * cols, (r + 1) * cols)], u[r], options);
          });
        },
        tolerance: 0,
        dtype: "uint32",
      };
    },
    "fast.logprobs": (d) => {
      const [n, cols, top] = [d.int(1, 4), d.pick([1, 5, 33, 300, 1025]), d.pick([0, 1, 3, 5])];
      return {
        what: `top ${top}`,
        inputs: [d.input([n, cols], d.dtype(FLOATS), [-6, 6]), d.input([n], "int32", [0, cols - 1])],
        run: (mx, [x, t]) => mx.fast.logprobs(x, t, top),
        oracle: ([x, t]) => {
          const lines = Array.from({ length: n }, (_, r) => {
            const row = [...x.data.subarray(r * cols, (r + 1) * cols)];
            const order = row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b);
            const most = row[order[0]];
            const total = most + Math.log(sum(row.map((v) => Math.exp(v - most))));
            const best = Array.from({ length: top }, (_, i) => order[Math.min(i, cols - 1)]);
            return [row[t.data[r]] - total, ...best.map((i) => row[i] - total), ...best];
          });
          return { shape: [n, 1 + 2 * top], data: Float64Array.from(lines.flat()) };
        },
        tolerance: 1e-7,
        dtype: "float32",
        absolute: 1e-5,
      };
    },
  };
}

/** Attention of one head whose softmax has one more logit, which gives no value. */
function withSink(
  q: Dense,
  k: Dense,
  v: Dense,
  scale: number,
  mask: (i: number, j: number) => number,
  sink: number,
): Dense {
  const [tq, dim] = q.shape.slice(2);
  const tk = k.shape[2];
  return build([tq, dim], ([i, c]) => {
    const scores = Array.from({ length: tk }, (_, j) => {
      let s = 0;
      for (let e = 0; e < dim; e++) s += q.data[i * dim + e] * k.data[j * dim + e];
      return s * scale + mask(i, j);
    });
    const most = Math.max(sink, ...scores);
    const total = sum(scores.map((s) => Math.exp(s - most))) + Math.exp(sink - most);
    return sum(scores.map((s, j) => Math.exp(s - most) * v.data[j * dim + c])) / total;
  });
}
