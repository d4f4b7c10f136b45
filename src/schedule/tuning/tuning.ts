/**
 * Measurements of a device by which kernels are chosen: one record holds them all. The records of the known classes of devices lie beside this
 * file, and `choose.ts` says which device takes which.
 *
 * Bounds that follow from kernels (registers, shared memory, sizes that must divide) are no tuning: they stay with the kernels.
 *
 * @module
 */

import type { KernelName } from "../../backend/kernels.ts";

/** The cost of a kernel of quantized products. */
export interface Cost {
  /** Workgroups that a compute unit runs at once. */
  readonly residentWorkgroups: number;
  /** Microseconds that these take together for 64 numbers of the depth. */
  readonly usPerKStep: number;
  /** Microseconds that they take besides, whatever the depth. */
  readonly usFixed: number;
}

/** A number for each launch mode of a decoder: one dispatch for all layers ("persistent"), or a dispatch for each phase. */
export interface PerLaunchMode {
  readonly persistent: number;
  readonly barriers: number;
}

/** Scores of an attention between which its gradient takes another way. */
export interface ScoreRange {
  /** Fewest scores of a head: queries times keys. */
  readonly minOfHead: number;
  /** Most scores of all heads: products hold several matrices of them. */
  readonly maxOfAll: number;
}

/** Measurements of a class of devices. Sizes count elements unless a field says otherwise. */
export interface Tuning {
  /** The text for `VKMX_EXPLAIN=1`. */
  readonly name: string;
  /** Compute units (streaming multiprocessors of NVIDIA) that costs are spread over. */
  readonly computeUnits: number;

  /** Products of many rows with quantized weights. */
  readonly quantizedProducts: {
    /** Fewest rows of 32-bit floats that go to matrix units, and fewest of 16-bit ones. */
    readonly minRows: number;
    readonly minHalfRows: number;
    /** Fewest rows of 16-bit floats that go there with at least so many weights, such as those of a vocabulary. */
    readonly largeMatrix: { readonly minRows: number; readonly minWeights: number };
    /** Fewest multiplications that are worth another layout of the weights. */
    readonly minMultiplications: number;
    /** Fewest rows that are worth writing the weights as 16-bit floats first. */
    readonly minDequantizedRows: number;
    /** Workgroups that split-K aims at in kernels without a cost. */
    readonly targetWorkgroups: number;
    /** Bytes a microsecond at which the parts of split-K are written and read again. */
    readonly partsBytesPerUs: number;
    /** Kernels that have a cost compete by it; others serve in the order of their table. */
    readonly costs: Readonly<Partial<Record<KernelName, Cost>>>;
  };

  /** Products of two 16-bit matrices on matrix units, in tiles of 128 x 128. */
  readonly denseProducts: {
    /** Fewest multiplications that are worth a pipeline. */
    readonly minMultiplications: number;
    /** Workgroups that a compute unit runs at once. */
    readonly residentWorkgroups: number;
    /** Microseconds of a tile for each number of its depth. */
    readonly usPerDepth: number;
    /** Microseconds for each number of a part of split-K, written and added. */
    readonly usPerPartNumber: number;
    /** Microseconds of the dispatch that adds parts. */
    readonly usOfAdding: number;
  };

  /** Products without matrix units. */
  readonly tiles: {
    /** Workgroups that split-K aims at. */
    readonly targetWorkgroups: number;
  };

  /** Products of few rows, which read weights along the depth (GEMV). */
  readonly fewRows: {
    /** Most rows. */
    readonly maxRows: number;
    /** Most columns that count as few, and as some: the fewer there are, the more threads share one. */
    readonly fewColumns: number;
    readonly someColumns: number;
  };

  /** Experts of several rows. */
  readonly experts: {
    /** Fewest choices of all rows together that are sorted by expert. */
    readonly minSorted: number;
    /** Most rows whose choices are not sorted, as long as there are no more choices than experts. */
    readonly maxUnsortedRows: number;
  };

  /** Attention on matrix units. */
  readonly attention: {
    /** Fewest queries. */
    readonly minQueries: number;
    /** Of fewer queries in 16 bits: fewest rows (query, head of a group) of a key head, and fewest key heads of all sequences. */
    readonly grouped: { readonly minRows: number; readonly minKeyHeads: number };
    /** Rows of a workgroup, by the most queries, keys and features of a head that they are for: the first entry that fits. */
    readonly rows: readonly {
      readonly maxQueries: number;
      readonly maxKeys: number;
      readonly maxFeatures: number;
      readonly rows: number;
    }[];
    /** Workgroups that a split of the keys aims at. */
    readonly targetWorkgroups: number;
    /** Fewest keys of a part. */
    readonly minKeys: number;
  };

  /** Attention of one query of each sequence over pages. */
  readonly pagedAttention: {
    /** Workgroups that parts of the positions aim at: several waves, since sequences have unlike lengths. */
    readonly targetWorkgroups: number;
    /** With fewer workgroups the query heads of a key head are divided among several, which read its keys again. */
    readonly minWorkgroups: number;
    /** Fewest positions of a part. */
    readonly minPositions: number;
    /** Fewest query heads of a key head, and fewest key heads of all sequences, at which matrix units are faster. */
    readonly onMatrices: { readonly minHeads: number; readonly minKeyHeads: number };
  };

  /** Gradients of attention. */
  readonly attentionGradients: {
    /** Where they are faster as products on matrix units. */
    readonly onMatrices: ScoreRange;
    /** Where they are faster in primitives, without a causal mask; undefined: nowhere. */
    readonly inPrimitives: ScoreRange | undefined;
  };

  /** Reductions and scans. */
  readonly reductions: {
    /** Workgroups that a reduction of columns aims at. */
    readonly targetWorkgroups: number;
    /** Rows that keep the device busy with a workgroup each. */
    readonly manyRows: number;
  };

  /** Decoder steps. */
  readonly decode: {
    /** Workgroups of the row-parallel GEMV kernels, a power of two, at most 128. In one dispatch all of them must run at once. */
    readonly gemvWorkgroups: number;
    /**
     * Fewest hidden features at which those are faster than split-K with atomic accumulators in as many workgroups. Where split-K has half as
     * many, half of the features are enough.
     */
    readonly gemvMinHidden: PerLaunchMode;
    /** Largest cache, in positions, that two workgroups share for each key head; all workgroups share larger ones. */
    readonly gemvFewPositions: number;
    /** Most bytes of a layer for each workgroup that prefetch threads of split-K read ahead. */
    readonly maxPrefetchBytes: number;
    /** Most workgroups of the head: of rows of up to 1,024 features, and of longer ones. */
    readonly headWorkgroups: { readonly short: number; readonly long: number };
    /** Fewest sequences at which the batched kernels are faster than those of one: the first entry of so many hidden features. */
    readonly batchMinSequences: readonly ({ readonly minHidden: number } & PerLaunchMode)[];
    /** Workgroups of the batched layers, and most of their head. */
    readonly batchWorkgroups: number;
    readonly batchHeadWorkgroups: number;
    /** Largest cache, in positions, at which a chunk of tokens is faster in the batched kernels than as a prompt. */
    readonly maxChunkCapacity: number;
    /** Fewest hidden features of all sequences together at which a step is faster as the products of a prompt. */
    readonly minProductFeatures: number;
  };
}
