/**
 * Masks: which tokens may follow in a state.
 *
 * Whether the rule of a state's nodes allows a token depends on these nodes alone. So one walk through all tokens finds this, and
 * it is cached. For each frame, only tokens that go on after the end of the rule are tested again.
 *
 * @module
 */

import type { Vocabulary } from "../protocol.ts";
import type { Frame, NodeSet, State, States } from "./states.ts";
import { PlainRuns } from "./plain_text.ts";
import { MIXED, type TokenTree } from "./token_tree.ts";

/** Most bytes of masks that are kept for a grammar. */
const MAX_BYTES = 1 << 25;

/** Nodes of the tree from which on plain text is worth looking for. */
const MIN_PLAIN = 4;

/** Tokens that nodes allow by themselves. */
interface Inside {
  /** Tokens that end in the rule, or where it ends. */
  readonly mask: Int32Array;
  /** Nodes of the tree at which the rule ends and tokens go on. */
  readonly leaving: Int32Array;
}

/** The masks of a grammar. */
export class Masks {
  readonly #states: States;
  readonly #tree: TokenTree;
  readonly #vocabulary: Vocabulary;
  /** States along a path of the tree, by depth. */
  readonly #path: State[];
  readonly #inside = new Map<NodeSet, Inside>();
  readonly #known = new Map<State, Int32Array>();
  readonly #runs: PlainRuns;
  #bytes = 0;

  /** For the tokens of a tree. */
  constructor(states: States, tree: TokenTree, vocabulary: Vocabulary) {
    this.#states = states;
    this.#tree = tree;
    this.#vocabulary = vocabulary;
    this.#runs = new PlainRuns(states);
    this.#path = new Array(tree.maxDepth + 1).fill(states.dead);
  }

  /** Bytes of the masks that are kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The state after a token; undefined if the token may not follow. */
  accept(state: State, token: number): State | undefined {
    const { bytes, ends } = this.#vocabulary;
    const begin = token > 0 ? ends[token - 1] : 0;
    if (!(begin < ends[token])) return undefined;
    let at = state;
    for (let i = begin; i < ends[token]; i++) at = this.#states.step(at, this.#states.classes[bytes[i]]);
    return at === this.#states.dead ? undefined : at;
  }

  /** The mask of a state: bit i % 32 of word i / 32 is set for token i. It must not be written to. */
  mask(state: State): Int32Array {
    const known = this.#known.get(state);
    if (known) return known;
    if (this.#states.forget() || this.#bytes > MAX_BYTES) this.#forget();
    const mask = new Int32Array(Math.ceil(this.#vocabulary.size / 32));
    for (const [set, frame] of state.groups) {
      const inside = this.#insideOf(set);
      for (let i = 0; i < mask.length; i++) mask[i] |= inside.mask[i];
      this.#addAfter(mask, inside.leaving, frame);
    }
    if (state.ends) { for (const id of this.#vocabulary.stop) mask[id >> 5] |= 1 << (id & 31); }
    this.#known.set(state, mask);
    this.#bytes += mask.byteLength;
    return mask;
  }

  #forget(): void {
    this.#inside.clear();
    this.#known.clear();
    this.#runs.clear();
    this.#bytes = 0;
  }

  #insideOf(set: NodeSet): Inside {
    const known = this.#inside.get(set);
    if (known) return known;
    const mask = new Int32Array(Math.ceil(this.#vocabulary.size / 32));
    const leaving: number[] = [];
    this.#walk(0, this.#states.inside(set), mask, leaving);
    const inside = { mask, leaving: Int32Array.from(leaving) };
    this.#inside.set(set, inside);
    this.#bytes += mask.byteLength + inside.leaving.byteLength;
    return inside;
  }

  /** Adds tokens that go on after the rule of a frame. */
  #addAfter(mask: Int32Array, leaving: Int32Array, frame: Frame): void {
    if (leaving.length === 0 || frame.links.length === 0) return;
    const after = this.#states.after(frame);
    for (const node of leaving) this.#walk(node, after, mask, undefined);
  }

  /** Adds the tokens below a node of the tree that a state allows, and the nodes at which an open frame is reached. */
  #walk(root: number, state: State, mask: Int32Array, leaving: number[] | undefined): void {
    const { bytes, depths, ends, firsts, tokens, plainHeights } = this.#tree;
    const { classes, dead } = this.#states;
    const path = this.#path;
    path[depths[root]] = state;
    const last = ends[root];
    for (let node = root + 1; node < last;) {
      const depth = depths[node];
      const byteClass = classes[bytes[node]];
      const before = path[depth - 1];
      const next = before.next[byteClass] ?? this.#states.step(before, byteClass);
      if (next === dead) {
        node = ends[node];
        continue;
      }
      path[depth] = next;
      const below = ends[node];
      const height = plainHeights[node];
      const all = below - node >= MIN_PLAIN && height < MIXED && height <= this.#runs.of(next, MIXED);
      const after = all ? below : node + 1;
      for (let i = firsts[node]; i < firsts[after]; i++) mask[tokens[i] >> 5] |= 1 << (tokens[i] & 31);
      if (leaving && next.leaves && below > node + 1) leaving.push(node);
      node = after;
    }
  }
}
