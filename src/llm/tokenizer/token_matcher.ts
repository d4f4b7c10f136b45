/**
 * Finds the longest of many tokens at every place of a text: Aho and Corasick's automaton, over reversed tokens and text.
 *
 * Reading backwards, the automaton knows the longest token that begins at each place. So the work grows with the text alone, whatever
 * tokens a file has.
 *
 * @module
 */

/** An automaton for a list of tokens, told apart by their index. */
export class TokenMatcher {
  // Nodes of the trie of all tokens, read backwards; 0 is the root.
  readonly #fallback: Int32Array; // longest end of what a node spells that is a node too
  readonly #token: Int32Array; // longest token that ends in what a node spells; -1 if there is none
  // Edges, in a hash table.
  readonly #from: Int32Array; // -1 where free
  readonly #unit: Uint16Array;
  readonly #to: Int32Array;

  /** An automaton for `tokens`, none of which is empty and no two of which are equal. */
  constructor(tokens: readonly string[]) {
    const most = 1 + tokens.reduce((sum, token) => sum + token.length, 0);
    const size = 2 ** Math.ceil(Math.log2(2 * most));
    this.#from = new Int32Array(size).fill(-1);
    this.#unit = new Uint16Array(size);
    this.#to = new Int32Array(size);
    const [own, parent, depth] = [new Int32Array(most).fill(-1), new Int32Array(most), new Int32Array(most)];
    const unit = new Uint16Array(most);
    let nodes = 1;
    tokens.forEach((token, index) => {
      let node = 0;
      for (let i = token.length - 1; i >= 0; i--) {
        const edge = this.#edge(node, token.charCodeAt(i));
        if (this.#from[edge] < 0) {
          this.#from[edge] = node;
          this.#unit[edge] = unit[nodes] = token.charCodeAt(i);
          this.#to[edge] = nodes;
          parent[nodes] = node;
          depth[nodes] = depth[node] + 1;
          nodes++;
        }
        node = this.#to[edge];
      }
      own[node] = index;
    });
    this.#fallback = new Int32Array(nodes);
    this.#token = own.slice(0, nodes);
    for (const node of byDepth(depth.subarray(0, nodes))) {
      if (node === 0) continue;
      const fallback = parent[node] === 0 ? 0 : this.#next(this.#fallback[parent[node]], unit[node]);
      this.#fallback[node] = fallback;
      if (own[node] < 0) this.#token[node] = this.#token[fallback];
    }
  }

  /**
   * Tokens that lie in `text` from place `from` to `to`: at each place where one begins, the longest. Appends places and
   * tokens in turn, the last place first.
   */
  find(text: string, from: number, to: number, found: number[]): void {
    let node = 0;
    for (let at = to - 1; at >= from; at--) {
      node = this.#next(node, text.charCodeAt(at));
      if (this.#token[node] >= 0) found.push(this.#token[node], at);
    }
  }

  /** The node of the longest end of the read text, with one more unit, that is a node. */
  #next(node: number, unit: number): number {
    for (;; node = this.#fallback[node]) {
      const edge = this.#edge(node, unit);
      if (this.#from[edge] >= 0) return this.#to[edge];
      if (node === 0) return 0;
    }
  }

  /** Where an edge is or belongs. */
  #edge(node: number, unit: number): number {
    const mask = this.#from.length - 1;
    let edge = (Math.imul(node, 0x9e3779b1) ^ Math.imul(unit, 0x85ebca6b)) >>> 7 & mask;
    while (this.#from[edge] >= 0 && (this.#from[edge] !== node || this.#unit[edge] !== unit)) edge = (edge + 1) & mask;
    return edge;
  }
}

/** Indices in the order of their depths. */
function byDepth(depth: Int32Array): Int32Array {
  const starts = new Int32Array(depth.reduce((most, d) => Math.max(most, d), 0) + 2);
  for (const d of depth) starts[d + 1]++;
  for (let d = 1; d < starts.length; d++) starts[d] += starts[d - 1];
  const order = new Int32Array(depth.length);
  depth.forEach((d, node) => order[starts[d]++] = node);
  return order;
}
