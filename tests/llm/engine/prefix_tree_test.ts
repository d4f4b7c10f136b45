/** The pages of an engine and the tree that finds them by their tokens. Expected pages follow from the tokens, by hand. */

import { assertEquals, assertThrows } from "@std/assert";
import { PageKind } from "../../../src/llm/engine/pages/page_kind.ts";
import { PagePool } from "../../../src/llm/engine/pages/page_pool.ts";
import { PrefixTree } from "../../../src/llm/engine/pages/prefix_tree.ts";
import { SlotPool } from "../../../src/llm/engine/pages/slot_pool.ts";

/** A tree with pages of four positions, and what fills it as sequences do. Layers with a window have pages of two units. */
class Filled {
  readonly pool: PagePool;
  readonly pages: PageKind;
  readonly windows: PageKind;
  readonly slots: SlotPool;
  readonly tree: PrefixTree;

  constructor(pages = 20, slots = 0, window = 0) {
    this.pool = new PagePool(pages);
    this.pages = new PageKind(this.pool, 1);
    this.windows = new PageKind(this.pool, window > 0 ? 2 : 0);
    this.slots = new SlotPool(slots);
    this.tree = new PrefixTree({
      pages: this.pages,
      windows: this.windows,
      window,
      slots: this.slots,
      pageSize: 4,
    });
  }

  /** Allocates pages for tokens, gives them to the tree and forgets them. Returns their numbers. */
  add(tokens: readonly number[]): number[] {
    const pages = this.allocate(Math.ceil(tokens.length / 4));
    this.tree.insert(tokens, { pages });
    this.release(pages);
    return pages;
  }

  allocate(count: number): number[] {
    return Array.from({ length: count }, () => this.pages.allocate());
  }

  release(pages: readonly number[]): void {
    for (const page of pages) this.pages.release(page);
  }

  /** What is found; the references to it are given back. */
  find(tokens: readonly number[], limit?: number): { pages: readonly number[]; partial: unknown } {
    const { pages, partial } = this.tree.match(tokens, limit === undefined ? {} : { limit });
    this.release([...pages, ...partial ? [partial.page] : []]);
    this.check();
    return { pages, partial: partial && { page: partial.page, count: partial.count } };
  }

  check(held: readonly number[] = []): void {
    const units = this.pages.checkedUnits([...this.tree.pages, ...held]);
    this.pool.checkIntegrity([...units, ...this.windows.checkedUnits(this.tree.windows)]);
    if (this.slots.count > 0) this.slots.checkIntegrity(this.tree.slots);
    this.tree.checkIntegrity();
  }
}

Deno.test("a pool gives out each page but page 0 once, and takes a page back when nobody has it", () => {
  const pool = new PagePool(4);
  const kind = new PageKind(pool, 1);
  assertEquals([pool.free, pool.capacity], [3, 3]);
  const pages = [kind.allocate(), kind.allocate(), kind.allocate()];
  assertEquals(pages.toSorted(), [1, 2, 3]);
  assertThrows(() => kind.allocate(), Error, "all 3 pages are in use");
  kind.retain(2);
  kind.release(2);
  assertEquals([pool.free, kind.references(2)], [0, 1]);
  kind.release(2);
  assertEquals([pool.free, kind.references(2)], [1, 0]);
  assertEquals(kind.allocate(), 2);
});

Deno.test("a pool refuses pages that nobody has", () => {
  const pool = new PagePool(4);
  const kind = new PageKind(pool, 1);
  const page = kind.allocate();
  kind.release(page);
  for (const wrong of [page, 0, 4, -1, 1.5]) {
    assertThrows(() => pool.release(wrong), Error, "is not in use");
    assertThrows(() => kind.release(wrong), Error, "is not in use");
    assertThrows(() => kind.retain(wrong), Error, "is not in use");
  }
  for (const count of [1, 0, -3, 2.5, NaN]) assertThrows(() => new PagePool(count), Error, "expected 2 or more");
});

Deno.test("a check of a pool finds a reference that nobody has, and an owner without a reference", () => {
  const pool = new PagePool(4);
  const kind = new PageKind(pool, 1);
  const page = kind.allocate();
  pool.checkIntegrity(kind.checkedUnits([page]));
  assertThrows(() => kind.checkedUnits([]), Error, `page ${page} has 1 references and 0 owners`);
  assertThrows(() => kind.checkedUnits([page, page]), Error, `page ${page} has 1 references and 2 owners`);
  for (const wrong of [[], [page, page], [page, 0], [0], [2, 3]]) {
    assertThrows(() => pool.checkIntegrity(wrong), Error, "expected 1 to 3 once each");
  }
});

Deno.test("a page of several units takes any free ones and gives back all, one of none has a number of its own", () => {
  const pool = new PagePool(8);
  const [large, none] = [new PageKind(pool, 3), new PageKind(pool, 0)];
  const [first, second] = [large.allocate(), large.allocate()];
  const units = [first, second].flatMap((page) => large.unitsOf(page));
  assertEquals([new Set(units).size, pool.free, first === units[0]], [6, 1, true]);
  pool.checkIntegrity(large.checkedUnits([first, second]));
  large.release(first);
  assertEquals([pool.free, large.references(first)], [4, 0]);
  const pages = [none.allocate(), none.allocate()];
  assertEquals([new Set(pages).size, pages.every((page) => page < 0), pool.free], [2, true, 4]);
  assertEquals(none.unitsOf(pages[0]), []);
  none.release(pages[0]);
  assertThrows(() => none.release(pages[0]), Error, "is not in use");
});

Deno.test("a tree finds full pages, and how far the next one goes", () => {
  const filled = new Filled();
  const [a, b, c] = filled.add([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), { pages: [a, b], partial: { page: c, count: 2 } });
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 11]), { pages: [a, b], partial: { page: c, count: 1 } });
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 9, 9]), { pages: [a], partial: { page: b, count: 2 } });
  assertEquals(filled.find([1, 2, 3, 4, 9, 9]), { pages: [a], partial: undefined });
  assertEquals(filled.find([2, 3, 4, 5]), { pages: [], partial: undefined });
});

Deno.test("a tree never finds the last token of a prompt, nor any after a limit", () => {
  const filled = new Filled();
  const [a, b] = filled.add([1, 2, 3, 4, 5, 6, 7, 8]);
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7, 8]), { pages: [a], partial: { page: b, count: 3 } });
  assertEquals(filled.find([1, 2, 3, 4, 5]), { pages: [a], partial: undefined });
  assertEquals(filled.find([1, 2, 3, 4]), { pages: [], partial: { page: a, count: 3 } });
  assertEquals(filled.find([1]), { pages: [], partial: undefined });
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7, 8], 8), { pages: [a, b], partial: undefined });
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7, 8], 2), { pages: [], partial: { page: a, count: 2 } });
});

Deno.test("a tree finds the longest of many beginnings", () => {
  const filled = new Filled(60);
  const rows = [[5, 5, 5, 5], [5, 5, 5, 7], [5, 5, 6, 5], [5, 1, 9, 9], [5, 9, 1, 1], [4, 4, 4, 4], [6], [5, 5, 7, 1]];
  const pages = rows.map((row) => filled.add(row)[0]);
  for (const query of [[5, 5, 6, 9, 0], [5, 1, 9, 8, 0], [5, 5, 5, 6, 0], [6, 1, 1, 1, 0], [5, 9, 9, 9, 0]]) {
    const common = rows.map((row) => row.findIndex((token, i) => token !== query[i]));
    const counts = common.map((at, i) => at < 0 ? rows[i].length : at);
    const { partial } = filled.find(query) as { partial: { page: number; count: number } };
    assertEquals(partial.count, Math.max(...counts));
    assertEquals(counts[pages.indexOf(partial.page)], partial.count);
  }
});

Deno.test("equal tokens are kept once, and longer ones take the place of a page filled in part", () => {
  const filled = new Filled();
  const [a, b] = filled.add([1, 2, 3, 4, 5]);
  filled.add([1, 2, 3, 4, 5]);
  filled.add([1, 2, 3]);
  assertEquals(filled.tree.pages.toSorted(), [a, b].toSorted());
  const [, c] = filled.add([1, 2, 3, 4, 5, 6]);
  assertEquals(filled.tree.pages.toSorted(), [a, c].toSorted());
  filled.add([1, 2, 3, 4, 5]);
  assertEquals(filled.find([1, 2, 3, 4, 5, 6, 7]), { pages: [a], partial: { page: c, count: 2 } });
  assertEquals(filled.pool.free, 17);
});

Deno.test("a sequence that goes on adds more of its pages, and nothing below pages of others", () => {
  const filled = new Filled();
  const pages = filled.allocate(3);
  filled.tree.insert([1, 2, 3, 4, 5, 6], { pages, inUse: true });
  filled.tree.insert([1, 2, 3, 4, 5, 6, 7, 8, 9], { pages, inUse: true });
  filled.check(pages);
  assertEquals(filled.tree.pages.toSorted(), pages.toSorted());
  const others = filled.allocate(4);
  filled.tree.insert([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], { pages: others, inUse: true });
  filled.check([...pages, ...others]);
  assertEquals(filled.tree.size, 3);
  filled.tree.insert([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], { pages: others });
  filled.release([...pages, ...others]);
  filled.check();
  assertEquals(filled.tree.pages.toSorted(), [pages[0], pages[1], others[2], others[3]].toSorted());
});

Deno.test("eviction takes the leaves used least recently, and none that a sequence uses", () => {
  const filled = new Filled();
  const [a, b] = filled.add([1, 1, 1, 1, 1, 1, 1, 1]);
  const [c, d] = filled.add([2, 2, 2, 2, 2, 2, 2, 2]);
  const [e] = filled.add([3, 3, 3, 3]);
  filled.find([1, 1, 1, 1, 0]); // page a is used, b is not
  const held = filled.tree.match([3, 3, 3, 3, 0]).pages;
  assertEquals([held, filled.tree.countEvictable()], [[e], 4]);
  const left = (): number[] => filled.tree.pages.toSorted((x, y) => x - y);
  const without = (...gone: number[]): number[] =>
    [a, b, c, d, e].filter((page) => !gone.includes(page)).toSorted((x, y) => x - y);
  const gone: number[] = [];
  for (const next of [b, d, c, a]) {
    assertEquals(filled.tree.evict(1), 1);
    gone.push(next);
    assertEquals(left(), without(...gone));
    filled.check(held);
  }
  assertEquals([filled.tree.evict(5), filled.tree.countEvictable()], [0, 0]);
  filled.release(held);
  assertEquals([filled.tree.evict(5), filled.pool.free], [1, 19]);
});

Deno.test("a tree with recurrent states finds full pages up to the last whose states were kept", () => {
  const filled = new Filled(20, 4);
  const tokens = Array.from({ length: 14 }, (_, i) => i);
  const [first, second, third] = filled.add(tokens);
  assertEquals(filled.find([...tokens, 99]), { pages: [], partial: undefined });
  const keep = (count: number): boolean => filled.tree.keep(tokens.slice(0, count), filled.slots.allocate());
  assertEquals([keep(4), keep(12)], [true, true]);
  const found = filled.tree.match([...tokens, 99]);
  assertEquals(found, { pages: [first, second, third], windows: [], partial: undefined, slot: 2, shared: 3 });
  filled.release(found.pages);
  assertEquals(filled.tree.match([...tokens.slice(0, 9), 99, 99, 99, 99]).shared, 2, "also without states");
  filled.release([first]);
  assertEquals(filled.find(tokens.slice(0, 12)).pages, [first], "the last token is computed in any case");
  assertEquals(filled.find([...tokens.slice(0, 11), 99, 99]).pages, [first]);
  assertEquals(filled.find([99, ...tokens]).pages, []);
  filled.check();
});

Deno.test("a tree gives back the slot of the page used least recently, and that of a page that is evicted", () => {
  const filled = new Filled(20, 4);
  const [a, b, c] = [[1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]];
  const [[ofA], , [ofC]] = [a, b, c].map((tokens) => filled.add(tokens));
  for (const tokens of [a, b, c]) assertEquals(filled.tree.keep(tokens, filled.slots.allocate()), true);
  assertEquals(filled.tree.keep(a, 9), false, "it has one");
  assertEquals(filled.tree.keep([4, 4, 4, 4], 9), false, "there is no such page");
  assertEquals(filled.find([...a, 0]).pages, [ofA]);
  assertEquals([filled.slots.free, filled.tree.evictSlot(), filled.slots.free], [0, true, 1]);
  filled.check();
  assertEquals([a, b, c].map((tokens) => filled.find([...tokens, 0]).pages), [[ofA], [], [ofC]]);
  assertEquals([filled.tree.evict(1), filled.slots.free], [1, 1], "page b has none any more");
  assertEquals([filled.tree.evict(1), filled.slots.free], [1, 2]);
  filled.check();
  assertEquals([filled.tree.evict(1), filled.tree.evictSlot(), filled.slots.free], [1, false, 3]);
});
