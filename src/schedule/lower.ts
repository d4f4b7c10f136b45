/**
 * From nodes to one Plan: orders the pending graph, runs the rules, places intermediates.
 *
 * The result is independent of where results and intermediates will lie; `execute.ts` binds the slots.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { Node } from "../graph/node.ts";
import { isContiguous } from "../graph/shape.ts";
import { leafValue } from "./leaves.ts";
import { NodeLowering } from "./node_lowering.ts";
import { PendingGraph } from "./pending_graph.ts";
import { type BlockPlace, type Lifetime, place } from "./plan/arena.ts";
import { type DispatchOrder, orderDispatches, SMALL_BYTES } from "./plan/dispatch_order.ts";
import { Lowering, type Probe, type SlotSource } from "./plan/context.ts";
import type { LowerOptions } from "./plan/options.ts";
import { type DispatchSource, profiler } from "./plan/profile.ts";
import { pruneRows } from "./plan/row_pruning.ts";
import type { Storage } from "./plan/storage.ts";
import type { Value } from "./plan/value.ts";
import { runPrepared } from "./plan/weight_layouts.ts";
import { tuningOf } from "./tuning/choose.ts";

/** The binding of a slot of a lowered Plan: existing storage, a parameter, a result to allocate, or a block of an arena. */
export type SlotBinding =
  | Exclude<SlotSource, { kind: "temporary" }>
  | { readonly kind: "arena" } & BlockPlace;

/** Where an output lies after a run. */
export interface Output {
  readonly slot: number;
  readonly offset: number;
  readonly strides: readonly number[];
}

/** A lowered graph. */
export interface Lowered {
  /** Undefined when nothing has to run: all outputs are views. */
  readonly words: Uint32Array | undefined;
  /** Where each dispatch comes from, for profiles. */
  readonly sources: readonly DispatchSource[];
  readonly slots: readonly SlotBinding[];
  /** Bytes of each arena. */
  readonly arenas: readonly number[];
  /** One per output asked for, then one per node of `inPlace` that was not asked for. */
  readonly outputs: readonly Output[];
  /** Nodes that were written in place although no caller asked for it: they must settle too, their base is overwritten. */
  readonly inPlace: readonly Node[];
  /** Leaves whose storage an output takes over. */
  readonly donated: readonly Node[];
  /** Storages among the slots that are written although no leaf says so: nothing else reads them. */
  readonly overwritten: readonly Storage[];
  /** One of the slots' storages: a visible word that is not 0 once a dispatch has failed. */
  readonly status: Storage | undefined;
  /** Would tell whether lowering again gives a faster Plan; while it runs the slots' storages must be held. */
  readonly probe: Probe | undefined;
}

/**
 * Lowers the graph of `outputs` for one backend. Leaves with host or file content are uploaded on the way. The result holds one reference
 * of each storage in its slots, which {@link Executable} takes over.
 */
export function lower(outputs: readonly Node[], backend: Backend, options: LowerOptions): Lowered {
  return profiler.host("lowering", () => lowerGraph(outputs, backend, options));
}

function lowerGraph(outputs: readonly Node[], backend: Backend, options: LowerOptions): Lowered {
  pruneRows(outputs);
  tuningOf(backend); // the first call tells of the record, before what is chosen by it
  const graph = new PendingGraph(outputs, backend, options);
  const l = new Lowering(backend, (node, writer) => graph.isReadLast(node, writer), options.reusable ?? false);
  try {
    const lowered = lowerNodes(l, graph, outputs, options);
    // Before the composites go: storage that only they hold is still needed.
    for (const slot of lowered.slots) if (slot.kind === "storage") slot.storage.retain();
    return lowered;
  } finally {
    runPrepared(l);
    for (const storage of l.kept) storage.release();
    graph.release();
  }
}

function lowerNodes(l: Lowering, graph: PendingGraph, outputs: readonly Node[], options: LowerOptions): Lowered {
  const { writeBack } = options;
  const nodes = new NodeLowering(l, graph, options);
  nodes.lowerAll((writeBack ?? []).map((parameter, i) => ({ parameter, value: outputs[i] })));
  l.from("output");
  const result = (node: Node): Value => l.plain(nodes.value(node));
  if (writeBack) {
    copyBack(l, writeBack, outputs.map(result));
    return finish(l, [], []);
  }
  const inPlace = l.donated.map(({ node }) => node).filter((node) => !graph.wanted.has(node));
  return finish(l, [...outputs, ...inPlace].map(result), inPlace);
}

/** Copies new values into the parameters that they replace, after everything that reads the old ones. */
function copyBack(l: Lowering, parameters: readonly Node[], values: readonly Value[]): void {
  const targets = parameters.map((node) => leafValue(l, node)!);
  const slots = new Set(targets.map((t) => t.slot));
  const inPlace = (v: Value, i: number): boolean =>
    v.slot === targets[i].slot && v.offset === 0 && isContiguous(v.shape, v.strides);
  // A value that lies in a parameter is saved first: that one may be overwritten before, or while, it is copied.
  const sources = values.map((v, i) => {
    if (inPlace(v, i) || !slots.has(v.slot)) return v;
    const saved = l.temporary(v.shape, v.dtype);
    l.copy(v, saved);
    return saved;
  });
  sources.forEach((from, i) => inPlace(from, i) || l.copy(from, targets[i]));
}

/** The order of the dispatches, and when each runs. */
function orderOf(l: Lowering): DispatchOrder {
  if (!l.backend.limits.barriers) return { order: [...l.sources.keys()], epochs: [...l.sources.keys()] };
  return orderDispatches(l.sources, (slot) => {
    const source = l.slots[slot];
    return source.kind === "temporary" || source.kind === "result" ? source.bytes : 0;
  });
}

/** The first and the last use of a slot; -1 if there is none. */
type Uses = Pick<Lifetime, "first" | "last">;

/**
 * The uses of all slots, in places of the order. Dispatches between two barriers run at once, so a small value counts as used by all of
 * them. Memory that two shared would need one more barrier, but large values share it. Dispatches of a run of disjoint writes have one
 * place, since no barrier comes between their writes.
 */
function usesOf(l: Lowering, { order, epochs }: DispatchOrder): readonly Uses[] {
  const between: { first: number; last: number }[] = []; // the places between two barriers
  const places: number[] = [];
  for (const dispatch of order) {
    const isOfRun = l.sources[dispatch].disjoint && places.length > 0;
    const place = isOfRun ? places.at(-1)! : (places.at(-1) ?? -1) + 1;
    places.push(place);
    (between[epochs[dispatch]] ??= { first: place, last: place }).last = place;
  }
  const uses = l.slots.map(() => ({ first: -1, last: -1 }));
  order.forEach((dispatch, at) => {
    const own = { first: places[at], last: places[at] };
    for (const value of l.sources[dispatch].values) {
      if (!value) continue;
      const source = l.slots[value.slot];
      const isLarge = source.kind === "temporary" && source.bytes > SMALL_BYTES;
      const { first, last } = isLarge ? own : between[epochs[dispatch]];
      const use = uses[value.slot];
      if (use.first < 0) use.first = first;
      use.last = last;
    }
  });
  return uses;
}

/** Places intermediates and turns the slots of outputs into results. */
function finish(l: Lowering, outputs: readonly Value[], inPlace: readonly Node[]): Lowered {
  const escaping = new Set(outputs.map((v) => v.slot));
  const dispatches = orderOf(l);
  const uses = usesOf(l, dispatches);
  const temporaries = l.slots
    .map((source, slot) => ({ source, slot, ...uses[slot] }))
    .filter((t) => t.source.kind === "temporary" && !escaping.has(t.slot) && t.first >= 0);
  const placement = place(
    temporaries.map((t) => ({ bytes: (t.source as { bytes: number }).bytes, first: t.first, last: t.last })),
    l.backend.limits.maxBufferBytes,
  );

  const slots: SlotBinding[] = [];
  const number = new Map<number, number>();
  const arenaSlot = new Map<number, number>();
  l.slots.forEach((source, slot) => {
    if (source.kind !== "temporary") {
      if (uses[slot].first < 0 && !escaping.has(slot)) return;
      number.set(slot, slots.push(source) - 1);
    } else if (escaping.has(slot)) {
      number.set(slot, slots.push({ kind: "result", bytes: source.bytes }) - 1);
    }
  });
  temporaries.forEach((t, i) => {
    const block = placement.blockOf[i];
    if (!arenaSlot.has(block)) {
      arenaSlot.set(block, slots.push({ kind: "arena", ...placement.places[block] }) - 1);
    }
    number.set(t.slot, arenaSlot.get(block)!);
  });
  return {
    words: l.builder.dispatches > 0
      ? l.builder.finish(slots.length, (slot) => number.get(slot)!, dispatches.order)
      : undefined,
    sources: dispatches.order.map((dispatch) => l.sources[dispatch]),
    slots,
    arenas: placement.arenas,
    outputs: outputs.map((v) => ({ slot: number.get(v.slot)!, offset: v.offset, strides: v.strides })),
    inPlace,
    donated: l.donated.map((d) => d.base),
    overwritten: l.overwritten,
    status: l.status,
    probe: l.probe,
  };
}
