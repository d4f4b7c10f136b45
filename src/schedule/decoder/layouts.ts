/**
 * The layouts in which the decode kernels read scales and biases, and the matrices of the split_k kernels.
 *
 * @module
 */

import { type Dtype, uint16, uint32, uint8 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import type { CodeFormat } from "../../graph/quantization.ts";
import { contiguousStrides, sizeOf } from "../../graph/shape.ts";
import type { DecoderSizes } from "./spec.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import type { Layout } from "../plan/weight_layouts.ts";

/** The 16-bit half of packed words that holds scales (0) or biases (1). */
function half(words: Value, which: 0 | 1): Value {
  return { ...words, dtype: uint16, offset: 2 * words.offset + which, strides: words.strides.map((s) => 2 * s) };
}

/** The two arrays that fill the words of a matrix: scales and biases, or, of symmetric codes, scales twice. */
type WordSources = readonly [Value, Value];

/**
 * Copies scales and biases, walked by `from` strides over `shape`, into words walked by `to` strides. Symmetric codes have two scales for
 * each word instead, which are neighbours.
 */
function pack(
  l: Lowering,
  [first, second]: WordSources,
  words: Value,
  shape: readonly number[],
  [fromOffset, from]: readonly [number, readonly number[]],
  [toOffset, to]: readonly [number, readonly number[]],
): void {
  const target = { ...words, shape, strides: to, offset: words.offset + toOffset };
  const each = first.slot === second.slot && first.offset === second.offset ? 2 : 1;
  [first, second].forEach((source, i) => {
    const offset = source.offset + each * fromOffset + (each === 2 ? i : 0);
    const view = { ...source, dtype: uint16, shape, strides: from.map((stride) => each * stride), offset };
    l.copy(view, half(target, i as 0 | 1), { disjoint: true });
  });
}

function words(...shape: number[]): { readonly shape: readonly number[]; readonly dtype: Dtype } {
  return { shape, dtype: uint32 };
}

/** [workgroup][task][group][row]: see decode/qkv.comp. Of each head the first `ropeDims` features are rotated. */
export function qkvScalesBiases(
  { hidden, heads, kvHeads, headDim }: DecoderSizes,
  ropeDims: number,
  groupSize: number,
): Layout {
  const per = heads / kvHeads;
  const groups = hidden / groupSize;
  const slices = headDim / 8;
  const task = 4 * groups;
  const workgroup = 2 * (per + 2) * task;
  const head = headDim * groups;
  // Slices of rotated features, then those of the others: see shaders/include/rope_place.glsl.
  const rotatedSlices = ropeDims / 8;
  const sliceRuns = [
    { first: 0, count: rotatedSlices, at: 0, partner: ropeDims / 2 },
    { first: rotatedSlices, count: slices - rotatedSlices, at: ropeDims, partner: (headDim - ropeDims) / 2 },
  ].filter(({ count }) => count > 0);
  return {
    key: `decode qkv ${heads} ${kvHeads} ${ropeDims}`,
    results: [words(kvHeads * slices, 2 * (per + 2), groups, 4)],
    emit(l, [qs, qb, ks, kb, vs, vb], [out]) {
      // (half, head of its kind, key/value head, slice, place in the half, partner, group)
      const rotated = (types: number, type: number, from: WordSources): void => {
        for (const { first, count, at, partner } of sliceRuns) {
          pack(l, from, out, [2, types, kvHeads, count, 2, 2, groups], [
            at * groups,
            [2 * groups, head, types * head, 4 * groups, groups, partner * groups, 1],
          ], [type * 2 * task + first * workgroup, [task, 2 * task, slices * workgroup, workgroup, 2, 1, 4]]);
        }
      };
      rotated(per, 0, [qs, qb]);
      rotated(1, per, [ks, kb]);
      pack(l, [vs, vb], out, [2, kvHeads, slices, 4, groups], [0, [4 * groups, head, 8 * groups, groups, 1]], [
        (per + 1) * 2 * task,
        [task, slices * workgroup, workgroup, 1, 4],
      ]);
    },
  };
}

/** [row][group][gate, up]. */
export function gateUpScalesBiases({ hidden, intermediate }: DecoderSizes, groupSize: number): Layout {
  const groups = hidden / groupSize;
  return {
    key: "decode gate up",
    results: [words(intermediate, groups, 2)],
    emit(l, [gs, gb, us, ub], [out]) {
      const shape = [intermediate, groups];
      pack(l, [gs, gb], out, shape, [0, [groups, 1]], [0, [2 * groups, 2]]);
      pack(l, [us, ub], out, shape, [0, [groups, 1]], [1, [2 * groups, 2]]);
    },
  };
}

/**
 * Codes [word of columns][row], scales and biases [group][row]; 128 rows as [row % 32][row / 32 % 4], since a thread takes four that
 * are 32 apart.
 */
export function transposed(rows: number, columns: number, { groupSize, bits }: CodeFormat): Layout {
  const groups = columns / groupSize;
  const per = columns * bits / 32;
  return {
    key: "decode transposed",
    results: [words(per, rows), words(groups, rows)],
    emit(l, [codes, scales, biases], [out, scalesBiases]) {
      const walk = (outer: number, inner: number): number[] => [outer, 128 * inner, inner, 32 * inner];
      const order = [rows, 128, 4, 1];
      const shape = [rows / 128, 32, 4];
      l.copy({ ...codes, shape: [per, ...shape], strides: walk(1, per) }, {
        ...out,
        shape: [per, ...shape],
        strides: order,
      });
      pack(l, [scales, biases], scalesBiases, [groups, ...shape], [0, walk(1, groups)], [0, order]);
    },
  };
}

/** [row / 4][group][row % 4]. */
export function headScalesBiases(rows: number, hidden: number, groupSize: number): Layout {
  const groups = hidden / groupSize;
  const fours = Math.floor(rows / 4);
  return {
    key: "decode head",
    results: [words(Math.ceil(rows / 4), groups, 4)],
    emit(l, [scales, biases], [out]) {
      const part = (count: number, wide: number, at: number): void =>
        pack(l, [scales, biases], out, [count, wide, groups], [at * 4 * groups, [4 * groups, groups, 1]], [
          at * 4 * groups,
          [4 * groups, 1, 4],
        ]);
      part(fours, 4, 0);
      if (rows % 4 > 0) part(1, rows % 4, fours);
    },
  };
}

/** [row / run][group][row % run] of the rows of all `matrices`, whose numbers are multiples of the run: see decode_gemv/product.glsl. */
export function runScalesBiases(matrices: readonly number[], columns: number, run: number, groupSize: number): Layout {
  const groups = columns / groupSize;
  return {
    key: `decode runs ${run}`,
    results: [words(matrices.reduce((sum, rows) => sum + rows, 0) / run, groups, run)],
    emit(l, sources, [out]) {
      let first = 0;
      matrices.forEach((rows, i) => {
        pack(l, [sources[2 * i], sources[2 * i + 1]], out, [rows / run, run, groups], [0, [run * groups, groups, 1]], [
          first * groups,
          [run * groups, 1, run],
        ]);
        first += rows;
      });
    },
  };
}

/** Weights of a row whose scales are bytes of a word or a part of one. */
const BYTE_WORD = 32;

/**
 * [row / run][32 weights][row % run] of scales that are bytes, for the rows of all `matrices`. The bytes of a run are padded to whole words,
 * and so are the rows of a matrix to whole runs: see decode_gemv/product.glsl.
 */
export function runScaleBytes(matrices: readonly number[], columns: number, run: number, groupSize: number): Layout {
  const groups = columns / BYTE_WORD;
  const each = BYTE_WORD / groupSize;
  const words = Math.ceil(run * each / 4);
  const runs = matrices.reduce((sum, rows) => sum + Math.ceil(rows / run), 0);
  return {
    key: `decode scale bytes ${run}`,
    results: [{ shape: [runs, groups, words], dtype: uint32 }],
    emit(l, sources, [out]) {
      const width = 4 * words;
      const [from, to] = [[run * groups * each, groups * each, each, 1], [width * groups, each, width, 1]];
      let at = 0;
      const copy = (source: Value, first: number, count: number, rows: number): void => {
        const shape = [count, rows, groups, each];
        const offset = 4 * out.offset + (at + first) * width * groups;
        l.copy(
          { ...source, shape, strides: from, offset: source.offset + first * from[0] },
          { ...out, dtype: uint8, shape, strides: to, offset },
          { disjoint: offset > 4 * out.offset },
        );
      };
      matrices.forEach((rows, i) => {
        const whole = Math.floor(rows / run);
        if (whole > 0) copy(sources[i], 0, whole, run);
        if (rows % run > 0) copy(sources[i], whole, 1, rows % run);
        at += Math.ceil(rows / run);
      });
    },
  };
}

/** Numbers of which norm weights and biases begin at multiples: kernels read as many at once. */
const NORM_UNIT = 4;

/** The numbers that an array takes among norm weights and biases. */
export function normSize({ shape }: Node): number {
  return Math.ceil(sizeOf(shape) / NORM_UNIT) * NORM_UNIT;
}

/** All norm weights and biases in one array: they are needed first, and single ones lie on memory pages that nothing else keeps warm. */
export function normWeights(nodes: readonly Node[]): Layout {
  const sizes = nodes.map(normSize);
  return {
    key: "decode norms",
    results: [{ shape: [sizes.reduce((sum, n) => sum + n, 0)], dtype: nodes[0].dtype }],
    emit(l, sources, [out]) {
      let offset = out.offset;
      sources.forEach((source, i) => {
        const { shape } = source;
        l.copy(source, { ...out, shape, strides: contiguousStrides(shape), offset }, { disjoint: i > 0 });
        offset += sizes[i];
      });
    },
  };
}
