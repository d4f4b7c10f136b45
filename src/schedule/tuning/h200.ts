/**
 * An NVIDIA H200: 132 multiprocessors, 4.8 TB/s. The only GPU that all of this was measured on; docs/performance-gpu.md has the figures.
 *
 * @module
 */

import type { Tuning } from "./tuning.ts";

/** The record of an H200. */
export const H200: Tuning = {
  name: "NVIDIA H200",
  computeUnits: 132,
  quantizedProducts: {
    minRows: 17,
    // A step of Qwen3.5-4B of 8 sequences took 7.5 ms there and 8.7 ms in kernels for few rows, of 16 sequences 9.8 and 14.6.
    minHalfRows: 5,
    // Eight rows of 4,096 16-bit floats times 151,936 columns take 113 us, where kernels for few rows, which dequantize for each, take 582.
    largeMatrix: { minRows: 4, minWeights: 2 ** 27 },
    minMultiplications: 2 ** 24,
    minDequantizedRows: 128,
    targetWorkgroups: 256,
    partsBytesPerUs: 3.5e6,
    // Fitted to 1,500 measurements of layers of 0.6B to 8B, with 32 to 2,048 rows and 1 to 8 splits. The choices take 0.3 % longer than the
    // best of all on average, 7 % at most.
    costs: {
      coopmat_matmul_32: { residentWorkgroups: 4, usPerKStep: 0.88, usFixed: 2 },
      coopmat_matmul_64: { residentWorkgroups: 1, usPerKStep: 0.35, usFixed: 3 },
      coopmat_matmul_64x256: { residentWorkgroups: 2, usPerKStep: 1.25, usFixed: 7 },
      coopmat_matmul_32_8bit: { residentWorkgroups: 4, usPerKStep: 1.08, usFixed: 1 },
      coopmat_matmul_64_8bit: { residentWorkgroups: 3, usPerKStep: 1.28, usFixed: 2 },
      coopmat_gated_32: { residentWorkgroups: 2, usPerKStep: 0.41, usFixed: 1.5 },
      coopmat_gated_64: { residentWorkgroups: 3, usPerKStep: 0.98, usFixed: 2.5 },
      coopmat_gated_64x192: { residentWorkgroups: 1, usPerKStep: 0.51, usFixed: 3.5 },
      coopmat_gated_64x256: { residentWorkgroups: 2, usPerKStep: 1.21, usFixed: 4.5 },
      coopmat_gated_32_8bit: { residentWorkgroups: 4, usPerKStep: 0.99, usFixed: 5 },
      coopmat_gated_64_8bit: { residentWorkgroups: 5, usPerKStep: 1.71, usFixed: 3.5 },
      coopmat_gated_64x192_8bit: { residentWorkgroups: 1, usPerKStep: 0.58, usFixed: 3.5 },
      coopmat_qkv_16: { residentWorkgroups: 5, usPerKStep: 0.65, usFixed: 6.5 },
      coopmat_qkv_32: { residentWorkgroups: 2, usPerKStep: 0.38, usFixed: 4 },
      coopmat_qkv_64: { residentWorkgroups: 3, usPerKStep: 1.01, usFixed: 4.5 },
      coopmat_qkv_16_8bit: { residentWorkgroups: 3, usPerKStep: 0.36, usFixed: 8 },
      coopmat_qkv_32_8bit: { residentWorkgroups: 2, usPerKStep: 0.48, usFixed: 3 },
      coopmat_qkv_64_8bit: { residentWorkgroups: 2, usPerKStep: 0.8, usFixed: 3 },
    },
  },
  denseProducts: {
    minMultiplications: 2 ** 22,
    residentWorkgroups: 2,
    usPerDepth: 0.03,
    usPerPartNumber: 8 / 3e6,
    usOfAdding: 3,
  },
  tiles: { targetWorkgroups: 384 },
  fewRows: { maxRows: 32, fewColumns: 2048, someColumns: 16384 },
  // A step of Qwen3-30B-A3B takes 4.6 ms of 4 sequences and 7.6 of 8; with sorted choices 5.0 and 6.3. With 8
  // experts a row choices are sorted from 8 rows on. The second number counts only with 16 and more a row.
  experts: { minSorted: 64, maxUnsortedRows: 4 },
  attention: {
    minQueries: 16,
    // The query heads of a key head share one reading of the keys.
    grouped: { minRows: 2, minKeyHeads: 64 },
    rows: [
      // Of 256 features 32 rows took 170 us where 64 took 78: 1,024 queries of 16 heads.
      { maxQueries: 640, maxKeys: 1024, maxFeatures: 128, rows: 32 },
      { maxQueries: 1152, maxKeys: Infinity, maxFeatures: Infinity, rows: 64 },
      { maxQueries: Infinity, maxKeys: Infinity, maxFeatures: Infinity, rows: 128 },
    ],
    targetWorkgroups: 132,
    minKeys: 384,
  },
  pagedAttention: {
    targetWorkgroups: 4224,
    minWorkgroups: 1024,
    minPositions: 256,
    // 64 sequences of 192 positions, with the merge: four query heads take 29 us on matrix units and 40 without, two heads 28 and 26.
    onMatrices: { minHeads: 4, minKeyHeads: 128 },
  },
  attentionGradients: {
    // In a step of a 100M-parameter transformer (1,024 tokens) they and what lies between them took 58 ms. The kernels, which multiply
    // without matrix units, took 104.
    onMatrices: { minOfHead: 64 * 64, maxOfAll: 2 ** 29 },
    inPrimitives: undefined,
  },
  reductions: { targetWorkgroups: 2048, manyRows: 512 },
  decode: {
    gemvWorkgroups: 128,
    gemvMinHidden: { persistent: 2048, barriers: 2560 },
    // Beyond it a phase merges: 20 to 25 us a token at a few positions, less from some hundred on.
    gemvFewPositions: 256,
    maxPrefetchBytes: 2 ** 17,
    headWorkgroups: { short: 528, long: 264 },
    // The more weights there are, the sooner it pays to read them once.
    batchMinSequences: [
      { minHidden: 2048, persistent: 2, barriers: 2 },
      { minHidden: 0, persistent: 3, barriers: 6 },
    ],
    batchWorkgroups: 128,
    batchHeadWorkgroups: 264,
    maxChunkCapacity: 4096,
    minProductFeatures: 7680, // derived from the bytes, not measured
  },
};
