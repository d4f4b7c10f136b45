/**
 * Which cases of a test run this time. Compiling pipelines for software Vulkan takes most of the time of all tests. So
 * the gate runs a part of the cases there. A printed seed draws them; the next run draws others. WASM and GPUs run all
 * of them, and so does `deno task test:full`.
 *
 * @module
 */

import { devices } from "../../src/backend/devices.ts";
import { hashOf, turnOf } from "../../scripts/test/seed.ts";
import { generator } from "./oracles/oracle.ts";
import { SEED, TIER } from "./tier.ts";

const SOFTWARE: ReadonlySet<string> = new Set(devices().filter((d) => d.type === "cpu").map((d) => d.name));

/** Whether a device runs a part of the cases only. */
export function drawsCases(device: string): boolean {
  return TIER !== "full" && SOFTWARE.has(device);
}

/** A list in an order that the name and the seed give. */
function shuffle<T>(list: readonly T[], name: string, seed: string): T[] {
  const next = generator(hashOf(`${seed} ${name}`));
  return list.map((item) => ({ item, at: next() })).sort((a, b) => a.at - b.at).map(({ item }) => item);
}

/** Items of which the one with the most missing features is drawn. With all of them, those of few features would never be. */
const CANDIDATES = 4;

/** Few items that have every feature of the whole list at least once, in the order of the list. */
export function drawCover<T>(
  list: readonly T[],
  featuresOf: (item: T) => readonly string[],
  name: string,
  seed: string,
): readonly T[] {
  const drawn = new Set<T>();
  let left = shuffle(list, name, seed).map((item) => ({ item, missing: new Set(featuresOf(item)) }));
  while ((left = left.filter(({ missing }) => missing.size > 0)).length > 0) {
    const { item, missing } = left.slice(0, CANDIDATES).reduce((a, b) => b.missing.size > a.missing.size ? b : a);
    drawn.add(item);
    const found = [...missing];
    for (const other of left) for (const feature of found) other.missing.delete(feature);
  }
  return list.filter((item) => drawn.has(item));
}

/**
 * The cases that run on a device: all of them, or a few. The few have every feature of the whole list at least once,
 * such as each dtype and each layout. `name` tells draws apart.
 */
export function drawCases<T>(
  device: string,
  name: string,
  list: readonly T[],
  featuresOf: (item: T) => readonly string[],
): readonly T[] {
  return drawsCases(device) ? drawCover(list, featuresOf, name, SEED) : list;
}

/** The cases that run on a device: all of them, or `count` of them. The order of the list stays. */
export function drawSome<T>(device: string, name: string, list: readonly T[], count: number): readonly T[] {
  if (!drawsCases(device)) return list;
  const drawn = new Set(shuffle(list, name, SEED).slice(0, count));
  return list.filter((item) => drawn.has(item));
}

/** Whether a case runs on a device: always, or with one in `turns` seeds. `what` tells cases of the whole file apart. */
export function isDrawn(device: string, what: unknown, turns: number): boolean {
  return !drawsCases(device) || (hashOf(JSON.stringify(what)) + turnOf(SEED)) % turns === 0;
}
