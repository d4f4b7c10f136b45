/**
 * The types of matrices in a GGUF file that is written.
 *
 * @module
 */

/** Types that matrices are written as. */
export const GGUF_OUTPUTS = ["F32", "F16", "BF16", "Q8_0", "Q4_0"] as const;

/** The name of one. */
export type GgufOutput = typeof GGUF_OUTPUTS[number];
