/**
 * From nodes to one Plan: orders the pending graph, runs the rules, places intermediates.
 *
 * The result is independent of where results and intermediates will lie; `execute.ts` binds the slots.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { float32, isHalf } from "../graph/dtype.ts";
import { attrsOf, newestNode, type Node } from "../graph/node.ts";
import { contiguousStrides, isContiguous, sameShape, sizeOf } from "../graph/shape.ts";
import { buildChain, canGrow, type Chain, emitChain } from "./ops/elementwise_chain.ts";
import { emitWide, isWideElementwise } from "./ops/elementwise_wide.ts";
import { explainFallback } from "../backend/explain.ts";
import { FUSERS } from "./fusers.ts";
import { openLeaf } from "./leaves.ts";
import { Lowering, type Probe, type SlotSource } from "./plan/context.ts";
import { Donations } from "./plan/donation.ts";
import type { Value } from "./plan/value.ts";
import { type BlockPlace, place } from "./plan/arena.ts";
import type { Fusion } from "./plan/fusion.ts";
import type { LowerOptions } from "./plan/options.ts";
import { inputsFirst } from "./plan/order.ts";
import { pruneRows } from "./plan/row_pruning.ts";
import { runPrepared } from "./plan/weight_layouts.ts";
import { type DispatchSource, profiler } from "./plan/profile.ts";
import { FUSED_OPS, type FusedName, type FusedOp } from "./ops/fused_ops.ts";
import type { RuleName } from "./ops/rule.ts";
import { RULES } from "./ops/rules.ts";
import { type SharedMemory, Storage } from "./plan/storage.ts";
import { tuningOf } from "./tuning/choose.ts";

/** What a slot of a lowered Plan is bound to: existing storage, a parameter, a result to allocate, or a block of an arena. */
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
  /** Nodes that were written in place although nobody asked for them: they must settle too, their base is overwritten. */
  readonly inPlace: readonly Node[];
  /** Leaves whose storage an output takes over. */
  readonly donated: readonly Node[];
  /** Storages among the slots that are written although no leaf says so: nobody else reads them. */
  readonly overwritten: readonly Storage[];
  /** One of the slots' storages: a visible word that is not 0 once a dispatch has failed. */
  readonly status: Storage | undefined;
  /** Would tell whether lowering again gives a faster Plan; while it runs the slots' storages must be held. */
  readonly probe: Probe | undefined;
}

/** Makes device storage of a leaf with host or file content. */
function upload(node: Node, backend: Backend): void {
  const bytes = contiguousBytes(node);
  if (node.op === "data") {
    const { bytes: content, visible, within } = attrsOf(node, "data");
    const storage = within
      ? (within.memory as SharedMemory).take(backend, within.bytes)
      : new Storage(backend, bytes, visible);
    // The batches of a training loop are; a cache's rows, without content, are let go by their owner, and looking for those that were
    // forgotten would take milliseconds of every prompt.
    if (content) storage.countAsResult();
    if (content && bytes > 0) backend.write(storage.buffer, 0, content);
    node.settle({ storage, offset: within?.offset ?? 0, strides: within?.strides ?? contiguousStrides(node.shape) });
    return;
  }
  const load = bytes > 0 ? openLeaf(node) : undefined;
  const storage = new Storage(backend, bytes);
  try {
    load?.(backend, storage.buffer, 0);
  } catch (error) {
    storage.release();
    throw error;
  }
  node.settle({ storage, offset: 0, strides: contiguousStrides(node.shape) });
}

function contiguousBytes(node: Node): number {
  return sizeOf(node.shape) * node.dtype.bytes;
}

/** Settles leaves that only need their content on the device. */
export function uploadLeaf(node: Node, backend: Backend): boolean {
  if (node.op !== "data" && node.op !== "file") return false;
  upload(node, backend);
  return true;
}

/** The pending graph behind `outputs` in an order in which inputs come first, fused ops replaced by composites where needed. */
class Graph {
  readonly order: readonly Node[];
  /** Distinct nodes that read each node. */
  readonly readers = new Map<Node, Node[]>();
  /** Composites that stand for fused nodes. */
  readonly replaced = new Map<Node, Node>();

  constructor(outputs: readonly Node[], backend: Backend, options: LowerOptions) {
    const newest = newestNode();
    const found = inputsFirst(outputs, (node) => {
      node.check();
      const fused: FusedOp | undefined = FUSED_OPS[node.op as FusedName];
      const kernel = fused?.kernel(node, backend);
      if (fused && node.composite && (!options.fuse || !kernel || !backend.has(kernel))) {
        if (options.fuse) {
          const why = kernel ? `${backend.name} has no kernel ${kernel}` : "its sizes are beyond the kernel";
          explainFallback(`${node.op}: in primitives, because ${why}`);
        }
        const composite = node.composite(node);
        composite.retain();
        this.replaced.set(node, composite);
      }
      return this.inputs(node);
    });
    // In the order in which the program made them: then a derivative reads what is computed again for it at once, and lets it go.
    const made = found.filter((node) => node.id <= newest).sort((a, b) => a.id - b.id);
    this.order = inputsFirst(made, (node) => this.inputs(node));
    for (const node of this.order) {
      for (const input of new Set(this.inputs(node))) {
        const list = this.readers.get(input);
        if (list) list.push(node);
        else this.readers.set(input, [node]);
      }
    }
  }

  inputs(node: Node): readonly Node[] {
    const composite = this.replaced.get(node);
    return composite ? [composite] : node.inputs;
  }

  /** Lets the composites go. */
  release(): void {
    for (const composite of this.replaced.values()) composite.release();
  }
}

/**
 * Lowers the graph behind `outputs` for one backend. Leaves with host or file content are uploaded on the way. The result
 * holds one reference of each storage in its slots, which {@link Executable} takes over.
 */
export function lower(outputs: readonly Node[], backend: Backend, options: LowerOptions): Lowered {
  return profiler.host("lowering", () => lowerGraph(outputs, backend, options));
}

function lowerGraph(outputs: readonly Node[], backend: Backend, options: LowerOptions): Lowered {
  pruneRows(outputs);
  tuningOf(backend); // the first call tells of the record, before what is chosen by it
  const graph = new Graph(outputs, backend, options);
  const wanted = new Set(outputs);
  const lastReader = (node: Node): boolean => (graph.readers.get(node)?.length ?? 0) === 1 && !wanted.has(node);
  const l = new Lowering(backend, lastReader, options.reusable ?? false);
  try {
    const lowered = walk(l, graph, outputs, wanted, options);
    // Before the composites go: storage that only they hold is still needed.
    for (const slot of lowered.slots) if (slot.kind === "storage") slot.storage.retain();
    return lowered;
  } finally {
    runPrepared(l);
    for (const storage of l.kept) storage.release();
    graph.release();
  }
}

function walk(
  l: Lowering,
  graph: Graph,
  outputs: readonly Node[],
  wanted: ReadonlySet<Node>,
  options: LowerOptions,
): Lowered {
  const { backend } = l;
  const values = new Map<Node, Value>();
  const parts = new Map<Node, readonly Value[]>();
  const held = new Map<Node, Chain>();
  const donations = new Donations(graph, wanted);

  const setOwn = (node: Node, at: Value): void => {
    values.set(node, at);
    donations.note(node, at);
  };
  // What a node's value is, in blocks where attention may read it so.
  const asItLies = (node: Node): Value => {
    const chain = held.get(node);
    if (chain) {
      held.delete(node);
      setOwn(node, dispatchChain(l, chain, donations));
    }
    return values.get(node)!;
  };
  const value = (node: Node): Value => {
    const found = asItLies(node);
    if (!found.blocks) return found;
    const joined = l.plain(found);
    values.set(node, joined);
    return joined;
  };

  const leafValue = (node: Node): Value | undefined => {
    const there = values.get(node) ?? leaf(l, node, backend);
    if (there) values.set(node, there);
    return there;
  };
  const done = new Set<Node>();
  const fusions: Fusion[] = [];
  const lowerNode = (node: Node): void => {
    if (done.has(node)) return;
    done.add(node);
    const fusion = fusions.find(({ inside }) => inside.has(node));
    if (fusion) return fusion.emit(node);
    const composite = graph.replaced.get(node);
    if (composite) {
      values.set(node, value(composite));
    } else if (isWideElementwise(node)) {
      l.from(node.op);
      setOwn(node, emitWide(l, node, node.inputs.map(value)));
    } else if (node.op === "elementwise") {
      const chain = buildChain(node, (input) => held.get(input), value);
      // Chains that were taken over are not dispatched by themselves.
      for (const input of node.inputs) held.delete(input);
      const [reader, ...others] = graph.readers.get(node) ?? [];
      if (
        options.fuse && isWidened(chain) && !wanted.has(node) &&
        graph.readers.get(node)!.every((reader) => readsFloats(reader, node))
      ) {
        values.set(node, l.broadcast(chain.inputs[0], node.shape));
        return;
      }
      const joins = options.fuse && reader?.op === "elementwise" && !isWideElementwise(reader) && others.length === 0 &&
        !wanted.has(node) &&
        sameShape(reader.shape, node.shape) && canGrow(chain);
      if (joins) held.set(node, chain);
      else setOwn(node, dispatchChain(l, chain, donations));
    } else if (node.op === "part") {
      setOwn(node, parts.get(node.inputs[0])![attrsOf(node, "part").index]);
    } else if (node.op === "full" && onlyImmediate(graph, node, wanted)) {
      return; // an immediate of every reader
    } else {
      l.from(node.op);
      const result = leaf(l, node, backend) ??
        RULES[node.op as RuleName](l, node, node.inputs.map(node.op === "attention" ? asItLies : value));
      if (Array.isArray(result)) parts.set(node, result as readonly Value[]);
      else setOwn(node, result as Value);
    }
  };
  /** The value of a node whose turn may not have come yet. */
  const early = (node: Node): Value => {
    const stack = [node];
    for (let next = stack.at(-1); next; next = stack.at(-1)) {
      const open = done.has(next) ? [] : graph.inputs(next).filter((input) => !done.has(input));
      stack.push(...open);
      if (open.length > 0) continue;
      lowerNode(next);
      stack.pop();
    }
    return value(node);
  };
  const context = {
    l,
    graph,
    wanted,
    state: (options.writeBack ?? []).map((parameter, i) => ({ parameter, value: outputs[i] })),
    before: fusions,
    leaf: leafValue,
    value: (node: Node): Value => leafValue(node) ?? early(node),
    done: (node: Node, at: Value): void => void values.set(node, at),
  };
  for (const fuser of FUSERS) {
    const found = fuser.enabled(options) ? fuser.match(context) : undefined;
    if (found) fusions.push(found);
  }
  for (const node of graph.order) lowerNode(node);
  for (const fusion of fusions) fusion.finish?.();
  l.from("output");
  const result = (node: Node): Value => l.plain(value(node));
  if (options.writeBack) {
    writeBack(l, options.writeBack, outputs.map(result));
    return finish(l, [], []);
  }
  const inPlace = l.donated.map((d) => d.node).filter((node) => !wanted.has(node));
  return finish(l, [...outputs, ...inPlace].map(result), inPlace);
}

/** Copies new values into the parameters that they replace, after everything that reads the old ones. */
function writeBack(l: Lowering, parameters: readonly Node[], values: readonly Value[]): void {
  const targets = parameters.map((node) => leaf(l, node, l.backend)!);
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

/** Whether a scalar node can stay an immediate: every reader is an elementwise op with room for it. */
function onlyImmediate(graph: Graph, node: Node, wanted: ReadonlySet<Node>): boolean {
  if (wanted.has(node)) return false;
  const readers = graph.readers.get(node) ?? [];
  return readers.every((r) =>
    r.op === "elementwise" && !isWideElementwise(r) && r.inputs.filter((i) => i.op === "full").length <= 2
  );
}

/** Whether a chain is a cast from halves to float32 and nothing else. */
function isWidened({ node, inputs, steps }: Chain): boolean {
  return steps.length === 0 && node.dtype === float32 && isHalf(inputs[0].dtype);
}

/** Whether the kernels of a node read floats of any dtype as they lie, in float32: a copy `input` in float32 has the same numbers. */
function readsFloats(node: Node, input: Node): boolean {
  if (node.op === "quantizedMatmul") return node.inputs.every((other, i) => (other === input) === (i === 0));
  return node.op === "matmul" || node.op === "reduce" || (node.op === "elementwise" && !isWideElementwise(node));
}

function leaf(l: Lowering, node: Node, backend: Backend): Value | undefined {
  if (node.op === "parameter") {
    const { index } = attrsOf(node, "parameter");
    return {
      slot: l.parameterSlot(index),
      offset: 0,
      strides: contiguousStrides(node.shape),
      shape: node.shape,
      dtype: node.dtype,
    };
  }
  uploadLeaf(node, backend);
  if (node.op !== "stored") return undefined;
  const { storage, offset, strides, packing } = node.stored!;
  return { slot: l.storageSlot(storage as Storage), offset, strides, shape: node.shape, dtype: node.dtype, packing };
}

function dispatchChain(l: Lowering, chain: Chain, donations: Donations): Value {
  const { node } = chain;
  // No step and the same dtype: the value itself.
  if (chain.steps.length === 0 && chain.inputs[0].dtype === node.dtype) return l.broadcast(chain.inputs[0], node.shape);
  let out: Value | undefined;
  chain.inputs.forEach((input, i) => out ??= donations.take(l, node, chain.sources[i], input));
  out ??= l.temporary(node.shape, node.dtype);
  l.from(node.op);
  emitChain(l, chain, out);
  return out;
}

/** Places intermediates and turns the slots of outputs into results. */
function finish(l: Lowering, outputs: readonly Value[], inPlace: readonly Node[]): Lowered {
  const escaping = new Set(outputs.map((v) => v.slot));
  const temporaries = l.slots
    .map((source, slot) => ({ source, slot, ...l.uses[slot] }))
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
      if (l.uses[slot].first < 0 && !escaping.has(slot)) return;
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
    words: l.builder.dispatches > 0 ? l.builder.finish(slots.length, (slot) => number.get(slot)!) : undefined,
    sources: l.sources,
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
