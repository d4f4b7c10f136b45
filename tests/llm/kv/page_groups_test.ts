/** How layers with and without windows share the units of a pool. Expected units follow from the layers of published models, by hand. */

import { assert, assertEquals } from "@std/assert";
import type { KvHeads } from "../../../src/llm/kv/heads.ts";
import {
  entryOf,
  firstPageSeen,
  groupsOf,
  type LayerGroups,
  ONE_GROUP,
  pagesIn,
  pagesOfWindow,
  unitsOfPages,
} from "../../../src/llm/kv/page_groups.ts";

const HEADS: KvHeads = { heads: 2, headDim: 32 };

/** Groups of layers: of each `period` the last one sees all. */
function groupsWith(layers: number, period: number, full: KvHeads = HEADS, windowed: KvHeads = HEADS) {
  return groupsOf(
    Array.from(
      { length: layers },
      (_, i) => i % period === period - 1 ? { window: undefined, heads: full } : { window: 100, heads: windowed },
    ),
  );
}

/** Units of a page and slots of a unit. */
function brief(groups: LayerGroups | undefined): unknown {
  return groups && [groups.full, groups.windowed, groups.slots, groups.tables.length];
}

Deno.test("pages of layers that see all waste few slots, and tables are few", () => {
  const models = {
    "Gemma 3, 1B": [26, 6, [1, 6, 4, 7]],
    "Gemma 3, 4B": [34, 6, [1, 6, 5, 7]],
    "Gemma 3, 27B": [62, 6, [1, 6, 10, 7]],
    "gpt-oss, 20B": [24, 2, [1, 1, 12, 2]],
    "OLMo 3, 7B": [32, 4, [1, 3, 8, 4]],
    "all with a window": [32, 64, [0, 1, 32, 1]],
  } as const;
  for (const [name, [layers, period, expected]] of Object.entries(models)) {
    assertEquals(brief(groupsWith(layers, period)), [...expected], name);
  }
  assertEquals(groupsWith(8, 1), undefined, "no layer has a window");
});

Deno.test("layers with smaller heads share slots, if their heads are so by an integer", () => {
  const half = { heads: 1, headDim: 32 };
  assertEquals(brief(groupsWith(12, 6, half)), [1, 10, 1, 12]); // both layers that see all in one slot
  assertEquals(brief(groupsWith(30, 6, half)), [1, 9, 3, 11]);
  assertEquals(brief(groupsWith(12, 6, { heads: 1, headDim: 64 })), [1, 5, 2, 6]);
  for (const odd of [{ heads: 3, headDim: 32 }, { heads: 2, headDim: 32, valueDim: 16 }, { heads: 1, headDim: 48 }]) {
    assertEquals(groupsWith(12, 6, odd), undefined);
  }
});

Deno.test("no two layers have the same memory of a page", () => {
  const half = { heads: 1, headDim: 32 };
  const cases = [[7, 3, HEADS], [34, 6, HEADS], [12, 6, half], [30, 6, half], [9, 2, half], [5, 9, HEADS]] as const;
  for (const [layers, period, full] of cases) {
    const groups = groupsWith(layers, period, full)!;
    const { tables, places, slots } = groups;
    const largest = Math.max(...tables.map(({ ratio }) => ratio));
    const seen = new Set<string>();
    for (const [layer, { table, slot }] of places.entries()) {
      const own = tables[table];
      const isFull = layer % period === period - 1;
      assertEquals(own.windowed, !isFull, `table of layer ${layer}`);
      assert(slot < slots && own.unit < (isFull ? groups.full : groups.windowed) && own.part < own.ratio);
      // A page of units 10, 20, … of either kind.
      const entry = entryOf(own, Array.from({ length: 9 }, (_, unit) => (isFull ? 10 : 100) * (unit + 1)));
      const [from, size] = [entry * largest / own.ratio, largest / own.ratio];
      for (let part = from; part < from + size; part++) {
        const key = `${slot} ${part}`;
        assert(!seen.has(key), `layer ${layer} has the memory of another one`);
        seen.add(key);
      }
    }
  }
});

Deno.test("a window has so many pages at most, and as many fit as their units say", () => {
  for (let pageSize = 1; pageSize <= 5; pageSize++) {
    for (let window = 1; window <= 12; window++) {
      let most = 0;
      for (let position = 0; position < 60; position++) {
        const seen = Array.from({ length: 60 }, (_, at) => at).filter((at) => at <= position && at > position - window);
        const pages = new Set(seen.map((at) => Math.floor(at / pageSize)));
        assertEquals(firstPageSeen(window, position, pageSize), Math.min(...pages));
        most = Math.max(most, pages.size);
      }
      assertEquals(pagesOfWindow(window, pageSize), most);
      for (const [full, windowed] of [[1, 1], [2, 3], [1, 6]]) {
        const groups = { ...ONE_GROUP, window, full, windowed };
        for (let units = 0; units < 60; units++) {
          const pages = pagesIn(groups, units, pageSize);
          assert(unitsOfPages(groups, pages, pageSize) <= units);
          assert(unitsOfPages(groups, pages + 1, pageSize) > units);
        }
      }
    }
  }
  const windows = { ...ONE_GROUP, window: 100, full: 0, windowed: 1 };
  assertEquals([pagesIn(windows, 2), pagesIn(windows, 3), pagesIn(ONE_GROUP, 7)], [2, Infinity, 7]);
});
