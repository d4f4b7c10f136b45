/**
 * Formats of quantized matrices: what a mode allows, and what it takes where nothing is said.
 *
 * @module
 */

/** How codes and scales of a group are read: as integers with a scale and a bias, or as small floats with a one-byte scale. */
export type QuantizationMode = "affine" | "mxfp4" | "mxfp8" | "nvfp4";

/**
 * A mode of codes that exist: those above, and "symmetric" of GGUF files. Its codes of b bits are integers 2^(b - 1) too large, with a
 * scale of floats and no bias. MLX has no such mode, and nothing quantizes to it.
 */
export type CodeMode = QuantizationMode | "symmetric";

/** Width of codes and size of the groups that share a scale. */
export interface CodeFormat {
  /** Bits of a weight. */
  readonly bits: number;
  /** Neighbouring weights of a row that share a scale. */
  readonly groupSize: number;
}

/** Modes of codes that are small floats, with scales of a byte. */
export type SmallFloatMode = Exclude<QuantizationMode, "affine">;

/** The format of a matrix: its numbers, integers with scales, or small floats, which have a mode. */
export interface MatrixFormat extends CodeFormat {
  readonly mode?: SmallFloatMode;
}

/** The mode of codes if they are small floats. */
export function smallFloatMode(mode: CodeMode): SmallFloatMode | undefined {
  return mode === "affine" || mode === "symmetric" ? undefined : mode;
}

/** A width and a group size in the sense of a mode. */
export interface QuantizedFormat<Mode extends CodeMode = CodeMode> extends CodeFormat {
  readonly mode: Mode;
}

/** The format of dense matrices of 16 bits beside those of quantized ones; there is nothing that a group shares. */
export const DENSE = { bits: 16, groupSize: 32 } as const satisfies CodeFormat;

/** Formats that a mode allows. */
export interface ModeRow {
  readonly bits: readonly number[];
  readonly groupSizes: readonly number[];
  /** Where nothing is said. */
  readonly defaults: CodeFormat;
  /** Whether scales are floats of any dtype; else they are codes of one byte. */
  readonly floatScales: boolean;
  /** Whether a group has a bias, of the dtype of the scale. */
  readonly biases: boolean;
}

const SMALL_FLOATS = { floatScales: false, biases: false } as const;

/** The modes that matrices are quantized in. */
export const QUANTIZATION_MODES: Readonly<Record<QuantizationMode, ModeRow>> = {
  affine: {
    bits: [1, 2, 3, 4, 5, 6, 8],
    groupSizes: [32, 64, 128],
    defaults: { bits: 4, groupSize: 64 },
    floatScales: true,
    biases: true,
  },
  mxfp4: { bits: [4], groupSizes: [32], defaults: { bits: 4, groupSize: 32 }, ...SMALL_FLOATS },
  mxfp8: { bits: [8], groupSizes: [32], defaults: { bits: 8, groupSize: 32 }, ...SMALL_FLOATS },
  nvfp4: { bits: [4], groupSizes: [16], defaults: { bits: 4, groupSize: 16 }, ...SMALL_FLOATS },
};

/** All modes of codes. */
export const CODE_MODES: Readonly<Record<CodeMode, ModeRow>> = {
  ...QUANTIZATION_MODES,
  symmetric: {
    bits: [3, 6],
    groupSizes: [16],
    defaults: { bits: 6, groupSize: 16 },
    floatScales: true,
    biases: false,
  },
};

/** Codes that fill whole words in any width: kernels read integers by so many. */
const RUN = 32;

/** Whether rows of so many columns can have codes of a mode: groups divide them, and integers fill whole runs. */
export function fitsRows({ mode, groupSize }: QuantizedFormat, columns: number): boolean {
  return columns % groupSize === 0 && (!CODE_MODES[mode].floatScales || columns % RUN === 0);
}

/** How many arrays hold a quantized matrix: codes, scales and, if there are any, biases. */
export function arraysOfMatrix({ mode }: QuantizedFormat): number {
  return CODE_MODES[mode].biases ? 3 : 2;
}
