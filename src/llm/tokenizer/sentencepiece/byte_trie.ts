/**
 * A trie of byte strings, whose edges are a hash table in typed arrays: finds all tokens that begin at a place.
 *
 * @module
 */

/** Node that every search begins at. */
export const ROOT = 0;

/** Byte strings with a number each. */
export class ByteTrie {
  /** Number of the string that a node spells; -1 if there is none. */
  readonly #values: Int32Array;
  readonly #from: Int32Array; // -1 where free
  readonly #byte: Uint8Array;
  readonly #to: Int32Array;
  #nodes = 1;

  /** For strings of `bytes` bytes in all. */
  constructor(bytes: number) {
    const size = 2 ** Math.ceil(Math.log2(2 * bytes + 2));
    this.#values = new Int32Array(bytes + 1).fill(-1);
    this.#from = new Int32Array(size).fill(-1);
    this.#byte = new Uint8Array(size);
    this.#to = new Int32Array(size);
  }

  /** Adds a string that is not empty; of equal ones the last counts. */
  add(text: Uint8Array, value: number): void {
    let node = ROOT;
    for (const byte of text) {
      const edge = this.#edge(node, byte);
      if (this.#from[edge] < 0) {
        this.#from[edge] = node;
        this.#byte[edge] = byte;
        this.#to[edge] = this.#nodes++;
      }
      node = this.#to[edge];
    }
    this.#values[node] = value;
  }

  /** The node after a byte; -1 if no string goes on like this. */
  next(node: number, byte: number): number {
    const edge = this.#edge(node, byte);
    return this.#from[edge] < 0 ? -1 : this.#to[edge];
  }

  /** Number of the string that ends at a node; -1 if none does. */
  valueAt(node: number): number {
    return this.#values[node];
  }

  /** Where an edge is or belongs. */
  #edge(node: number, byte: number): number {
    const mask = this.#from.length - 1;
    let edge = (Math.imul(node, 0x9e3779b1) ^ Math.imul(byte + 1, 0x85ebca6b)) >>> 7 & mask;
    while (this.#from[edge] >= 0 && (this.#from[edge] !== node || this.#byte[edge] !== byte)) edge = (edge + 1) & mask;
    return edge;
  }
}
