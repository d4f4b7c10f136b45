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
 * @module
 */

import type { PagePool } from "./page_pool.ts";
import type { SlotPool } from "./slot_pool.ts";

interface Node {
  page: number;
  /** Tokens at the positions of the page: as many as a page has, or fewer in a leaf. */
  tokens: readonly number[];
  readonly parent: Node | undefined;
  readonly children: Node[];
  /** The slot with the recurrent states after the tokens up to the end of the page, if those are kept. */
  slot?: number;
}

/** The child of a node that has most tokens in common with others. */
interface Nearest {
  readonly child: Node | undefined;
  /** Equal tokens from the first on. */
  readonly common: number;
  /** Where a child with these tokens belongs. */
  readonly index: number;
}

/** What the tree has of a sequence. The caller has a reference to each page and gives it back. */
export interface Match {
  /** Pages that hold the first tokens, all of them full. */
  readonly pages: readonly number[];
  /** A page whose first `count` positions hold the next tokens: the caller copies them to a page of its own and goes on there. */
  readonly partial: { readonly page: number; readonly count: number } | undefined;
  /** The slot with the recurrent states after the last of `pages`; absent without pages, or where layers have no state. */
  readonly slot?: number;
  /** Where layers have states: full pages of the tree with the same tokens. Other sequences go on after them in another way. */
  readonly shared?: number;
}

/** What a {@link PrefixTree} is made from. */
export interface PrefixTreeOptions {
  readonly pool: PagePool;
  /** Slots of recurrent states, none where layers have no state. */
  readonly slots: SlotPool;
  /** Positions of a page. */
  readonly pageSize: number;
}

/** Pages by the tokens in them. */
export class PrefixTree {
  readonly #pool: PagePool;
  readonly #slots: SlotPool;
  readonly #pageSize: number;
  readonly #root: Node = { page: 0, tokens: [], parent: undefined, children: [] };
  /** All nodes but the root, the least recently used first, each after its children. */
  readonly #order = new Set<Node>();

  /** Makes an empty tree. */
  constructor({ pool, slots, pageSize }: PrefixTreeOptions) {
    this.#pool = pool;
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

  /** Slots of the tree. */
  get slots(): readonly number[] {
    return Array.from(this.#order, ({ slot }) => slot).filter((slot) => slot !== undefined);
  }

  /** Pages that {@link PrefixTree.evict} could free now: those that no sequence uses. */
  countEvictable(): number {
    let count = 0;
    for (const { page } of this.#order) if (this.#pool.references(page) === 1) count++;
    return count;
  }

  /**
   * Finds the pages of the first `limit` tokens. The default is all but the last one, which is computed in any case: its logits are needed.
   * Of partial pages with equally many of the tokens, it takes one that `avoids` does not name, if there is one.
   */
  match(
    tokens: readonly number[],
    limit: number = tokens.length - 1,
    avoids: (page: number) => boolean = () => false,
  ): Match {
    if (this.#slots.count > 0) return this.#matchKept(tokens, limit);
    const pages: number[] = [];
    let partial: Match["partial"];
    let node = this.#root;
    while (!partial) {
      const from = pages.length * this.#pageSize;
      const { child, common } = this.#nearest(node, tokens, from, limit);
      if (!child || common === 0) break;
      const isPartial = common < this.#pageSize;
      if (isPartial && avoids(child.page)) {
        const begins = (other: Node): boolean => commonLength(other.tokens, tokens, from, limit) === common;
        node = node.children.find((other) => !avoids(other.page) && begins(other)) ?? child;
      } else node = child;
      this.#pool.retain(node.page);
      if (isPartial) partial = { page: node.page, count: common };
      else pages.push(node.page);
    }
    this.#touch(node);
    return { pages, partial };
  }

  /** The same up to the last full page after which states were kept. */
  #matchKept(tokens: readonly number[], limit: number): Match {
    const path: Node[] = [];
    for (let node = this.#root;;) {
      const { child, common } = this.#nearest(node, tokens, path.length * this.#pageSize, limit);
      if (!child || common < this.#pageSize) break;
      path.push(node = child);
    }
    const last = path.findLastIndex(({ slot }) => slot !== undefined);
    const kept = path.slice(0, last + 1);
    for (const { page } of kept) this.#pool.retain(page);
    const shared = path.length;
    if (last < 0) return { pages: [], partial: undefined, shared };
    this.#touch(kept[last]);
    return { pages: kept.map(({ page }) => page), partial: undefined, slot: kept[last].slot!, shared };
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
   * Adds `pages`, which hold `tokens`, and takes references to those that the tree did not have.
   *
   * With `inUse`, a sequence goes on with these pages. Then nothing is added below a page that the tree has in another copy: the sequence
   * would lock a page without those above it.
   */
  insert(tokens: readonly number[], pages: readonly number[], inUse: boolean = false): void {
    let node = this.#root;
    for (let i = 0, from = 0; from < tokens.length; i++, from += this.#pageSize) {
      const count = Math.min(this.#pageSize, tokens.length - from);
      const { child, common, index } = this.#nearest(node, tokens, from, tokens.length);
      if (child && common === count) {
        if (inUse && child.page !== pages[i]) break;
        node = child;
        continue;
      }
      const own = tokens.slice(from, from + count);
      this.#pool.retain(pages[i]);
      if (child && common === child.tokens.length) {
        // A leaf filled in part, which these tokens continue: in the same page or in a copy of it.
        this.#pool.release(child.page);
        child.page = pages[i];
        child.tokens = own;
        node = child;
      } else {
        const added: Node = { page: pages[i], tokens: own, parent: node, children: [] };
        node.children.splice(index, 0, added);
        node = added;
      }
    }
    this.#touch(node);
  }

  /** Frees `count` pages, or all that it can, of the leaves used least recently. Returns how many it freed. */
  evict(count: number): number {
    let freed = 0;
    for (const node of this.#order) {
      if (freed >= count) break;
      if (this.#pool.references(node.page) > 1) continue;
      this.#remove(node);
      freed++;
    }
    return freed;
  }

  /** Throws unless the tree is as the head of this file says. */
  checkIntegrity(): void {
    const seen = new Set<number>();
    const ages = new Map(Array.from(this.#order, (node, age) => [node, age]));
    const stack = [this.#root];
    for (let node = stack.pop(); node; node = stack.pop()) {
      for (const [i, child] of node.children.entries()) {
        const { page, tokens, children } = child;
        const check = (holds: boolean, what: string): void => {
          if (!holds) throw new Error(`page ${page} of the prefix tree: ${what}`);
        };
        check(!seen.has(page), "it is there twice");
        check(child.parent === node, "it has another parent");
        check(tokens.length > 0 && tokens.length <= this.#pageSize, `it has ${tokens.length} tokens`);
        check(children.length === 0 || tokens.length === this.#pageSize, "it is filled in part and no leaf");
        check(child.slot === undefined || tokens.length === this.#pageSize, "it has states and is filled in part");
        check(ages.has(child), "it is not in the order of use");
        check(node === this.#root || ages.get(node)! > ages.get(child)!, "it was used after its parent");
        check(this.#pool.references(page) > 0, "it is free");
        check(
          node === this.#root || this.#pool.references(page) === 1 || this.#pool.references(node.page) > 1,
          "it is locked and its parent is not",
        );
        if (i > 0) {
          const before = node.children[i - 1].tokens;
          const common = commonLength(before, tokens, 0, tokens.length);
          check(common < before.length && before[common] < tokens[common], "it is not in the order of tokens");
        }
        seen.add(page);
        stack.push(child);
      }
    }
    if (seen.size !== this.#order.size) throw new Error(`${this.#order.size} pages in order, ${seen.size} in the tree`);
  }

  /** Looks for the tokens of a page at `from`, those before `end`. */
  #nearest({ children }: Node, tokens: readonly number[], from: number, end: number): Nearest {
    const to = Math.min(from + this.#pageSize, end);
    let [low, high] = [0, children.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const own = children[middle].tokens;
      const common = commonLength(own, tokens, from, to);
      const isBefore = from + common < to && own[common] < tokens[from + common]; // never where `own` ends before
      if (isBefore) low = middle + 1;
      else high = middle;
    }
    // The longest common beginning is with a neighbour of the place in the order.
    const [before, after] = [low - 1, low].map((at) => at >= 0 ? children.at(at) : undefined);
    const common = [before, after].map((child) => child ? commonLength(child.tokens, tokens, from, to) : 0);
    return common[0] > common[1]
      ? { child: before, common: common[0], index: low }
      : { child: after, common: common[1], index: low };
  }

  /** Makes a node and those above it the most recently used. */
  #touch(node: Node): void {
    for (let at: Node | undefined = node; at?.parent; at = at.parent) {
      this.#order.delete(at);
      this.#order.add(at);
    }
  }

  /** Takes a leaf out of the tree, as the oldest node that is not locked is one. */
  #remove(leaf: Node): void {
    const siblings = leaf.parent!.children;
    siblings.splice(this.#nearest(leaf.parent!, leaf.tokens, 0, leaf.tokens.length).index, 1);
    this.#order.delete(leaf);
    this.#releaseSlot(leaf);
    this.#pool.release(leaf.page);
  }

  #releaseSlot(node: Node): void {
    if (node.slot !== undefined) this.#slots.release(node.slot);
    delete node.slot;
  }
}

/** How many tokens of a page equal those from `from` on, before `to`. */
function commonLength(own: readonly number[], tokens: readonly number[], from: number, to: number): number {
  const most = Math.min(own.length, to - from);
  let count = 0;
  while (count < most && own[count] === tokens[from + count]) count++;
  return count;
}
