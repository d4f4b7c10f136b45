/**
 * The nodes of the prefix tree: how a child is found by its tokens, what callers give and get, and what holds for all nodes.
 *
 * @module
 */

import type { PageKind } from "./page_kind.ts";
import type { WindowNode } from "./page_windows.ts";

/** A page of tokens. */
export interface Node extends WindowNode {
  page: number;
  /** Tokens at the positions of the page: as many as a page has, or fewer in a leaf. */
  tokens: readonly number[];
  readonly parent: Node | undefined;
  readonly children: Node[];
  /** The slot with the recurrent states after the tokens up to the end of the page, if those are kept. */
  slot?: number;
}

/** The child of a node that has most tokens in common with others. */
export interface Nearest {
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
  /** The same of the layers with a window: 0 for pages before it. Empty where no layer has one. */
  readonly windows: readonly number[];
  /** A page whose first `count` positions hold the next tokens: the caller copies them to a page of its own and goes on there. */
  readonly partial: PartialPage | undefined;
  /** The slot with the recurrent states after the last of `pages`; absent without pages, or where layers have no state. */
  readonly slot?: number;
  /** Where layers have states: full pages of the tree with the same tokens. Other sequences go on after them in another way. */
  readonly shared?: number;
}

/** The beginning of a page. */
export interface PartialPage {
  readonly page: number;
  /** That of the layers with a window; 0 where none is needed. */
  readonly window: number;
  readonly count: number;
}

/** Which pages a `PrefixTree.match()` takes. */
export interface MatchOptions {
  /** Most tokens. Default all but the last one, which is computed in any case: its logits are needed. */
  readonly limit?: number;
  /** Of partial pages with equally many of the tokens, one that this does not name is preferred. */
  readonly avoids?: ((page: number) => boolean) | undefined;
  /** Whether only full pages are taken. */
  readonly whole?: boolean;
}

/** What a sequence gives to `PrefixTree.insert()`. */
export interface Inserted {
  /** Its pages. */
  readonly pages: readonly number[];
  /** Those of the layers with a window, 0 for those that it has given back. Default none. */
  readonly windows?: readonly number[];
  /** Whether the sequence goes on with them. */
  readonly inUse?: boolean;
  /** Whether it is known that others may begin with these tokens: a prompt or a sequence ends. Default true. */
  readonly ends?: boolean;
}

/** Looks among the children of a node for the tokens from `from` on, before `to`. */
export function nearest({ children }: Node, tokens: readonly number[], from: number, to: number): Nearest {
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

/** How many tokens of a page equal those from `from` on, before `to`. */
export function commonLength(own: readonly number[], tokens: readonly number[], from: number, to: number): number {
  const most = Math.min(own.length, to - from);
  let count = 0;
  while (count < most && own[count] === tokens[from + count]) count++;
  return count;
}

/** Throws unless the nodes below a root are as the head of prefix_tree.ts says; `order` are all of them by their last use. */
export function checkNodes(root: Node, order: ReadonlySet<Node>, pages: PageKind, pageSize: number): void {
  const seen = new Set<number>();
  const ages = new Map(Array.from(order, (node, age) => [node, age]));
  const stack = [root];
  for (let node = stack.pop(); node; node = stack.pop()) {
    for (const [i, child] of node.children.entries()) {
      const { page, tokens, children } = child;
      const check = (holds: boolean, what: string): void => {
        if (!holds) throw new Error(`page ${page} of the prefix tree: ${what}`);
      };
      check(!seen.has(page), "it is there twice");
      check(child.parent === node, "it has another parent");
      check(tokens.length > 0 && tokens.length <= pageSize, `it has ${tokens.length} tokens`);
      check(children.length === 0 || tokens.length === pageSize, "it is filled in part and no leaf");
      check(child.slot === undefined || tokens.length === pageSize, "it has states and is filled in part");
      check(ages.has(child), "it is not in the order of use");
      check(node === root || ages.get(node)! > ages.get(child)!, "it was used after its parent");
      check(pages.references(page) > 0, "it is free");
      check(
        node === root || pages.references(page) === 1 || pages.references(node.page) > 1,
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
  if (seen.size !== order.size) throw new Error(`${order.size} pages in order, ${seen.size} in the tree`);
}
