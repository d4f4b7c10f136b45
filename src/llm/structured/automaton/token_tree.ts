/**
 * The tokens of a model as a tree of their bytes.
 *
 * @module
 */

import type { Vocabulary } from "../protocol.ts";
import { PLAIN_TEXT } from "./plain_text.ts";

/** Nodes are beginnings of tokens, in the order of their bytes: those that begin with a node follow it. Node 0 is the empty text. */
export interface TokenTree {
  /** Last byte of each node. */
  readonly bytes: Uint8Array;
  /** Number of bytes of each node. */
  readonly depths: Uint16Array;
  /** The node after all that begin with a node. */
  readonly ends: Int32Array;
  /** Where the tokens of a node begin in `tokens`; they end where those of the next one begin. */
  readonly firsts: Int32Array;
  /** Ids of tokens. */
  readonly tokens: Int32Array;
  /** Most characters that tokens have after a node, where these are plain text; {@link MIXED} elsewhere. */
  readonly plainHeights: Uint8Array;
  /** Most bytes of a token. */
  readonly maxDepth: number;
}

/** The height of nodes of which some token goes on with other bytes than those of plain text, or with many characters. */
export const MIXED = 255;

/** The tree of a vocabulary. Tokens without bytes are not in it. */
export function tokenTree({ bytes, ends }: Vocabulary): TokenTree {
  const begin = (id: number): number => id > 0 ? ends[id - 1] : 0;
  const order = Int32Array.from({ length: ends.length }, (_, id) => id).filter((id) => ends[id] > begin(id));
  order.sort((a, b) => {
    let [i, j] = [begin(a), begin(b)];
    while (i < ends[a] && j < ends[b] && bytes[i] === bytes[j]) [i, j] = [i + 1, j + 1];
    if (i < ends[a] && j < ends[b]) return bytes[i] - bytes[j];
    return (ends[a] - i) - (ends[b] - j);
  });
  const nodes: number[] = [0];
  const depths: number[] = [0];
  const nodeEnds: number[] = [0];
  const firsts: number[] = [0];
  const path: number[] = [0];
  let previous = -1;
  let maxDepth = 0;
  for (const [i, id] of order.entries()) {
    const length = ends[id] - begin(id);
    maxDepth = Math.max(maxDepth, length);
    let same = 0;
    if (previous >= 0) {
      const limit = Math.min(length, ends[previous] - begin(previous));
      while (same < limit && bytes[begin(id) + same] === bytes[begin(previous) + same]) same++;
    }
    while (path.length > same + 1) nodeEnds[path.pop()!] = nodes.length;
    for (let depth = same; depth < length; depth++) {
      path.push(nodes.length);
      nodes.push(bytes[begin(id) + depth]);
      depths.push(depth + 1);
      nodeEnds.push(0);
      firsts.push(i);
    }
    previous = id;
  }
  for (const node of path) nodeEnds[node] = nodes.length;
  firsts.push(order.length);
  // Nodes that only lead to longer tokens have none: they begin where the next ones do.
  return {
    bytes: Uint8Array.from(nodes),
    depths: Uint16Array.from(depths),
    plainHeights: plainHeights(nodes, depths, maxDepth),
    ends: Int32Array.from(nodeEnds),
    firsts: Int32Array.from(firsts),
    tokens: order,
    maxDepth,
  };
}

function plainHeights(bytes: readonly number[], depths: readonly number[], maxDepth: number): Uint8Array {
  const parents = new Int32Array(bytes.length);
  /** Where a node is in the characters of its token: see {@link PLAIN_TEXT}. */
  const places = new Int32Array(bytes.length);
  const path = new Int32Array(maxDepth + 1);
  for (let node = 1; node < bytes.length; node++) {
    parents[node] = path[depths[node] - 1];
    path[depths[node]] = node;
    const place = places[parents[node]];
    places[node] = place < 0 ? -1 : PLAIN_TEXT[256 * place + bytes[node]];
  }
  const heights = new Uint8Array(bytes.length);
  for (let node = bytes.length - 1; node > 0; node--) {
    const parent = parents[node];
    const begun = places[parent] === 0 ? 1 : 0;
    const height = places[node] < 0 ? MIXED : Math.min(MIXED, heights[node] + begun);
    heights[parent] = Math.max(heights[parent], height);
  }
  // Only between two characters can text go on with any.
  for (let node = 0; node < bytes.length; node++) if (places[node] !== 0) heights[node] = MIXED;
  return heights;
}
