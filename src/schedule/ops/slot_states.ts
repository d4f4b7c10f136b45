/**
 * Recurrent states of several sequences that are among others, in slots of one array. Plain array code gathers them, takes zeros for a
 * sequence that begins, and scatters the next ones. Kernels of recurrent ops read and write the slots instead.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { sameShape, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Fuser, Fusion, FusionContext } from "../plan/fusion.ts";
import { isFn, Walk } from "../plan/pattern.ts";
import type { Value } from "../plan/value.ts";
import { writable } from "./indexing.ts";
import { causalConv, gatedDelta, type SlotStates } from "./recurrent.ts";
import type { Inputs } from "./rule.ts";

/** A recurrent op: its result has the outputs and then the last states. */
interface RecurrentOp {
  /** Which input is the state. */
  readonly state: number;
  /** Which input has the shape of the outputs. */
  readonly outputs: number;
  readonly emit: (l: Lowering, node: Node, inputs: Inputs, slots: SlotStates) => Value;
}

const RECURRENT_OPS = {
  gatedDelta: { state: 5, outputs: 2, emit: gatedDelta },
  causalConv: { state: 0, outputs: 1, emit: causalConv },
} as const satisfies Partial<Record<Node["op"], RecurrentOp>>;

/** What an op reads of states in slots: the rows at `index` of `states`, or zeros at position 0. */
export interface SlotRead {
  readonly states: Node;
  /** int32 (B,) */
  readonly index: Node;
  /** int32 (B,) */
  readonly position: Node;
  /** The gather of the rows. */
  readonly rows: Node;
  /** All that it consists of. */
  readonly inside: readonly Node[];
}

/** The read of slots whose result is `node`; undefined if it is something else. */
export function slotRead(walk: Walk, node: Node): SlotRead | undefined {
  if (!isFn(node, "select")) return undefined;
  const [begun, own, zero] = node.inputs.map((input) => walk.peekIndex(input));
  if (own.op !== "gather" || attrsOf(own, "gather").axis !== 0 || !isFn(begun, "greater")) return undefined;
  const [states, index] = own.inputs;
  const [position, least] = begun.inputs;
  const [count] = node.shape;
  const areOfRows = node.inputs[0].shape[0] === count &&
    [index, position].every(({ shape, dtype }) => sizeOf(shape) === count && dtype === int32);
  const isPlain = areOfRows && sameShape(own.shape, node.shape) && walk.peekFull(zero) === 0 &&
    walk.peekFull(least) === 0;
  if (!isPlain) return undefined;
  const inside = [node, own, begun];
  for (let at = node.inputs[0]; at !== begun; at = at.inputs[0]) inside.push(at);
  return { states, index: walk.peekIndex(index), position: walk.peekIndex(position), rows: own, inside };
}

/** A recurrent op over slots. */
interface SlotOp {
  readonly node: Node;
  readonly read: SlotRead;
  /** The scatter of the last states to the slots; undefined if nothing reads those. */
  readonly scatter: Node | undefined;
  /** From the op to the scatter. */
  readonly inside: readonly Node[];
}

/** Recurrent ops whose states are in slots. */
export const slotStatesFuser: Fuser = {
  ops: ["gatedDelta", "causalConv"],
  enabled: ({ fuse }) => fuse,
  match: (context) => findSlotOps(context).flatMap((ops) => ops.map((one) => fusionOf(context, one, ops))),
};

function fusionOf({ l, value, done }: FusionContext, one: SlotOp, ops: readonly SlotOp[]): Fusion {
  const { node, read: { states, index, position, inside }, scatter } = one;
  return {
    inside: new Set([...inside, ...one.inside]),
    emit(at) {
      if (at !== node) return;
      const { state, emit } = RECURRENT_OPS[node.op as keyof typeof RECURRENT_OPS];
      const inputs = node.inputs.map((input, i) => i === state ? undefined : value(input)) as unknown as Inputs;
      const places = { index: value(index), position: value(position) };
      // The others read the states as they were, so they are lowered by now.
      if (scatter) { for (const other of ops) if (other !== one) value(other.node); }
      const base = l.contiguous(value(states), true);
      const all = scatter ? writable(l, scatter, base, attrsOf(scatter, "scatter").donate) : base;
      l.from(node.op);
      const out = emit(l, node, inputs, { states: all, ...places, replaced: scatter !== undefined });
      done(node, { ...out, shape: node.shape }); // a slice reads its outputs alone
      if (scatter) done(scatter, all);
    },
  };
}

/** All recurrent ops of a graph that can read their states in slots, and replace them there: those over one array, in their order. */
function findSlotOps({ graph, wanted }: FusionContext): readonly (readonly SlotOp[])[] {
  const walk = new Walk(graph, wanted);
  const found = graph.order.flatMap((node) => slotOp(walk, node) ?? []);
  return [...Map.groupBy(found, ({ read }) => read.states)].flatMap(([states, ops]) =>
    canShare(walk, states, ops) ? [ops] : []
  );
}

/** Whether such ops alone read states in slots, and the one that replaces them is the last of them. */
function canShare(walk: Walk, states: Node, ops: readonly SlotOp[]): boolean {
  const reads = ops.flatMap(({ read }) => read.inside);
  const readers = new Set([...reads, ...ops.map(({ node }) => node)]);
  const isHidden = (node: Node): boolean =>
    !walk.wanted.has(node) && walk.readers(node).every((reader) => readers.has(reader));
  const owners = new Set([...ops.map(({ read }) => read.rows), ...ops.map(({ scatter }) => scatter)]);
  return reads.every(isHidden) && walk.readers(states).every((reader) => owners.has(reader)) &&
    ops.slice(0, -1).every(({ scatter }) => scatter === undefined);
}

/** An op that reads slots, and leaves its last states there or nowhere. */
function slotOp(walk: Walk, node: Node): SlotOp | undefined {
  const op: RecurrentOp | undefined = RECURRENT_OPS[node.op as keyof typeof RECURRENT_OPS];
  if (!op || walk.graph.replaced.has(node) || walk.wanted.has(node)) return undefined;
  const read = slotRead(walk, node.inputs[op.state]);
  if (!read) return undefined;
  const start = sizeOf(node.inputs[op.outputs].shape);
  const slices = walk.readers(node).map((reader) => ({ reader, from: startOf(reader) }));
  if (slices.some(({ from }) => from !== 0 && from !== start)) return undefined;
  const last = slices.filter(({ from }) => from === start);
  if (last.length === 0) return { node, read, scatter: undefined, inside: [node] };
  const inside = [node, last[0].reader];
  for (;;) {
    const at = inside.at(-1)!;
    const [reader, ...others] = walk.readers(at);
    if (last.length > 1 || !reader || others.length > 0 || walk.wanted.has(at)) return undefined;
    inside.push(reader);
    if (isScatterOf(walk, reader, at, read)) return { node, read, scatter: reader, inside };
    if (!["reshape", "contiguous"].includes(reader.op) || sizeOf(reader.shape) !== sizeOf(at.shape)) return undefined;
  }
}

/** Whether a node replaces the states that were read by others. */
function isScatterOf(walk: Walk, node: Node, values: Node, { states, index }: SlotRead): boolean {
  if (node.op !== "scatter") return false;
  const { axis, fn } = attrsOf(node, "scatter");
  return axis === 0 && fn === "assign" && node.inputs[0] === states && walk.peekIndex(node.inputs[1]) === index &&
    node.inputs[2] === values && values.dtype === states.dtype &&
    sameShape(values.shape.slice(1), states.shape.slice(1));
}

/** The first element that a node takes of its input of one dimension; undefined if it is no slice. */
export function startOf(node: Node): number | undefined {
  if (node.op !== "slice") return undefined;
  const { starts, steps } = attrsOf(node, "slice");
  return starts.length === 1 && steps[0] === 1 ? starts[0] : undefined;
}
