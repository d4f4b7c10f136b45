/**
 * The choice of a replica: random traces against a plain model of it, which keeps whole texts.
 */

import { assert, assertEquals } from "@std/assert";
import { BLOCK, blocksOf, Prefixes } from "../../src/server/replicas/prefixes.ts";
import { promptBlocks } from "../../src/server/replicas/prompt.ts";
import { Router } from "../../src/server/replicas/router.ts";

/** Numbers below a limit, the same ones for a seed (mulberry32). */
function drawsOf(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  };
}

/** A text that begins like others: each part is one of a few, so that prefixes of every length are shared. */
function drawText(draw: (limit: number) => number): string {
  return Array.from({ length: draw(30) }, () => "abc"[draw(3)].repeat(40 + 10 * draw(2))).join("");
}

/** Whole blocks that two texts begin with. */
function sharedBlocks(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return Math.floor(at / BLOCK);
}

Deno.test("blocks of two texts are equal as far as the texts are", () => {
  const draw = drawsOf(1);
  for (let i = 0; i < 300; i++) {
    const [a, b] = [drawText(draw), drawText(draw)];
    const [one, other] = [blocksOf(a), blocksOf(b)];
    assertEquals(one.length, Math.floor(a.length / BLOCK));
    const end = one.findIndex((block, k) => block !== other[k]);
    assertEquals(end < 0 ? one.length : end, sharedBlocks(a, b));
    assertEquals(new Set(one).size, one.length, "two blocks of a text have one hash");
  }
  const text = "x".repeat(3 * BLOCK);
  for (let i = 0; i < text.length; i++) {
    const other = blocksOf(text.slice(0, i) + "y" + text.slice(i + 1));
    assertEquals(other.map((block, k) => block === blocksOf(text)[k]), [0, 1, 2].map((k) => k < Math.floor(i / BLOCK)));
  }
});

Deno.test("prefixes keep the blocks that were used last, beginnings longest", () => {
  const prefixes = new Prefixes(10);
  const [a, b] = ["a", "b"].map((mark) => blocksOf(mark.repeat(8 * BLOCK)));
  prefixes.add(a);
  assertEquals([prefixes.match(a), prefixes.match(b), prefixes.size], [8, 0, 8]);
  prefixes.add(b);
  assertEquals([prefixes.match(a), prefixes.match(b), prefixes.size], [2, 8, 10]);
  prefixes.add(a.slice(0, 2));
  prefixes.add(blocksOf("c".repeat(4 * BLOCK)));
  assertEquals([prefixes.match(a), prefixes.match(b)], [2, 4]);
  prefixes.add(blocksOf("d".repeat(100 * BLOCK)));
  assertEquals([prefixes.size, prefixes.match(blocksOf("d".repeat(100 * BLOCK)))], [10, 10]);
  prefixes.clear();
  assertEquals([prefixes.size, prefixes.match(a)], [0, 0]);
});

Deno.test("random traces: the longest prefix that counts, unless its replica is too busy; else the least busy one", () => {
  for (let seed = 1; seed <= 40; seed++) {
    const draw = drawsOf(seed);
    const count = 1 + draw(5);
    const router = new Router(count);
    const texts: string[][] = Array.from({ length: count }, () => []);
    const loads = new Array(count).fill(0);
    const last = new Array(count).fill(0);
    const open: [replica: number, end: () => void][] = [];
    for (let step = 1; step <= 200; step++) {
      if (open.length > 0 && draw(10) < (seed % 2 ? 3 : 5)) {
        const [[replica, end]] = open.splice(draw(open.length), 1);
        end();
        end(); // counts once
        loads[replica]--;
        continue;
      }
      if (draw(60) === 0) {
        const gone = draw(count);
        router.forget(gone);
        texts[gone] = [];
      }
      const text = drawText(draw);
      const candidates = Array.from({ length: count }, (_, i) => i).filter(() => draw(8) > 0);
      const found = router.choose(blocksOf(text), candidates);
      assertEquals(router.loads, loads);
      if (candidates.length === 0) {
        assertEquals(found, undefined);
        continue;
      }
      const matched = texts.map((known) => Math.max(0, ...known.map((one) => sharedBlocks(one, text))));
      const least = Math.min(...candidates.map((i) => loads[i]));
      const fits = (i: number): boolean => matched[i] > 0 && loads[i] - 1.5 * least <= Math.min(8, matched[i] / 16);
      const known = candidates.filter(fits);
      const better = (a: number, b: number): boolean => {
        const keys = (i: number): number[] =>
          known.length > 0 ? [-matched[i], loads[i], last[i]] : [loads[i], -matched[i], last[i]];
        const [x, y] = [keys(a), keys(b)];
        const k = x.findIndex((value, at) => value !== y[at]);
        return k >= 0 && x[k] < y[k];
      };
      const expected = (known.length > 0 ? known : candidates).reduce((best, i) => better(i, best) ? i : best);
      const reason = known.length > 0 ? "prefix" : "load";
      assertEquals(found, { replica: expected, matched: matched[expected], reason }, `seed ${seed}, step ${step}`);
      open.push([expected, router.begin(expected, blocksOf(text))]);
      texts[expected].push(text);
      loads[expected]++;
      last[expected] = step;
    }
  }
});

Deno.test("few requests with one short beginning do not wait for each other", () => {
  const router = new Router(2);
  for (let i = 0; i < 8; i++) {
    const blocks = blocksOf(`${"You are helpful. ".repeat(10)}${i}`);
    router.begin(router.choose(blocks, [0, 1])!.replica, blocks);
  }
  assertEquals(router.loads, [4, 4]);
});

Deno.test("many requests with one long beginning spread, and each goes on where it was", () => {
  const router = new Router(4);
  const system = "You answer questions about the sea. ".repeat(60);
  const ends = Array.from({ length: 100 }, (_, i) => {
    const blocks = blocksOf(`${system} Question ${i}: ${"what ".repeat(i)}`);
    const { replica } = router.choose(blocks, [0, 1, 2, 3])!;
    return { replica, blocks, end: router.begin(replica, blocks) };
  });
  const { loads } = router;
  assert(Math.max(...loads) <= 1.5 * Math.min(...loads) + 4, `loads ${loads}`);
  for (const { end } of ends) end();
  assertEquals(router.loads, [0, 0, 0, 0]);
  const own = ends.filter(({ blocks }, i) => i > 50 && blocks.length > 16);
  for (const { replica, blocks } of own) assertEquals(router.choose(blocks, [0, 1, 2, 3])!.replica, replica);
});

Deno.test("a conversation and the one that goes on from it begin alike; other fields do not count", () => {
  const fields = ["model", "tools", "messages"];
  const turns = Array.from({ length: 6 }, (_, i) => ({
    role: i % 2 ? "assistant" : "user",
    content: `Turn ${i}: ${"word ".repeat(40)}`,
  }));
  const before = promptBlocks({ messages: turns.slice(0, 4), temperature: 1 }, fields);
  const after = promptBlocks({ stream: true, messages: turns }, fields);
  assertEquals(after.slice(0, before.length - 1), before.slice(0, -1));
  assert(before.length > 10 && after.length > before.length);
  assert(promptBlocks({ model: "other", messages: turns }, fields)[0] !== after[0]);
  assertEquals(promptBlocks({ messages: turns }), []);
});
