/**
 * Discrete GPUs without measurements: an H200's record, with all that fills the device scaled to its compute units.
 *
 * Times stay those of an H200: kernels are compared with each other, so only their ratios count.
 *
 * @module
 */

import { H200 } from "./h200.ts";
import type { Tuning } from "./tuning.ts";

/** The record of a GPU with so many compute units; 0 is unknown, and counts as an H200's. */
export function tuneDiscrete(computeUnits: number): Tuning {
  const units = computeUnits || H200.computeUnits;
  const scale = (value: number): number => Math.max(1, Math.round(value * units / H200.computeUnits));
  const { quantizedProducts, denseProducts, tiles, fewRows, attention, pagedAttention, reductions, decode } = H200;
  return {
    ...H200,
    name: `discrete GPU of ${computeUnits || "unknown"} compute units`,
    computeUnits: units,
    quantizedProducts: {
      ...quantizedProducts,
      targetWorkgroups: scale(quantizedProducts.targetWorkgroups),
      partsBytesPerUs: scale(quantizedProducts.partsBytesPerUs),
    },
    denseProducts: {
      ...denseProducts,
      usPerPartNumber: denseProducts.usPerPartNumber * H200.computeUnits / units,
    },
    tiles: { targetWorkgroups: scale(tiles.targetWorkgroups) },
    fewRows: { ...fewRows, fewColumns: scale(fewRows.fewColumns), someColumns: scale(fewRows.someColumns) },
    attention: { ...attention, targetWorkgroups: scale(attention.targetWorkgroups) },
    pagedAttention: {
      ...pagedAttention,
      targetWorkgroups: scale(pagedAttention.targetWorkgroups),
      minWorkgroups: scale(pagedAttention.minWorkgroups),
      onMatrices: {
        ...pagedAttention.onMatrices,
        minKeyHeads: scale(pagedAttention.onMatrices.minKeyHeads),
      },
    },
    reductions: {
      targetWorkgroups: scale(reductions.targetWorkgroups),
      manyRows: scale(reductions.manyRows),
    },
    decode: {
      ...decode,
      headWorkgroups: { short: scale(decode.headWorkgroups.short), long: scale(decode.headWorkgroups.long) },
      batchHeadWorkgroups: scale(decode.batchHeadWorkgroups),
    },
  };
}
