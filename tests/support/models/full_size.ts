/**
 * The synthetic Qwen3-0.6B and its reference logits: shared by the test and by what writes the golden file.
 *
 * @module
 */

/** Tokens of the prompt: enough for the kernels of long prompts. */
export const PROMPT = 160;
/** Tokens that follow one by one. */
export const STEPS = 8;
const VOCABULARY = 151_936;
/** Of each row of logits, one in this many is kept, a prime. */
const STRIDE = 293;
const KEPT = Math.floor(VOCABULARY / STRIDE);

/** The tokens, all over the vocabulary. */
export const IDS: readonly number[] = Array.from({ length: PROMPT + STEPS }, (_, i) => (i * 7919 + 13) % VOCABULARY);

/** The part of logits in the golden file: (positions, vocabulary) that begin at position `first`. */
export function keptLogits(logits: Float32Array, first: number): Float32Array {
  const rows = logits.length / VOCABULARY;
  return Float32Array.from({ length: rows * KEPT }, (_, at) => {
    const row = Math.floor(at / KEPT);
    return logits[row * VOCABULARY + (at % KEPT) * STRIDE + (first + row) % STRIDE];
  });
}

/** The reference: mlx-lm with all parameters in float32, rounded to float16. */
export function fullSizeGolden(): Float16Array {
  return new Float16Array(Deno.readFileSync(new URL("../../golden/models/full-size.f16", import.meta.url)).buffer);
}
