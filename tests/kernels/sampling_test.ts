/** Kernels random_bits, those of sorting and sample on every device: exact words, orders and tokens. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { nodeOf, wrap } from "../../src/array/tensor/tensor.ts";
import type { Backend } from "../../src/backend/backend.ts";
import type { Dtype } from "../../src/graph/dtype.ts";
import {
  bfloat16,
  float16,
  float32,
  float64,
  hostValue,
  hostView,
  int16,
  int32,
  int64,
  int8,
  setHostValue,
  uint16,
  uint32,
  uint64,
  uint8,
} from "../../src/graph/dtype.ts";
import { makeNode } from "../../src/graph/node.ts";
import { drawSome } from "../support/draw_cases.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { generator } from "../support/oracles/oracle.ts";

// ---- random_bits ------------------------------------------------------------------------------------------------------

function randomBits(backend: Backend, keys: number[], wordsPerKey: number): Uint32Array {
  const count = keys.length / 2;
  const out = new Uint32Array(count * wordsPerKey);
  runKernel(backend, "random_bits", {
    push: { keys: count, words_per_key: wordsPerKey },
    buffers: { keys: Uint32Array.from(keys), out },
    items: count * Math.ceil(wordsPerKey / 2),
  });
  return out;
}

// mx.random.split(key, 5), and mx.random.uniform(shape=(n,), key=key), which is float32(bits) / 2^32.
const GOLDEN = [
  {
    key: [0, 0],
    split: [
      1524306142,
      2595015335,
      1836460763,
      990488084,
      1416732029,
      1887795613,
      1078027127,
      1191019179,
      3297765038,
      3069809391,
    ],
    uniform: [
      [0.41845712065696716],
      [0.21629545092582703, 0.8041241765022278],
      [0.9653214812278748, 0.3146817088127136, 0.6330299973487854],
      [
        ...[0.5322265028953552, 0.349656879901886, 0.35358649492263794, 0.7213709950447083],
        ...[0.10100969672203064, 0.9829632043838501, 0.19538767635822296],
      ],
    ],
  },
  {
    key: [0, 42],
    split: [
      2765691542,
      1385194879,
      831049250,
      3807460095,
      3616728933,
      824333390,
      1482326074,
      1083977345,
      2713995981,
      2812206153,
    ],
    uniform: [
      [0.4267275631427765],
      [0.015010069124400616, 0.6789629459381104],
      [0.5741444230079651, 0.10015823692083359, 0.05946118012070656],
      [
        ...[0.6878003478050232, 0.5995789766311646, 0.26520177721977234, 0.3914102613925934],
        ...[0.7629221677780151, 0.28484806418418884, 0.040389541536569595],
      ],
    ],
  },
];

kernelTest("random_bits gives MLX's words", (backend) => {
  for (const { key, split, uniform } of GOLDEN) {
    assertEquals([...randomBits(backend, key, 10)], split);
    for (const expected of uniform) {
      const words = randomBits(backend, key, expected.length);
      assertEquals([...words].map((w) => Math.fround(Math.fround(w) / 2 ** 32)), expected.map(Math.fround));
    }
  }
});

kernelTest("random_bits treats each key on its own", (backend) => {
  const keys = GOLDEN.flatMap((g) => g.key);
  for (const words of [1, 4, 131]) {
    const apart = GOLDEN.flatMap((g) => [...randomBits(backend, g.key, words)]);
    assertEquals([...randomBits(backend, keys, words)], apart);
  }
});

// ---- sort -------------------------------------------------------------------------------------------------------------

/** The dispatches of sort_pass by the rule of shaders/include/push.h. */
function sortPasses(padded: number, threads: number): [k: number, j: number][] {
  const span = Math.min(2 * threads, padded);
  if (span < 2) return [];
  const passes: [number, number][] = [[span, span / 2]];
  for (let k = 2 * span; k <= padded; k *= 2) {
    for (let j = k / 2; j >= span; j /= 2) passes.push([k, j]);
    passes.push([k, span / 2]);
  }
  return passes;
}

/** Sorted values and their indices of (rows, cols). */
function sort(
  backend: Backend,
  dtype: Dtype,
  values: ArrayLike<number>,
  cols: number,
  threads = 32,
): { sorted: number[]; order: number[] } {
  const rows = values.length / cols;
  const padded = 2 ** Math.ceil(Math.log2(cols));
  const input = hostView(dtype, new Uint8Array(values.length * dtype.bytes));
  for (let i = 0; i < values.length; i++) setHostValue(dtype, input, i, values[i]);
  if (backend.has("radix_sort")) {
    const run = (indices: boolean, out: typeof input): typeof input => {
      const buffers = { in: input, work: new Uint32Array(4 * values.length), out };
      runKernel(backend, "radix_sort", {
        spec: { DTYPE_IN: dtype.code, INDICES: indices ? 1 : 0 },
        push: { rows, cols },
        buffers,
        items: rows,
      });
      return out;
    };
    const sorted = run(false, input.slice());
    return {
      sorted: Array.from({ length: sorted.length }, (_, i) => Number(hostValue(dtype, sorted, i))),
      order: [...run(true, new Uint32Array(values.length)) as Uint32Array],
    };
  }
  const keys = new Uint32Array(rows * padded);
  const indices = new Uint32Array(rows * padded);
  const shape = { rows, cols, padded };
  const spec = { THREADS: threads };
  runKernel(backend, "sort_init", {
    spec: { ...spec, DTYPE_IN: dtype.code },
    push: shape,
    buffers: { in: input, keys, indices },
    items: rows * padded,
  });
  const grid = rows * padded / Math.min(2 * threads, padded);
  for (const [pass_k, pass_j] of sortPasses(padded, threads)) {
    runKernel(backend, "sort_pass", { spec, push: { ...shape, pass_k, pass_j }, buffers: { keys, indices }, grid });
  }
  const sorted = input.slice();
  const order = new Uint32Array(values.length);
  const finish = { push: shape, items: rows * cols };
  runKernel(backend, "sort_finish", {
    ...finish,
    spec: { ...spec, DTYPE_OUT: dtype.code },
    buffers: { in: input, indices, out: sorted },
  });
  runKernel(backend, "sort_finish", {
    ...finish,
    spec: { ...spec, DTYPE_OUT: uint32.code },
    buffers: { indices, out: order },
  });
  return {
    sorted: Array.from({ length: sorted.length }, (_, i) => Number(hostValue(dtype, sorted, i))),
    order: [...order],
  };
}

/** Stable, NaN last. */
function checkSort(backend: Backend, dtype: Dtype, values: number[], cols: number, threads?: number): void {
  const { sorted, order } = sort(backend, dtype, values, cols, threads);
  const expected: number[] = [];
  for (let row = 0; row < values.length; row += cols) {
    const indices = Array.from({ length: cols }, (_, i) => i);
    const rank = (i: number): [number, number] => [Number(Number.isNaN(values[row + i])), values[row + i]];
    expected.push(...indices.sort((a, b) => {
      const [[nanA, x], [nanB, y]] = [rank(a), rank(b)];
      return nanA - nanB || (nanA ? 0 : x < y ? -1 : x > y ? 1 : 0) || a - b;
    }));
  }
  assertEquals(order, expected, `argsort ${dtype.name} of ${cols} on ${backend.name}`);
  assertEquals(
    sorted,
    expected.map((index, i) => values[i - i % cols + index]),
    `sort ${dtype.name} of ${cols} on ${backend.name}`,
  );
}

kernelTest("sort orders rows of any length stably", (backend) => {
  const next = generator(11);
  for (const [rows, cols] of [[1, 1], [3, 2], [2, 3], [5, 64], [2, 65], [1, 1000]]) {
    const values = Array.from({ length: rows * cols }, () => Math.floor(next() * 60) - 30);
    for (const dtype of [float32, bfloat16, int8, int32]) checkSort(backend, dtype, values, cols);
    checkSort(backend, uint32, values.map((v) => v + 30), cols);
  }
  checkSort(backend, float32, Array.from({ length: 5000 }, () => Math.fround(next())), 5000, 256);
});

kernelTest("sort orders elements of any bits", (backend) => {
  const next = generator(12);
  for (const dtype of [float32, float16, bfloat16, int8, uint8, int16, uint16, int32, uint32]) {
    for (const [rows, cols] of [[3, 24], [3, 25], [1, 5000]]) {
      const bits = Uint8Array.from({ length: rows * cols * dtype.bytes }, () => Math.floor(next() * 256));
      const drawn = hostView(dtype, bits);
      checkSort(
        backend,
        dtype,
        Array.from({ length: rows * cols }, (_, i) => Number(hostValue(dtype, drawn, i))),
        cols,
      );
    }
  }
});

kernelTest("sort orders elements of 8 bytes", (backend) => {
  const next = generator(13);
  const count = 500;
  const words = Uint32Array.from({ length: 2 * count }, (_, i) => i % 7 === 1 ? 0 : Math.floor(next() * 2 ** 32));
  const inputs: readonly (readonly [Dtype, BigInt64Array | BigUint64Array | Float64Array])[] = [
    [int64, new BigInt64Array(words.buffer)],
    [uint64, new BigUint64Array(words.buffer)],
    [float64, new Float64Array(words.buffer)],
    [float64, Float64Array.of(3, NaN, -0, 0, -Infinity, Infinity, NaN, 1, -0, -2, 0)],
    [int64, BigInt64Array.of(7n, 7n, -7n)],
    [uint64, BigUint64Array.of(9n)],
  ];
  for (const [dtype, input] of inputs) {
    const nan = (i: number): number => Number(Number.isNaN(Number(input[i])));
    const rank = (a: number, b: number): number => input[a] < input[b] ? -1 : input[a] > input[b] ? 1 : 0;
    const order = Array.from({ length: input.length }, (_, i) => i).sort((a, b) =>
      nan(a) - nan(b) || rank(a, b) || a - b
    );
    for (const out of [input.slice(), new Uint32Array(input.length)]) {
      const indices = out instanceof Uint32Array;
      runKernel(backend, "radix_sort", {
        spec: { DTYPE_IN: dtype.code, INDICES: indices ? 1 : 0 },
        push: { rows: 1, cols: input.length },
        buffers: { in: input, work: new Uint32Array(8 * input.length), out },
      });
      assertEquals(Array.from<unknown>(out), order.map((i) => indices ? i : input[i]));
    }
  }
}, ["radix_sort"]);

kernelTest("sort puts NaN last and both zeros in place", (backend) => {
  const [nan, inf] = [NaN, Infinity];
  for (const dtype of [float32, float16, bfloat16]) {
    checkSort(backend, dtype, [3, nan, -0, 0, -inf, inf, nan, 1, -0, -2, 0], 11);
  }
  checkSort(backend, uint32, [2 ** 32 - 1, 0, 2 ** 32 - 1, 5, 2 ** 31], 5);
  checkSort(backend, int32, [2 ** 31 - 1, -(2 ** 31), 0, -1, 1], 5);
});

// ---- sample -----------------------------------------------------------------------------------------------------------

interface Sampling {
  readonly temperature: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly topK?: number;
}

/** Tokens of rows of logits by op `sample`, whose kernels differ from device to device: of all rows alike, or each in its own way. */
function sample(
  backend: Backend,
  dtype: Dtype,
  logits: ArrayLike<number>,
  cols: number,
  s: Sampling | readonly Sampling[],
  uniforms?: number[],
  mask?: Uint32Array,
): number[] {
  const rows = logits.length / cols;
  const one = s instanceof Array ? undefined : s;
  const { topK = 0, topP = 0 } = one ?? { topK: -1, topP: 0.5 };
  const attrs = { draws: uniforms !== undefined, topK, topP: topP > 0 && topP < 1, masked: mask !== undefined };
  const settings = (one ? [one] : s as readonly Sampling[])
    .map(({ temperature, topP = 0, minP = 0, topK = 0 }) => [temperature, topP, minP, topK]);
  return mx.withDevice(backend.name, () =>
    mx.tidy(() => {
      const inputs: mx.Tensor[] = [mx.array(Float32Array.from(logits)).reshape(rows, cols).astype(dtype)];
      if (uniforms) {
        inputs.push(mx.broadcastTo(mx.array(settings, mx.float32), [rows, 4]), mx.array(Float32Array.from(uniforms)));
      }
      if (mask) inputs.push(mx.array(mask).reshape(rows, -1));
      return wrap(makeNode("sample", inputs.map(nodeOf), [rows], uint32, attrs)).tolist() as number[];
    }));
}

/** Indices that pass the filters, by sorting: likelier first, then the lower index. */
function kept(logits: ArrayLike<number>, s: Sampling): Set<number> {
  const order = Array.from(logits, (_, i) => i).sort((a, b) => logits[b] - logits[a] || a - b);
  const most = logits[order[0]];
  const weights = order.map((i) => Math.exp(logits[i] - most));
  const total = weights.reduce((a, b) => a + b, 0);
  const result = new Set<number>();
  let above = 0; // mass of strictly likelier tokens
  let group = 0; // mass of the tokens as likely as this one that came before it
  order.forEach((token, rank) => {
    if (rank > 0 && logits[token] < logits[order[rank - 1]]) [above, group] = [above + group, 0];
    group += weights[rank];
    if (s.topP && s.topP < 1 && above >= Math.fround(s.topP) * total) return;
    if (s.minP && logits[token] < most + Math.log(s.minP)) return;
    if (s.topK && rank >= s.topK) return;
    result.add(token);
  });
  return result;
}

/** Asserts that `token` is the draw of the definition, or next to it within rounding. */
function assertDraw(logits: ArrayLike<number>, s: Sampling, uniform: number, token: number, what: string): void {
  const keep = kept(logits, s);
  assert(keep.has(token), `${what}: ${token} was filtered out`);
  let most = -Infinity;
  for (const i of keep) most = Math.max(most, logits[i]);
  let [total, before] = [0, 0];
  for (let i = 0; i < logits.length; i++) {
    if (i === token) before = total;
    if (keep.has(i)) total += Math.exp((logits[i] - most) / s.temperature);
  }
  const after = before + Math.exp((logits[token] - most) / s.temperature);
  const slack = 1e-6;
  assert(
    before / total - slack <= uniform && uniform <= after / total + slack,
    `${what}: ${uniform} outside ${before / total} to ${after / total}`,
  );
}

const SAMPLINGS: Sampling[] = [
  { temperature: 1 },
  { temperature: 0.6, topP: 0.95, topK: 20 },
  { temperature: 0.7, topP: 0.8 },
  { temperature: 1.5, topK: 5 },
  { temperature: 0.9, minP: 0.05 },
  { temperature: 1, topP: 0.9, minP: 0.02, topK: 40 },
  { temperature: 1, topK: 1 },
  { temperature: 1, topP: 1e-6 },
  { temperature: 1, minP: 1 },
  { temperature: 0.01 },
  { temperature: 1, topK: 1_000_000 },
];

kernelTest("sample draws by the definition of MLX-LM's sampler", (backend) => {
  const next = generator(21);
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  for (const cols of [1, 2, 31, 300, 5003]) {
    for (const spread of [0.1, 3]) {
      const logits = Float32Array.from({ length: cols }, () => normal() * spread);
      for (const s of SAMPLINGS) {
        const uniforms = [0, 0.25, Math.fround(next()), 1 - 2 ** -24];
        const tokens = sample(backend, float32, uniforms.flatMap(() => [...logits]), cols, s, uniforms);
        tokens.forEach((token, i) =>
          assertDraw(logits, s, uniforms[i], token, `${JSON.stringify(s)} of ${cols} on ${backend.name}`)
        );
      }
    }
  }
});

kernelTest("sample keeps ties by index and by value as documented", (backend) => {
  const logits = [0, 2, 1, 2, 2, 1, -1, 2];
  const draw = (s: Sampling): Set<number> => {
    const uniforms = Array.from({ length: 64 }, (_, i) => i / 64);
    return new Set(sample(backend, float32, uniforms.flatMap(() => logits), 8, s, uniforms));
  };
  assertEquals(draw({ temperature: 1, topK: 2 }), new Set([1, 3]));
  assertEquals(draw({ temperature: 1, topK: 5 }), new Set([1, 2, 3, 4, 7]));
  assertEquals(draw({ temperature: 1, topP: 0.3 }), new Set([1, 3, 4, 7]));
  assertEquals(draw({ temperature: 1, topP: 0.3, topK: 3 }), new Set([1, 3, 4]));
  assertEquals(draw({ temperature: 1, minP: 0.3 }), new Set([1, 2, 3, 4, 5, 7]));
});

kernelTest("sample finds thresholds among hundreds of ties, of close logits and far below the maximum", (backend) => {
  const next = generator(41);
  const uniforms = [0, 0.3, Math.fround(next()), 1 - 2 ** -24];
  const flat = Float32Array.from({ length: 20_011 }, () => next() * 0.1); // all in one bin of the histogram
  const stepped = Float32Array.from({ length: 20_011 }, () => Math.floor(next() * 12) / 4); // a dozen values
  const wide = Float32Array.from({ length: 3001 }, () => next() * 40);
  const tail = Float32Array.from({ length: 5003 }, (_, i) => i === 777 ? 9 : next() * 0.1); // 38 % of the mass are far
  for (const logits of [flat, stepped, wide, tail]) {
    for (const topK of [1, 300, 1900, 15_000]) {
      for (const topP of [0, 1e-4, 0.2, 0.9]) {
        const s = { temperature: 0.8, topK, topP };
        const tokens = sample(backend, float32, uniforms.flatMap(() => [...logits]), logits.length, s, uniforms);
        tokens.forEach((token, i) =>
          assertDraw(logits, s, uniforms[i], token, `${JSON.stringify(s)} on ${backend.name}`)
        );
      }
    }
  }
});

kernelTest("sample finds the few likeliest wherever they lie among many parts", (backend) => {
  const next = generator(61);
  const cols = 30_011; // 30 slices, the last one short
  const row = (of: (i: number) => number): Float32Array => Float32Array.from({ length: cols }, (_, i) => of(i));
  const rows = [
    row(() => next() * 9 - 4), // everywhere
    row((i) => i >= 5120 && i < 5140 ? 4 + next() : next() * 3), // in one slice
    row((i) => i % 11_000 === 7 ? i / 50_000 : -Infinity), // three tokens
    row((i) => Math.floor(i / 1024) % 2 === 0 ? -Infinity : 100 * next() - 300), // no mass but near the largest
    row((i) => i > 29_900 ? 1 : 1 - 1e-6 * next()), // hundreds of ties
  ];
  const uniforms = [0, 0.4, Math.fround(next()), 1 - 2 ** -24];
  for (const logits of rows) {
    for (const s of [{ topK: 7 }, { topK: 5, topP: 0.8 }, { topK: 6, topP: 0.999, minP: 0.2 }]) {
      for (const temperature of [0.6, 50]) {
        const how = { ...s, temperature };
        const tokens = sample(backend, float32, uniforms.flatMap(() => [...logits]), cols, how, uniforms);
        tokens.forEach((token, i) =>
          assertDraw(logits, how, uniforms[i], token, `${JSON.stringify(how)} on ${backend.name}`)
        );
      }
    }
  }
});

kernelTest("sample chooses each row by settings of its own as it does alone", (backend) => {
  const next = generator(81);
  const all: Sampling[] = [
    ...SAMPLINGS,
    { temperature: 0 },
    { temperature: 0.7, topK: 300, topP: 0.9 },
    { temperature: -1, topK: 3 },
    { temperature: 1, topP: -2, minP: -1, topK: -7 },
    { temperature: 1, topP: 7, topK: NaN },
    { temperature: NaN, topP: 0.5 },
  ];
  for (const cols of [1, 40, 5003, 30_011]) {
    const logits = all.map(() => Float32Array.from({ length: cols }, () => next() * 12 - 6));
    const uniforms = all.map(() => Math.fround(next()));
    const tokens = sample(backend, float32, logits.flatMap((row) => [...row]), cols, all, uniforms);
    all.forEach((s, row) => {
      const what = `${JSON.stringify(s)} of ${cols} on ${backend.name}`;
      const greedy = !(s.temperature > 0);
      const [alone] = greedy
        ? sample(backend, float32, logits[row], cols, { temperature: 0 })
        : sample(backend, float32, logits[row], cols, inRange(s), [uniforms[row]]);
      assertEquals(tokens[row], alone, what);
      if (greedy) assertEquals(alone, logits[row].indexOf(Math.max(...logits[row])), what);
      else assertDraw(logits[row], inRange(s), uniforms[row], alone, what);
    });
  }
});

/** Settings whose filters are off where they are out of range. */
function inRange({ temperature, topP = 0, minP = 0, topK = 0 }: Sampling): Sampling {
  return { temperature, topP: topP > 0 && topP < 1 ? topP : 0, minP: Math.max(minP, 0), topK: topK >= 1 ? topK : 0 };
}

kernelTest("sample takes rows of 524,288 logits", (backend) => {
  const next = generator(91);
  const flat = (): number => 1; // the masses of all but one are equal, and their sums the largest there are
  const near = (): number => next() * 0.01;
  const wide = (): number => next() ** 4 * 24 - 12;
  const rows = [[262_144, near], [262_145, wide], [262_208, near], [524_288, flat]] as const;
  for (const [cols, of] of drawSome(backend.name, "wide rows", rows, 2)) {
    const logits = Float32Array.from({ length: cols }, of);
    logits[cols - 1] = 1 + logits.reduce((a, b) => Math.max(a, b));
    assertEquals(sample(backend, float32, logits, cols, { temperature: 0 }), [cols - 1]);
    for (
      const s of [{ temperature: 1 }, { temperature: 0.8, topK: 50 }, { temperature: 1, topP: 0.6, topK: 300_000 }]
    ) {
      const uniform = Math.fround(next());
      const [token] = sample(backend, float32, logits, cols, s, [uniform]);
      assertDraw(logits, s, uniform, token, `${JSON.stringify(s)} of ${cols} on ${backend.name}`);
    }
  }
});

kernelTest("sample takes many rows", (backend) => {
  const next = generator(51);
  const [rows, cols] = [150, 40];
  const logits = Array.from({ length: rows * cols }, () => Math.fround(next() * 4));
  const uniforms = Array.from({ length: rows }, () => Math.fround(next()));
  const s = { temperature: 0.9, topK: 7, topP: 0.8 };
  sample(backend, float32, logits, cols, s, uniforms).forEach((token, i) =>
    assertDraw(logits.slice(i * cols, (i + 1) * cols), s, uniforms[i], token, `row ${i} on ${backend.name}`)
  );
});

kernelTest("sample takes the first largest logit at temperature 0 and no token without a finite maximum", (backend) => {
  const inf = Infinity;
  const none = 0xffffffff;
  const rows = [[1, 5, 5, 0], [-3, -2, -2, -9], [1, NaN, 9, NaN], [1, inf, 0, inf], [-inf, -inf, -inf, -inf]];
  assertEquals(sample(backend, float32, rows.flat(), 4, { temperature: 0 }), [1, 1, none, none, none]);
  assertEquals(sample(backend, float32, rows.slice(2).flat(), 4, { temperature: 1 }, [0.9, 0.9, 0.9]), [
    none,
    none,
    none,
  ]);
  assertEquals(sample(backend, float32, [-inf, 0, -inf, 0], 4, { temperature: 1 }, [0.75]), [3]);
});

/** Masks of rows by which tokens each of them allows. */
function masksOf(rows: readonly ((token: number) => boolean)[], cols: number): Uint32Array {
  const words = Math.ceil(cols / 32);
  const masks = new Uint32Array(rows.length * words).fill(0xffffffff); // bits beyond the last token mean nothing
  rows.forEach((allows, row) => {
    for (let i = 0; i < cols; i++) if (!allows(i)) masks[row * words + (i >> 5)] &= ~(1 << (i & 31));
  });
  return masks;
}

kernelTest("sample takes only tokens that its mask allows", (backend) => {
  const next = generator(71);
  const few: Sampling[] = [{ temperature: 0.7, topK: 7 }, { temperature: 1, topK: 6, topP: 0.7, minP: 0.01 }];
  for (const cols of [1, 31, 32, 33, 300, 5003, 30_011]) {
    const wanted = Array.from({ length: 4 }, () => Math.floor(next() * cols));
    const half = Uint8Array.from({ length: cols }, () => next() < 0.5 ? 1 : 0);
    const rows: ((token: number) => boolean)[] = [
      () => true,
      (i) => i === wanted[0],
      (i) => wanted.includes(i),
      (i) => half[i] === 1 || i === wanted[1],
      (i) => i >= cols - 1,
    ];
    const logits = rows.map((allows) => {
      const row = Float32Array.from({ length: cols }, () => next() * 12 - 6);
      const forbidden = row.findIndex((_, i) => !allows(i));
      if (forbidden >= 0) row[forbidden] = [NaN, Infinity, 99][Math.floor(next() * 3)];
      return row;
    });
    const masks = masksOf(rows, cols);
    const left = logits.map((row, r) => row.map((x, i) => rows[r](i) ? x : -Infinity));
    const all = logits.flatMap((row) => [...row]);
    const largest = left.map((row) => row.indexOf(row.reduce((a, b) => Math.max(a, b))));
    assertEquals(sample(backend, float32, all, cols, { temperature: 0 }, undefined, masks), largest, `of ${cols}`);
    for (const s of [...SAMPLINGS, ...few]) {
      for (const uniform of [0, Math.fround(next()), 1 - 2 ** -24]) {
        const tokens = sample(backend, float32, all, cols, s, rows.map(() => uniform), masks);
        tokens.forEach((token, r) => {
          const what = `${JSON.stringify(s)}, row ${r} of ${cols} on ${backend.name}`;
          assert(rows[r](token), `${what}: ${token} is forbidden`);
          assertDraw(left[r], s, uniform, token, what);
        });
      }
    }
  }
});

kernelTest("sample takes no token where its mask allows none, or none that is finite", (backend) => {
  const none = 0xffffffff;
  const rows = [() => false, (i: number) => i < 2, (i: number) => i === 39];
  const row = Float32Array.from({ length: 40 }, (_, i) => i < 2 ? -Infinity : i);
  const masks = masksOf(rows, 40);
  const logits = rows.flatMap(() => [...row]);
  assertEquals(sample(backend, float32, logits, 40, { temperature: 0 }, undefined, masks), [none, none, 39]);
  assertEquals(sample(backend, float32, logits, 40, { temperature: 1, topK: 3 }, [0.5, 0.5, 0.5], masks), [
    none,
    none,
    39,
  ]);
});

kernelTest("sample reads 16-bit logits of a whole vocabulary", (backend) => {
  const next = generator(31);
  const cols = 151_936;
  for (const dtype of [bfloat16, float16, float32]) {
    const logits = Float32Array.from({ length: cols }, () => next() ** 4 * 24 - 12);
    const input = hostView(dtype, new Uint8Array(cols * dtype.bytes));
    logits.forEach((v, i) => setHostValue(dtype, input, i, v));
    const held = logits.map((_, i) => Number(hostValue(dtype, input, i)));
    for (const s of drawSome(backend.name, `samplings of ${dtype.name}`, SAMPLINGS.slice(0, 3), 1)) {
      const uniform = Math.fround(next());
      const [token] = sample(backend, dtype, held, cols, s, [uniform]);
      assertDraw(held, s, uniform, token, `${JSON.stringify(s)} of ${dtype.name} on ${backend.name}`);
    }
    assertEquals(sample(backend, dtype, held, cols, { temperature: 0 }), [
      held.indexOf(held.reduce((a, b) => Math.max(a, b))),
    ]);
  }
});
