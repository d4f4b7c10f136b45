/**
 * Codes in the order in which the lanes of the matrix kernels of several sequences read them (shaders/batch_norm.glsl): for each
 * block of 16 columns and each warp 32 lanes with 16 bytes, two words of each of two chunks.
 *
 * @module
 */

import { uint32 } from "../graph/dtype.ts";
import type { DecoderSizes } from "./decoder.ts";
import type { Lowering, Value } from "./lowering.ts";
import type { Layout } from "./prepared.ts";

const WARPS = 16;
const BLOCK_WORDS = WARPS * 32 * 4;

/** A walk over rows: how many, words from one to the next, and words between their places. */
type Walk = readonly [count: number, from: number, to: number];

/** Copies rows of codes, walked from `from` on, to their places from word `to` on. */
function place(l: Lowering, codes: Value, from: number, out: Value, to: number, walks: readonly Walk[]): void {
  const chunks = codes.shape[codes.shape.length - 1] / 4;
  for (let slot = 0; slot * WARPS < chunks; slot++) {
    const all: readonly Walk[] = [...walks, [Math.min(WARPS, chunks - slot * WARPS), 4, 128], [4, 1, 4]];
    const shape = all.map(([count]) => count);
    const source = {
      ...codes,
      shape,
      strides: all.map(([, step]) => step),
      offset: codes.offset + from + slot * 4 * WARPS,
    };
    const target = { ...out, shape, strides: all.map(([, , step]) => step), offset: out.offset + to + slot * 2 };
    l.copy(source, target, { disjoint: true });
  }
}

/** [workgroup][block of four tasks]; a task's rows are those of decode_qkv.glsl. */
export function qkvFragments({ hidden, heads, kvHeads, headDim }: DecoderSizes): Layout {
  const per = heads / kvHeads;
  const slices = headDim / 8;
  const row = hidden / 8;
  const workgroup = Math.ceil((per + 2) / 2) * BLOCK_WORDS;
  return {
    key: `batch qkv ${heads} ${kvHeads}`,
    results: [{ shape: [kvHeads * slices * workgroup], dtype: uint32 }],
    emit(l, [q, k, v], [out]) {
      for (let type = 0; type < per + 2; type++) {
        const to = (type >> 1) * BLOCK_WORDS + (type & 1) * 64;
        const turned: readonly Walk[] = [[2, 2 * row, 32], [2, headDim / 2 * row, 16], [2, row, 1]];
        const straight: readonly Walk[] = [[2, 4 * row, 32], [2, row, 16], [2, 2 * row, 1]];
        const [source, count, first] = type < per ? [q, per, type] : type === per ? [k, 1, 0] : [v, 1, 0];
        place(l, source, first * headDim * row, out, to, [
          [kvHeads, count * headDim * row, slices * workgroup],
          [slices, (type > per ? 8 : 4) * row, workgroup],
          ...(type > per ? straight : turned),
        ]);
      }
    },
  };
}

/** [block of 8 features]; a task is gate and up of two features. */
export function gateUpFragments({ hidden, intermediate }: DecoderSizes): Layout {
  const row = hidden / 8;
  return {
    key: "batch gate up",
    results: [{ shape: [intermediate / 8 * BLOCK_WORDS], dtype: uint32 }],
    emit(l, sources, [out]) {
      sources.forEach((codes, which) =>
        place(l, codes, 0, out, 16 * which, [[intermediate / 8, 8 * row, BLOCK_WORDS], [4, 2 * row, 32], [2, row, 1]])
      );
    },
  };
}

/** [block of 16 rows]; a task is four neighbouring rows. */
export function headFragments(vocabulary: number, hidden: number): Layout {
  const row = hidden / 8;
  const whole = Math.floor(vocabulary / 16);
  return {
    key: "batch head",
    results: [{ shape: [Math.ceil(vocabulary / 16) * BLOCK_WORDS], dtype: uint32 }],
    emit(l, [codes], [out]) {
      place(l, codes, 0, out, 0, [[whole, 16 * row, BLOCK_WORDS], [4, 4 * row, 32], [2, row, 16], [2, 2 * row, 1]]);
      for (let n = 16 * whole; n < vocabulary; n++) {
        const at = (n % 16 >> 2) * 32 + (n & 1) * 16 + (n >> 1 & 1);
        place(l, codes, n * row, out, whole * BLOCK_WORDS + at, []);
      }
    },
  };
}
