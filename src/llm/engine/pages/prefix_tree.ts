/**
 * Which pages have the keys and values of which tokens: a radix tree over token ids whose unit is a page.
 *
 * A path from the root is the beginning of a sequence, a node of it one page with the tokens at its positions. Only a leaf may be filled in
 * part. Children of a node are sorted by their tokens, and none begins with all tokens of another. So the child with the longest common
 * beginning is found by binary search, however many requests begin alike.
 *
 * The tree has a reference to each of its pages. A page with another reference is in use by a sequence: it is locked. A sequence that has a page of the tree has all pages above it too. So what is not locked can be evicted from the leaves up.
 *
 * Nodes are kept in the order of their last use, a parent after its children. So one walk from the oldest on evicts leaves before their
 * parents, and the least recently used first.
 *
 * Where layers have recurrent states, a sequence can only go on from where those were kept. So a match ends at the last full page whose node
 * has a slot.
 *
 * Layers with a window have pages of their own, see page_windows.ts. A node may lack such a page. A match ends where all pages of the last
 * window are there.
 *
 * @module
 */

import type { PageKind } from "./page_kind.ts";
import { PageWindows } from "./page_windows.ts";
import {
  checkNodes,
  commonLength,
  type Inserted,
  type Match,
  type MatchOptions,
  type Nearest,
  nearest,
  type Node,
} from "./prefix_node.ts";
import type { SlotPool } from "./slot_pool.ts";

/** What a {@link PrefixTree} is made from. */
export interface PrefixTreeOptions {
  readonly pages: PageKind;
  /** The pages of the layers with a window. */
  readonly windows: PageKind;
  /** Positions that those see; 0 where no layer has a window. */
  readonly window: number;
  /** Slots of recurrent states, none where layers have no state. */
  readonly slots: SlotPool;
  /** Positions of a page. */
  readonly pageSize: number;
}

/** Pages by the tokens in them. */
export class PrefixTree {
  readonly #pages: PageKind;
  readonly #windows: PageWindows<Node>;
  readonly #slots: SlotPool;
  readonly #pageSize: number;
  readonly #root: Node = { page: 0, tokens: [], parent: undefined, children: [] };
  /** All nodes but the root, the least recently used first, each after its children. */
  readonly #order = new Set<Node>();

  /** Makes an empty tree. */
  constructor({ pages, windows, window, slots, pageSize }: PrefixTreeOptions) {
    this.#pages = pages;
    this.#windows = new PageWindows(windows, window, pageSize);
    this.#slots = slots;
    this.#pageSize = pageSize;
  }

  /** Pages that the tree has. */
  get size(): number {
    return this.#order.size;
  }

  /** Pages of the tree, each once. */
  get pages(): readonly number[] {
    return Array.from(this.#order, ({ page }) => page);
  }

  /** Pages of the layers with a window, each once for each node. */
  get windows(): readonly number[] {
    return Array.from(this.#order, ({ window }) => window).filter((window) => window !== undefined);
  }

  /** Slots of the tree. */
  get slots(): readonly number[] {
    return Array.from(this.#order, ({ slot }) => slot).filter((slot) => slot !== undefined);
  }

  /** Units that {@link PrefixTree.evict} could free now: those of pages that no sequence uses. */
  countEvictable(): number {
    let count = 0;
    for (const node of this.#order) {
      if (this.#isFree(node)) count += this.#pages.units;
      if (this.#windows.isUnused(node)) count += this.#windows.units;
    }
    return count;
  }

  /** Finds the pages of the first tokens. */
  match(tokens: readonly number[], options: MatchOptions = {}): Match {
    const { limit = tokens.length - 1, avoids = () => false } = options;
    const isAvoided = ({ page, window = 0 }: Node): boolean => avoids(page) || avoids(window);
    const hasStates = this.#slots.count > 0;
    const path: Node[] = [];
    let last = this.#pageSize;
    while (last === this.#pageSize) {
      const from = path.length * this.#pageSize;
      const node = path.at(-1) ?? this.#root;
      const { child, common } = this.#nearest(node, tokens, from, limit);
      const isPartial = common < this.#pageSize;
      if (!child || common === 0 || (isPartial && (hasStates || options.whole))) break;
      const begins = (other: Node): boolean => commonLength(other.tokens, tokens, from, limit) === common;
      const other = isPartial && isAvoided(child) && node.children.find((one) => !isAvoided(one) && begins(one));
      path.push(other || child);
      last = common;
    }
    return this.#take(path, last, hasStates ? path.length : undefined);
  }

  /** Takes references to the pages of a path as far as a sequence can go on after them. Its last node has `last` of the tokens. */
  #take(path: readonly Node[], last: number, shared: number | undefined): Match {
    let usable = this.#windows.usable(path, last);
    if (shared !== undefined) usable = this.#lastKept(path, usable);
    const kept = path.slice(0, usable);
    const isPartial = usable === path.length && last < this.#pageSize;
    const position = usable * this.#pageSize - (isPartial ? this.#pageSize - last : 0);
    for (const { page } of kept) this.#pages.retain(page);
    const windows = this.#windows.take(kept, position);
    if (usable > 0) this.#touch(kept[usable - 1]);
    this.#windows.note(kept, position, true);
    const count = isPartial ? usable - 1 : usable;
    const partial = isPartial ? { page: kept[count].page, window: windows[count] ?? 0, count: last } : undefined;
    const slot = shared === undefined ? undefined : kept.at(-1)?.slot;
    return {
      pages: kept.slice(0, count).map(({ page }) => page),
      windows: windows.slice(0, count),
      partial,
      ...(slot !== undefined && { slot }),
      ...(shared !== undefined && { shared }),
    };
  }

  /** How many of the first `usable` nodes of a path end with one after which states were kept, and with a whole window. */
  #lastKept(path: readonly Node[], usable: number): number {
    let count = usable;
    while (count > 0 && path[count - 1].slot === undefined) {
      count = this.#windows.usable(path.slice(0, count - 1), this.#pageSize);
    }
    return count;
  }

  /** Gives a slot to the node whose page ends with these tokens, all of full pages. Returns false if there is none, or if it has one. */
  keep(tokens: readonly number[], slot: number): boolean {
    let node = this.#root;
    for (let from = 0; from < tokens.length; from += this.#pageSize) {
      const { child, common } = this.#nearest(node, tokens, from, tokens.length);
      if (!child || common < this.#pageSize) return false;
      node = child;
    }
    if (node === this.#root || node.slot !== undefined) return false;
    node.slot = slot;
    return true;
  }

  /** Takes the slot of the node that was used least recently. Returns false if no node has one. */
  evictSlot(): boolean {
    for (const node of this.#order) {
      if (node.slot === undefined) continue;
      this.#releaseSlot(node);
      return true;
    }
    return false;
  }

  /**
   * Adds pages, which hold `tokens`, and takes references to those that the tree did not have. Nodes that lack a page of the layers with a
   * window get one.
   *
   * With `inUse`, a sequence goes on with these pages. Then nothing is added below a page that the tree has in another copy: the sequence
   * would lock a page without those above it.
   */
  insert(tokens: readonly number[], { pages, windows = [], inUse = false, ends = true }: Inserted): void {
    const path: Node[] = [];
    let isForeign = false;
    for (let i = 0, from = 0; from < tokens.length; i++, from += this.#pageSize) {
      const count = Math.min(this.#pageSize, tokens.length - from);
      const node = path.at(-1) ?? this.#root;
      const { child, common, index } = this.#nearest(node, tokens, from, tokens.length);
      if (child && common === count) {
        isForeign ||= inUse && child.page !== pages[i];
        path.push(child);
        if (count === child.tokens.length) this.#windows.adopt(child, windows[i] ?? 0);
        continue;
      }
      if (isForeign) break;
      const own = tokens.slice(from, from + count);
      this.#pages.retain(pages[i]);
      if (child && common === child.tokens.length) {
        // A leaf filled in part, which these tokens continue: in the same page or in a copy of it.
        this.#pages.release(child.page);
        child.page = pages[i];
        child.tokens = own;
        if (child.window !== windows[i]) this.#windows.drop(child);
        path.push(child);
      } else {
        const added: Node = { page: pages[i], tokens: own, parent: node, children: [] };
        node.children.splice(index, 0, added);
        path.push(added);
      }
      this.#windows.adopt(path[i], windows[i] ?? 0);
    }
    if (path.length > 0) this.#touch(path[path.length - 1]);
    this.#windows.note(path, Math.min(tokens.length, path.length * this.#pageSize), ends);
  }

  /**
   * Frees `count` units, or all that it can. Pages of windows that sequences have passed go first. Then leaves go that were used least recently, and of nodes in use the pages of windows. Returns how many it freed.
   */
  evict(count: number): number {
    let freed = 0;
    if (count <= 0) return freed;
    for (const node of this.#windows.unneeded) {
      if (freed >= count) return freed;
      if (this.#windows.isUnused(node)) freed += this.#dropWindow(node);
    }
    for (const node of this.#order) {
      if (freed >= count) break;
      if (this.#isFree(node)) freed += this.#remove(node);
      else if (this.#windows.isUnused(node)) freed += this.#dropWindow(node);
    }
    return freed;
  }

  /** Throws unless the tree is as the head of this file says. */
  checkIntegrity(): void {
    checkNodes(this.#root, this.#order, this.#pages, this.#pageSize);
    this.#windows.checkIntegrity(this.#order);
  }

  #nearest(node: Node, tokens: readonly number[], from: number, end: number): Nearest {
    return nearest(node, tokens, from, Math.min(from + this.#pageSize, end));
  }

  /** Makes a node and those above it the most recently used. */
  #touch(node: Node): void {
    for (let at: Node | undefined = node; at?.parent; at = at.parent) {
      this.#order.delete(at);
      this.#order.add(at);
    }
  }

  /** Whether no sequence uses a node. */
  #isFree({ page }: Node): boolean {
    return this.#pages.references(page) === 1;
  }

  /** Gives up the page of the layers with a window. Leaves without one are of no use. Returns how many units it freed. */
  #dropWindow(node: Node): number {
    this.#windows.drop(node);
    return this.#windows.units + this.#prune(node);
  }

  /** Takes a leaf out of the tree, as the oldest node that is not locked is one. Returns how many units it freed. */
  #remove(leaf: Node): number {
    const { parent, tokens } = leaf;
    parent!.children.splice(nearest(parent!, tokens, 0, tokens.length).index, 1);
    this.#order.delete(leaf);
    this.#releaseSlot(leaf);
    this.#pages.release(leaf.page);
    const units = this.#pages.units + (this.#windows.isUnused(leaf) ? this.#windows.units : 0);
    this.#windows.drop(leaf);
    return units + this.#prune(parent!);
  }

  /** Takes a leaf out of the tree that no sequence can go on after, and those above it that then are such. */
  #prune(node: Node): number {
    const isLeaf = node !== this.#root && node.children.length === 0 && this.#isFree(node);
    return this.#windows.units > 0 && isLeaf && node.window === undefined ? this.#remove(node) : 0;
  }

  #releaseSlot(node: Node): void {
    if (node.slot !== undefined) this.#slots.release(node.slot);
    delete node.slot;
  }
}
