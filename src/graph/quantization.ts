/**
 * Formats of quantized matrices: what a mode allows, and what it takes where nothing is said.
 *
 * @module
 */

/** How codes and scales of a group are read: as integers with a scale and a bias, or as small floats with a one-byte scale. */
export type QuantizationMode = "affine" | "mxfp4" | "mxfp8" | "nvfp4";

/** Width of codes and size of the groups that share a scale. */
export interface CodeFormat {
  /** Bits of a weight. */
  readonly bits: number;
  /** Neighbouring weights of a row that share a scale. */
  readonly groupSize: number;
}

/** A width and a group size in the sense of a mode. */
export interface QuantizedFormat extends CodeFormat {
  readonly mode: QuantizationMode;
}

/** The format of dense matrices of 16 bits beside those of quantized ones; there is nothing that a group shares. */
export const DENSE = { bits: 16, groupSize: 32 } as const satisfies CodeFormat;

/** Formats that a mode allows. */
export interface ModeRow {
  readonly bits: readonly number[];
  readonly groupSizes: readonly number[];
  /** Where nothing is said. */
  readonly defaults: CodeFormat;
}

/** The modes. */
export const QUANTIZATION_MODES: Readonly<Record<QuantizationMode, ModeRow>> = {
  affine: {
    bits: [1, 2, 3, 4, 5, 6, 8],
    groupSizes: [32, 64, 128],
    defaults: { bits: 4, groupSize: 64 },
  },
  mxfp4: { bits: [4], groupSizes: [32], defaults: { bits: 4, groupSize: 32 } },
  mxfp8: { bits: [8], groupSizes: [32], defaults: { bits: 8, groupSize: 32 } },
  nvfp4: { bits: [4], groupSizes: [16], defaults: { bits: 4, groupSize: 16 } },
};
