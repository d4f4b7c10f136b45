/**
 * How a matrix is quantized, by the tensors that are stored of it.
 *
 * @module
 */

import { type Dtype, uint8 } from "../../graph/dtype.ts";
import { CODE_MODES, type CodeMode, type ModeRow } from "../../graph/quantization.ts";
import type { Quantization, QuantizationConfig } from "./model.ts";

/** A tensor's shape and dtype, from its header. */
interface Stored {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
}

/**
 * The format of a matrix's stored codes and scales, found as mlx-lm does. Bits and group size follow from the shapes and the number
 * of columns, the mode from the dtype of the scales. Undefined if none of the modes has such a format.
 */
export function formatOfStored<Mode extends CodeMode = CodeMode>(
  columns: number,
  codes: Stored,
  scales: Stored,
  known: Readonly<Partial<Record<Mode, ModeRow>>> = CODE_MODES,
): Quantization<Mode> | undefined {
  const [words, groups] = [codes, scales].map(({ shape }) => shape.at(-1) ?? 0);
  const [bits, groupSize] = [words * 32 / columns, columns / groups];
  const modes = Object.keys(known) as Mode[];
  const mode = modes.find((name) => {
    const row = known[name]!;
    return row.floatScales === (scales.dtype !== uint8) && row.bits.includes(bits) &&
      row.groupSizes.includes(groupSize);
  });
  return mode && { groupSize, bits, ...(mode !== "affine" && { mode }) };
}

/**
 * How a matrix is quantized; undefined if it is dense. An entry of config.json for its name comes first, then the stored shapes. If
 * the shapes do not decide, it is quantized as the whole model. config.json may have another `name` for it than its path here.
 */
export function quantizationOf(
  path: string,
  columns: number,
  quantization: QuantizationConfig,
  stored: (name: string) => Stored | undefined,
  name: string = path,
): Quantization<CodeMode> | undefined {
  if (quantization.overrides.has(name)) return quantization.overrides.get(name);
  const [codes, scales] = [stored(`${path}.weight`), stored(`${path}.scales`)];
  if (scales === undefined) return undefined;
  return (codes && formatOfStored(columns, codes, scales)) ?? quantization.base;
}
