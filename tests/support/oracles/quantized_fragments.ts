/** Quantized weights for tests of products: random ones, and their fragment order by the kernel that makes it. */

import type { Backend } from "../../../src/backend/backend.ts";
import { type Dtype, float16 } from "../../../src/graph/dtype.ts";
import { runKernel } from "../devices/harness.ts";
import { pack, unpack } from "./kernel_values.ts";
import { generator } from "./oracle.ts";

const next = generator(11);
const THREADS = 64;

/**
 * The answer of one driver. For B, lane l holds rows 2 (l % 4) + {0, 1, 8, 9} of columns l / 4 and l / 4 + 8. For A and
 * sums it is the reverse.
 */
export function knownAnswer(): Uint32Array {
  const words = Uint32Array.from({ length: 4 + 3 * 256 }, (_, i) => i === 0 ? 32 : 8);
  for (let lane = 0; lane < 32; lane++) {
    const [quad, along] = [lane >> 2, 2 * (lane % 4)];
    for (let i = 0; i < 8; i++) {
      const [short, long] = [quad + (i & 4 ? 8 : 0), along + (i & 1) + (i & 2 ? 8 : 0)];
      const [sum, b] = [short * 16 + long, long * 16 + short];
      [sum, b, sum].forEach((at, matrix) => words[4 + matrix * 256 + lane * 8 + i] = at);
    }
  }
  return words;
}

export interface Weights {
  readonly n: number;
  readonly k: number;
  readonly bits: number;
  readonly group: number;
  readonly codes: Uint8Array;
  readonly words: Uint32Array;
  readonly scales: number[];
  readonly biases: number[];
}

export function quantized(n: number, k: number, bits: number, group: number): Weights {
  const codes = Uint8Array.from({ length: n * k }, () => Math.floor(next() * (1 << bits)));
  const each = 32 / bits;
  const words = new Uint32Array(n * k / each);
  codes.forEach((code, i) => words[Math.floor(i / each)] |= code << (i % each * bits));
  const scale = (): number => (0.5 + next()) / (1 << bits);
  const scales = unpack(float16, pack(float16, Array.from({ length: n * k / group }, scale)));
  const biases = unpack(float16, pack(float16, scales.map((s) => -s * ((1 << bits) / 2 + next() - 0.5))));
  return { n, k, bits, group, codes, words, scales, biases };
}

export interface Fragments {
  readonly codes: Uint32Array;
  readonly scales_biases: Uint32Array;
}

/** Weights in fragments with a scale and a bias for each `group`; symmetric codes have no biases of their own. */
export function repack(
  backend: Backend,
  w: Weights,
  map: Uint32Array,
  dtype: Dtype,
  group: number = w.group,
  isSymmetric: boolean = false,
): Fragments {
  const steps = Math.ceil(w.k / 64);
  const columns = Math.ceil(w.n / 128) * 128;
  const codes = new Uint32Array(columns * steps * 64 * w.bits / 32);
  const scales_biases = new Uint32Array(columns / 16 * steps * 64 / group * 16);
  runKernel(backend, "coopmat_repack", {
    spec: { THREADS, BITS: w.bits, GROUP: group, DTYPE_SCALES: dtype.code, SOURCE_GROUP: w.group },
    push: { n: w.n, k: w.k, blocks: columns / 16, first: 0, step: 1 },
    buffers: {
      w: w.words,
      scales: pack(dtype, w.scales),
      ...(!isSymmetric && { biases: pack(dtype, w.biases) }),
      map,
      codes,
      scales_biases,
    },
    grid: [11, Math.ceil(columns * steps * 8 / THREADS / 11), 1],
  });
  return { codes, scales_biases };
}

/** Gate and up (n, k) in turns of 16 columns. */
export function interleave(backend: Backend, gate: Weights, up: Weights, map: Uint32Array): Fragments {
  const { n, k, bits, group } = gate;
  const steps = Math.ceil(k / 64);
  const columns = Math.ceil(2 * n / 128) * 128;
  const codes = new Uint32Array(columns * steps * 64 * bits / 32);
  const scales_biases = new Uint32Array(columns / 16 * steps * 64 / group * 16);
  [gate, up].forEach((w, first) =>
    runKernel(backend, "coopmat_repack", {
      spec: { THREADS, BITS: bits, GROUP: group, DTYPE_SCALES: float16.code, SOURCE_GROUP: group },
      push: { n, k, blocks: n / 16, first, step: 2 },
      buffers: {
        w: w.words,
        scales: pack(float16, w.scales),
        biases: pack(float16, w.biases),
        map,
        codes,
        scales_biases,
      },
      items: n * steps * 8,
    })
  );
  return { codes, scales_biases };
}
