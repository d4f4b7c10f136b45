/**
 * How layers with a window and layers without one share a pool of pages, as vLLM's hybrid cache manager has it.
 *
 * The memory of a pool is cut into units of one size. A unit holds {@link PAGE} positions of a few layers, of those that see all or of
 * those with a window. Each kind of layers takes as many units for a page as its layers need, any of the free ones. It has a table for each of them. So layers that see all keep the pages of a whole sequence, and layers with a window those of the window. Both take from the same memory.
 *
 * A unit has slots, each for the keys and values of one layer. Layers whose heads are smaller by an integer share a slot.
 *
 * @module
 */

import { PAGE } from "../../graph/kv_layout.ts";
import type { KvHeads } from "./heads.ts";

/** A table of a page: which unit of the page it names, and how. */
export interface PageTable {
  /** Whether its layers have a window. */
  readonly windowed: boolean;
  /** Its unit among those of a page. */
  readonly unit: number;
  /** Layers that share a slot. */
  readonly ratio: number;
  /** Its place among the layers that share a slot. */
  readonly part: number;
}

/** The units of a page. */
export interface PageGroups {
  /** Positions that layers with a window see; 0 where no layer has one. */
  readonly window: number;
  /** Units of a page for the layers that see all. */
  readonly full: number;
  /** Units of a page for the layers with a window. */
  readonly windowed: number;
  /** Tables of a sequence. */
  readonly tables: readonly PageTable[];
}

/** The same of a model, and where its layers are. */
export interface LayerGroups extends PageGroups {
  /** Slots of a unit. */
  readonly slots: number;
  /** The heads that a slot has room for. */
  readonly heads: KvHeads;
  /** The heads of the layers of each table. */
  readonly tableHeads: readonly KvHeads[];
  /** Of each layer, its table and its slot. */
  readonly places: readonly LayerPlace[];
}

/** Where a layer is. */
export interface LayerPlace {
  readonly table: number;
  readonly slot: number;
}

/** What groups depend on of a layer. */
export interface GroupedLayer {
  readonly window: number | undefined;
  readonly heads: KvHeads;
}

/** The groups of layers of one kind that see all: a page is a unit. */
export const ONE_GROUP: PageGroups = {
  window: 0,
  full: 1,
  windowed: 0,
  tables: [{ windowed: false, unit: 0, ratio: 1, part: 0 }],
};

/** Most tables of a sequence: each costs the host some work for a page. */
const MAX_TABLES = 12;
/** Pages of a long sequence for each page of its window: so much more the waste of layers that see all counts. */
const REFERENCE_PAGES = 16;

/** What a table names of a page with these units. */
export function entryOf({ unit, ratio, part }: PageTable, units: readonly number[]): number {
  return units[unit] * ratio + part;
}

/** Most pages that have one of the positions that a token sees, its own among them. */
export function pagesOfWindow(window: number, pageSize: number = PAGE): number {
  return Math.ceil((window - 1) / pageSize) + 1;
}

/** The first page that has a position which a token at `position` sees. */
export function firstPageSeen(window: number, position: number, pageSize: number = PAGE): number {
  return Math.max(0, Math.floor((position - window + 1) / pageSize));
}

/** Units that a sequence of so many pages takes while it decodes. */
export function unitsOfPages({ window, full, windowed }: PageGroups, pages: number, pageSize: number = PAGE): number {
  return pages * full + Math.min(pages, pagesOfWindow(window, pageSize)) * windowed;
}

/** Most pages of one sequence that has so many units. Without end where all layers have a window and it fits. */
export function pagesIn(groups: PageGroups, units: number, pageSize: number = PAGE): number {
  const { window, full, windowed } = groups;
  const short = Math.floor(units / (full + windowed));
  const seen = pagesOfWindow(window, pageSize);
  if (windowed === 0 || short < seen) return short;
  return full === 0 ? Infinity : Math.floor((units - seen * windowed) / full);
}

/** Groups of layers. Undefined where one table serves all of them: no layer has a window, or heads do not fit into slots. */
export function groupsOf(layers: readonly GroupedLayer[]): LayerGroups | undefined {
  const kinds = [false, true].map((windowed) => layers.filter(({ window }) => (window !== undefined) === windowed));
  if (kinds[1].length === 0 || !kinds.every((kind) => kind.every(({ heads }) => isSame(heads, kind[0].heads)))) {
    return undefined;
  }
  const heads = kinds.flatMap((kind) => kind.slice(0, 1)).map((layer) => layer.heads)
    .reduce((a, b) => (featuresOf(b)[0] > featuresOf(a)[0] ? b : a));
  const ratios = kinds.map(([first]) => (first ? ratioOf(heads, first.heads) : 1));
  if (ratios.includes(undefined)) return undefined;
  const [full, windowed] = kinds.map((kind, i) => ({
    slots: Math.ceil(kind.length / ratios[i]!),
    ratio: ratios[i]!,
    windowed: i > 0,
  }));
  const slots = slotsOf(full, windowed);
  const units = [full, windowed].map((kind) => Math.ceil(kind.slots / slots));
  const tables = [full, windowed].flatMap(({ ratio, windowed }, i) =>
    Array.from({ length: units[i] * ratio }, (_, n): PageTable => ({
      windowed,
      unit: Math.floor(n / ratio),
      ratio,
      part: n % ratio,
    }))
  );
  /** Layers of each kind so far. */
  const counts = [0, 0];
  const places = layers.map(({ window }): LayerPlace => {
    const kind = window === undefined ? 0 : 1;
    const n = counts[kind]++;
    const first = kind === 0 ? 0 : units[0] * ratios[0]!;
    return { table: first + Math.floor(n / slots), slot: n % slots };
  });
  return {
    window: Math.max(...layers.map(({ window = 0 }) => window)),
    full: units[0],
    windowed: units[1],
    tables,
    slots,
    heads,
    tableHeads: tables.map(({ windowed }) => kinds[windowed ? 1 : 0][0].heads),
    places,
  };
}

/** A kind of layers by the slots that all of them need. */
interface Kind {
  readonly slots: number;
  readonly ratio: number;
}

/** Slots of a unit: so many that pages of long sequences waste few, in few tables. */
function slotsOf(full: Kind, windowed: Kind): number {
  let best = { slots: Infinity, cost: Infinity };
  for (let slots = Math.max(full.slots, windowed.slots); slots > 0; slots--) {
    const [own, others] = [full, windowed].map((kind) => Math.ceil(kind.slots / slots));
    if (best.cost < Infinity && own * full.ratio + others * windowed.ratio > MAX_TABLES) continue;
    const cost = (REFERENCE_PAGES * own + others) * slots;
    if (cost < best.cost) best = { slots, cost };
  }
  return best.slots;
}

/** Features of keys and of values of a position. */
function featuresOf({ heads, headDim, valueDim = headDim }: KvHeads): readonly [keys: number, values: number] {
  return [heads * headDim, heads * valueDim];
}

function isSame(a: KvHeads, b: KvHeads): boolean {
  return a.heads === b.heads && a.headDim === b.headDim && (a.valueDim ?? a.headDim) === (b.valueDim ?? b.headDim);
}

/** How many layers of `small` heads have room where one of `large` has; undefined if that is no integer. */
function ratioOf(large: KvHeads, small: KvHeads): number | undefined {
  const [keys, values] = featuresOf(large).map((features, i) => features / featuresOf(small)[i]);
  return keys === values && Number.isInteger(keys) ? keys : undefined;
}
