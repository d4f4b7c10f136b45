/** The pages of layers with a window, in the prefix tree and in schedules. Expected pages follow from the window, by hand. */

import { assertEquals } from "@std/assert";
import { PageKind } from "../../../src/llm/engine/pages/page_kind.ts";
import { PagePool } from "../../../src/llm/engine/pages/page_pool.ts";
import { PrefixTree } from "../../../src/llm/engine/pages/prefix_tree.ts";
import { SlotPool } from "../../../src/llm/engine/pages/slot_pool.ts";
import { Scheduler } from "../../../src/llm/engine/scheduler.ts";
import { Sequence } from "../../../src/llm/engine/sequence.ts";
import { type StepRow, tokenCountOf } from "../../../src/llm/engine/step.ts";
import type { PageGroups } from "../../../src/llm/kv/page_groups.ts";

/** A tree of pages of four positions. Layers with a window see six, and a page of theirs takes two units. */
class Tree {
  readonly pool = new PagePool(60);
  readonly pages = new PageKind(this.pool, 1);
  readonly windows = new PageKind(this.pool, 2);
  readonly tree = new PrefixTree({
    pages: this.pages,
    windows: this.windows,
    window: 6,
    slots: new SlotPool(0),
    pageSize: 4,
  });

  /** Adds tokens as a sequence that ends does, which has the pages of windows from page `from` on. */
  add(tokens: readonly number[], from: number): void {
    const count = Math.ceil(tokens.length / 4);
    const pages = Array.from({ length: count }, () => this.pages.allocate());
    const windows = Array.from({ length: count }, (_, i) => i < from ? 0 : this.windows.allocate());
    this.tree.insert(tokens, { pages, windows });
    for (const page of pages) this.pages.release(page);
    for (const page of windows.slice(from)) this.windows.release(page);
  }

  /** How many positions a sequence can go on after, and which of its pages it sees. */
  find(tokens: readonly number[]): { count: number; seen: number[] } {
    const { pages, windows, partial } = this.tree.match(tokens);
    for (const page of pages) this.pages.release(page);
    for (const page of windows) if (page !== 0) this.windows.release(page);
    if (partial) this.pages.release(partial.page);
    if (partial && partial.window !== 0) this.windows.release(partial.window);
    const units = [this.pages.checkedUnits(this.tree.pages), this.windows.checkedUnits(this.tree.windows)];
    this.pool.checkIntegrity(units.flat());
    this.tree.checkIntegrity();
    const all = [...windows, ...partial ? [partial.window] : []];
    return {
      count: pages.length * 4 + (partial?.count ?? 0),
      seen: all.flatMap((page, i) => page === 0 ? [] : [i]),
    };
  }
}

const tokensOf = (count: number, from = 0): number[] => Array.from({ length: count }, (_, i) => from + i);

Deno.test("a sequence goes on where the pages of its last window are", () => {
  const tree = new Tree();
  tree.add(tokensOf(22), 3); // pages 0 to 5, and 3 to 5 of the layers with a window
  assertEquals(tree.find(tokensOf(23)), { count: 22, seen: [4, 5] });
  assertEquals(tree.find([...tokensOf(20), 99]), { count: 20, seen: [3, 4] });
  assertEquals(tree.find([...tokensOf(18), 99]), { count: 18, seen: [3, 4] }); // positions 13 to 17
  // Position 16 sees 11 to 15, of which page 2 has the first: it is gone.
  assertEquals(tree.find([...tokensOf(17), 99]), { count: 17, seen: [3, 4] });
  assertEquals(tree.find([...tokensOf(16), 99]), { count: 0, seen: [] });
  assertEquals(tree.find([...tokensOf(15), 99]), { count: 0, seen: [] });
});

Deno.test("a sequence that reads a prefix again brings the pages of windows that were gone", () => {
  const tree = new Tree();
  tree.add(tokensOf(22), 4);
  assertEquals(tree.find([...tokensOf(12), 99]), { count: 0, seen: [] });
  tree.add([...tokensOf(12), 50, 51], 1); // in pages of its own, of which the tree takes those of windows
  assertEquals(tree.find([...tokensOf(12), 99]), { count: 12, seen: [1, 2] });
  assertEquals(tree.find(tokensOf(23)), { count: 22, seen: [4, 5] });
});

Deno.test("first the pages go that sequences have passed, then leaves with theirs", () => {
  const tree = new Tree();
  tree.add(tokensOf(8), 0);
  tree.add(tokensOf(20), 0); // it has passed pages 0 to 2, but an earlier one ended after page 1
  tree.add(tokensOf(12, 100), 0); // it has passed page 0
  const { free } = tree.pool;
  assertEquals([tree.tree.countEvictable(), tree.tree.evict(1), tree.pool.free - free], [8 * 3, 2, 2]); // page 2
  assertEquals(tree.find([...tokensOf(12), 99]), { count: 8, seen: [0, 1] });
  assertEquals(tree.tree.evict(1), 2); // page 0 of the third one
  assertEquals(tree.find([...tokensOf(20), 99]), { count: 20, seen: [3, 4] });
  assertEquals(tree.tree.evict(1), 3); // the third one is used least recently
  assertEquals(tree.find([...tokensOf(8, 100), 99]), { count: 0, seen: [] });
  assertEquals([tree.tree.evict(99), tree.pool.free], [24 - 7, 59]);
});

/** Layers that see all have a unit of a page, those that see six positions two. */
const GROUPS: PageGroups = {
  window: 6,
  full: 1,
  windowed: 2,
  tables: [
    { windowed: false, unit: 0, ratio: 1, part: 0 },
    { windowed: true, unit: 0, ratio: 1, part: 0 },
    { windowed: true, unit: 1, ratio: 1, part: 0 },
  ],
};

/** Runs the next steps, and commits each. Says the units in use after each. */
function run(scheduler: Scheduler, count: number): number[] {
  return Array.from({ length: count }, () => {
    const step = scheduler.schedule();
    if (step) {
      const results = step.rows.map((row: StepRow) => ({ tokens: Array(tokenCountOf(row)).fill(7), ended: false }));
      scheduler.commit(step, results);
      scheduler.checkIntegrity();
    }
    return scheduler.usedPages;
  });
}

Deno.test("a long prompt takes the pages of its window as it is read, and a sequence as it goes on", () => {
  const scheduler = new Scheduler({
    pages: 100,
    groups: GROUPS,
    pageSize: 4,
    maxSequences: 4,
    tokenBudget: 8,
    maxQueue: 4,
    maxPrefixPages: 0,
  });
  const sequence = new Sequence({ id: 1, prompt: tokensOf(32), maxTokens: 20 });
  scheduler.add(sequence);
  // Nine pages for the prompt and one token more. Of layers with a window, after each step the two that have the last five positions.
  assertEquals(run(scheduler, 4), [13, 13, 13, 13]);
  assertEquals(sequence.windows.map((page) => page > 0), [...Array(6).fill(false), true, true]);
  assertEquals(sequence.tables.map((table) => table.filter((unit) => unit > 0).length), [9, 2, 2]);
  assertEquals(run(scheduler, 4), [13, 13, 13, 13]); // position 28 is the first that is seen after the next one
  assertEquals(run(scheduler, 1), [10 + 2 * 2]); // position 36 begins a page
  assertEquals([scheduler.abort(1), scheduler.usedPages, sequence.tables], [true, 0, []]);
});

Deno.test("a prompt is read as far as there are pages for its window, and others wait their turn", () => {
  // One sequence alone has 8 pages and 3 of its window.
  const options = { groups: GROUPS, pageSize: 4, maxSequences: 4, tokenBudget: 100, maxQueue: 4 };
  const scheduler = new Scheduler({ ...options, pages: 1 + 8 + 3 * 2 });
  const [first, second] = [1, 2].map((id) => new Sequence({ id, prompt: tokensOf(28, 100 * id), maxTokens: 4 }));
  for (const sequence of [first, second]) scheduler.add(sequence);
  assertEquals(scheduler.add(new Sequence({ id: 3, prompt: tokensOf(33), maxTokens: 1 }))?.code, "memory");
  const ends: string[] = [];
  for (let i = 0; i < 60 && ends.length < 2; i++) {
    run(scheduler, 1);
    for (const { id, status } of [first, second]) if (status === "ended" && !ends.includes(`${id}`)) ends.push(`${id}`);
  }
  assertEquals([ends, first.tokens.length, second.tokens.length], [["1", "2"], 32, 32]);
});

Deno.test("a page of a window is not copied in the step that fills it", () => {
  const options = { groups: GROUPS, pageSize: 4, maxSequences: 4, tokenBudget: 100, maxQueue: 4 };
  const scheduler = new Scheduler({ ...options, pages: 100, maxPrefixPages: 0 });
  scheduler.add(new Sequence({ id: 1, prompt: tokensOf(16), maxTokens: 20 }));
  run(scheduler, 2); // the pages of positions 0 to 7 are passed, and not kept
  scheduler.add(new Sequence({ id: 2, prompt: [...tokensOf(8), 90], maxTokens: 4 }));
  scheduler.add(new Sequence({ id: 3, prompt: [...tokensOf(6), 91], maxTokens: 4 }));
  // The second one reads them again, and the tree takes the pages of its windows beside those of the first one.
  const parts = [0, 1].map(() => scheduler.schedule()!.rows.map(({ sequence: { id }, from }) => [id, from]));
  assertEquals(parts, [[[2, 0]], [[3, 6]]]);
});
