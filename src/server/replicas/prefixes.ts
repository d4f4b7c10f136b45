/**
 * Which prompts a replica has read: the hashes of their blocks, as its engine keeps the pages of their tokens.
 *
 * A prompt is a text here, since only replicas have tokenizers. Its hash at the end of a block is of all characters up to there. So a
 * prefix that two prompts share is a list of hashes that begins both lists.
 *
 * @module
 */

/** Characters of a block: about a page of tokens. */
export const BLOCK = 64;
/** Most blocks that are known of a replica: 8 million characters. */
const MAX_BLOCKS = 2 ** 17;

/** The hash at the end of each whole block of a text, of 53 bits. */
export function blocksOf(text: string): readonly number[] {
  const hashes: number[] = [];
  let [a, b] = [0x9e3779b9, 0x85ebca6b];
  const whole = text.length - text.length % BLOCK;
  for (let i = 0; i < whole; i++) {
    const code = text.charCodeAt(i);
    a = Math.imul(a ^ code, 0x01000193); // FNV-1a
    b = Math.imul(b ^ code, 0x5bd1e995) ^ (b >>> 15);
    if (i % BLOCK === BLOCK - 1) hashes.push((a >>> 0) * 2 ** 21 + (b >>> 11));
  }
  return hashes;
}

/** The prefixes that one replica is likely to have. */
export class Prefixes {
  /** In order of their last use. The blocks at the end of a prompt are before those at its beginning, so that they go first. */
  readonly #blocks = new Set<number>();
  readonly #limit: number;

  /** Knows so many blocks at most. */
  constructor(limit: number = MAX_BLOCKS) {
    this.#limit = limit;
  }

  /** How many blocks are known. */
  get size(): number {
    return this.#blocks.size;
  }

  /** How many blocks at the beginning of a prompt are known. */
  match(blocks: readonly number[]): number {
    const missing = blocks.findIndex((block) => !this.#blocks.has(block));
    return missing < 0 ? blocks.length : missing;
  }

  /** Adds a prompt. Blocks that were not used for longest go where there are too many. */
  add(blocks: readonly number[]): void {
    for (const block of blocks.slice(0, this.#limit).reverse()) {
      this.#blocks.delete(block);
      this.#blocks.add(block);
    }
    for (const oldest of this.#blocks) {
      if (this.#blocks.size <= this.#limit) break;
      this.#blocks.delete(oldest);
    }
  }

  /** Forgets all. */
  clear(): void {
    this.#blocks.clear();
  }
}
