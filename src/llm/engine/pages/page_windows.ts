/**
 * Which pages of layers with windows the prefix tree keeps, and how far a sequence can go on from them.
 *
 * A sequence can go on after a position if the pages of its last window are there. The tree keeps all that sequences computed while no
 * memory is missing. First it gives up what sequences have passed. The windows before places where sequences ended or began are of more
 * use: they go with the nodes, the least recently used first.
 *
 * @module
 */

import { firstPageSeen } from "../../kv/page_groups.ts";
import type { PageKind } from "./page_kind.ts";

/** What a node of the tree has of windows. */
export interface WindowNode {
  /** The page of the layers with a window, if it is kept. */
  window?: number;
  /** Whether a sequence ended or began within a window after it. */
  isEnd?: boolean;
}

/** The windows of a tree's nodes. */
export class PageWindows<N extends WindowNode> {
  readonly #kind: PageKind;
  readonly #window: number;
  readonly #pageSize: number;
  /** Nodes that sequences have passed, the first one first. */
  readonly #passed = new Set<N>();

  /** `window` is how many positions a token sees; 0 for no layers with one. */
  constructor(kind: PageKind, window: number, pageSize: number) {
    this.#kind = kind;
    this.#window = window;
    this.#pageSize = pageSize;
  }

  /** Units of a page. */
  get units(): number {
    return this.#kind.units;
  }

  /** Takes a reference to a page for a node that has none; 0 for no page. */
  adopt(node: N, page: number): void {
    if (page === 0 || node.window !== undefined) return;
    this.#kind.retain(page);
    node.window = page;
  }

  /** Gives up the page of a node. */
  drop(node: N): void {
    if (node.window !== undefined) this.#kind.release(node.window);
    delete node.window;
    this.#passed.delete(node);
  }

  /** Whether no sequence uses the page of a node. */
  isUnused({ window }: N): boolean {
    return window !== undefined && this.#kind.references(window) === 1;
  }

  /** Notes that a sequence has the nodes of a path up to a position. Where it `ends` or begins there, the last window is of use to others. */
  note(path: readonly N[], position: number, ends: boolean): void {
    if (this.#window === 0) return;
    const first = firstPageSeen(this.#window, position, this.#pageSize);
    for (const [i, node] of path.entries()) {
      if (i < first && !node.isEnd && node.window !== undefined) this.#passed.add(node);
      if (i < first || !ends) continue;
      node.isEnd = true;
      this.#passed.delete(node);
    }
  }

  /** Nodes whose pages may go before others. */
  get unneeded(): Iterable<N> {
    return this.#passed;
  }

  /** After how many of the first nodes of a path a sequence can go on. It has `last` tokens in the last node, and full pages before. */
  usable(path: readonly N[], last: number): number {
    if (this.#window === 0) return path.length;
    let run = 0;
    let usable = 0;
    for (const [i, { window }] of path.entries()) {
      run = window === undefined ? 0 : run + 1;
      const position = i * this.#pageSize + (i === path.length - 1 ? last : this.#pageSize);
      if (i + 1 - run <= firstPageSeen(this.#window, position, this.#pageSize)) usable = i + 1;
    }
    return usable;
  }

  /** Takes references to the pages that a sequence sees after a path: a page for each node, 0 where it does not see it. */
  take(path: readonly N[], position: number): number[] {
    if (this.#window === 0) return [];
    const first = firstPageSeen(this.#window, position, this.#pageSize);
    return path.map(({ window }, i) => {
      if (i < first) return 0;
      this.#kind.retain(window!);
      return window!;
    });
  }

  /** Throws unless pages are as the head of this file says; `nodes` are all of the tree. */
  checkIntegrity(nodes: ReadonlySet<N>): void {
    for (const node of this.#passed) {
      if (nodes.has(node) && node.window !== undefined && !node.isEnd) continue;
      throw new Error("a page that sequences have passed is not in the tree");
    }
  }
}
