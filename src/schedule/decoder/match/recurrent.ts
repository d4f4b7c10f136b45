/**
 * A layer with a gated delta net in the place of attention, in a step of a loop. The layer is that of src/llm/layers/delta_net.ts with a
 * feed-forward part, and its states are the loop's. Where drafted tokens are verified, other ops replace the states later, and the layer leaves
 * what they read.
 *
 * @module
 */

import { float32, isFloat } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sameShape, sizeOf } from "../../../graph/shape.ts";
import { slotRead, startOf } from "../../ops/slot_states.ts";
import type { StateUpdate } from "../../plan/fusion.ts";
import { columnSlice, expect, isFn, type Product, rowCount, type Walk } from "../../plan/pattern.ts";
import {
  type KeptInputs,
  mixedFeatures,
  netFormats,
  type NetSizes,
  type RecurrentLayer,
  type RecurrentPart,
  type StateSlot,
} from "../recurrent_layer.ts";
import { findActivation } from "./activation.ts";
import { unbiased } from "./gated.ts";
import { type FeedForward, findFeedForward, residual } from "./layer.ts";

/** A layer as found, with what all layers must share. */
export interface FoundRecurrent extends Omit<RecurrentPart, "layers"> {
  readonly layer: Omit<RecurrentLayer, "before">;
  /** The residual that it reads. */
  readonly x: Node;
  readonly eps: number;
  readonly feedForward: FeedForward;
  /** Sequences, and tokens of each. */
  readonly rows: readonly [sequences: number, tokens: number];
}

/** What the delta rule reads and leaves. */
interface Rule {
  readonly past: StateUpdate;
  readonly matrix: StateUpdate;
  readonly slot: StateSlot | undefined;
  readonly kept: KeptInputs | undefined;
  readonly rows: readonly [sequences: number, tokens: number];
  readonly net: NetSizes;
  readonly unitEps: number;
  readonly mixed: Product;
  readonly b: Product;
  readonly a: Product;
  readonly conv: Node;
  readonly dtBias: Node;
  readonly logRate: Node;
}

/** The recurrent layer whose result is `node`; undefined when it is something else. */
export function findRecurrentLayer(
  walk: Walk,
  node: Node,
  state: readonly StateUpdate[],
): FoundRecurrent | undefined {
  const feedForward = findFeedForward(walk, node);
  if (!feedForward) return undefined;
  const isGated = (x: Node): boolean =>
    isFn(x, "multiply") && x.inputs.some((side) => ruleOf(walk, side) !== undefined);
  const sum = residual(walk, feedForward.x, isGated, "a delta net");
  if (!sum) return undefined;
  const isPlain = sum.scale === 1 && feedForward.scale === 1 && ![sum, feedForward].some((s) => s.postNorm || s.clips);
  expect(isPlain, "a delta net is added with a factor or a norm");
  const o = unbiased(walk, sum.product, "the output projection of a delta net");
  const sides = walk.elementwise(walk.stripViews(o.x), "multiply")!;
  const side = sides.findIndex((at) => ruleOf(walk, at) !== undefined);
  const output = walk.norm(sides[side], "the norm of a delta net");
  const gate = findActivation(walk, sides[1 - side]);
  expect(gate?.activation === "silu", "the result of a delta net is not multiplied by silu of a gate");
  const z = unbiased(walk, gate.x, "the gate of a delta net");
  const rule = findRule(walk, walk.stripViews(output.x), state);
  const { mixed, b, a } = rule;
  const norm = walk.norm(mixed.x, "the norm before a delta net");
  for (const { x } of [z, b, a]) {
    expect(walk.stripViews(x) === walk.peek(mixed.x), "the products of a delta net read different rows");
  }
  expect(walk.peek(norm.x) === walk.peek(sum.x), "the norm and the residual of a delta net differ");
  walk.stripViews(norm.x);
  const eps = norm.eps;
  expect(eps === feedForward.norm.eps, "the norms have different eps");
  const matrices = {
    mixed: mixed.matrix,
    z: z.matrix,
    b: b.matrix,
    a: a.matrix,
    o: o.matrix,
    router: feedForward.experts?.router.matrix,
    gate: feedForward.gate.matrix,
    up: feedForward.up.matrix,
    down: feedForward.down.matrix,
    shared: feedForward.shared,
  };
  checkSizes(matrices, rule.net);
  const formats = netFormats(matrices);
  expect(typeof formats === "object", `of a delta net: ${formats}`);
  const { conv, dtBias, logRate, past, matrix, slot, kept } = rule;
  return {
    layer: {
      ...matrices,
      norm: norm.weight,
      mlpNorm: feedForward.norm.weight,
      conv,
      dtBias,
      logRate,
      outputNorm: output.weight,
      past,
      matrix,
      slot,
      kept,
      formats,
    },
    x: sum.x,
    eps,
    feedForward,
    rows: rule.rows,
    net: rule.net,
    dtype: past.parameter.dtype,
    unitEps: rule.unitEps,
    outputEps: output.eps,
  };
}

/** The delta rule whose outputs a node normalises; undefined if it does something else. */
function ruleOf(walk: Walk, node: Node): Node | undefined {
  const norm = walk.peek(node);
  const outputs = norm.op === "rmsNorm" ? walk.peek(norm.inputs[0]) : undefined;
  const rule = outputs?.op === "slice" ? outputs.inputs[0] : undefined;
  return rule?.op === "gatedDelta" ? rule : undefined;
}

function checkSizes(
  { mixed, z, b, a }: RecurrentLayer | Pick<RecurrentLayer, "mixed" | "z" | "b" | "a">,
  net: NetSizes,
): void {
  const fits = rowCount(mixed) === mixedFeatures(net) && rowCount(z) === net.valueHeads * net.valueDim &&
    [a, b].every((matrix) => rowCount(matrix) === net.valueHeads);
  expect(fits, "the sizes of the matrices of a delta net do not fit together");
}

/** The rule whose outputs are `outputs`, with its gates and the convolution before it. */
function findRule(walk: Walk, outputs: Node, state: readonly StateUpdate[]): Rule {
  expect(startOf(outputs) === 0, "the outputs of a delta net are not its first numbers");
  walk.inside.add(outputs);
  const node = walk.take(outputs.inputs[0], "gatedDelta", "what a delta net normalises");
  const { decays, normEps, hasMask, gated } = attrsOf(node, "gatedDelta");
  const isPlain = decays && normEps > 0 && gated && !hasMask;
  expect(isPlain, "a delta net has a mask, other gates, or does not normalise queries and keys");
  const [q, k, v, step, rate, before, dtBias, logRate] = node.inputs;
  const [[sequences, tokens, keyHeads, keyDim], [, , valueHeads, valueDim]] = [q.shape, v.shape];
  const parts = [q, k, v].map((part) => columnSlice(walk.stripViews(part)));
  const [source] = parts.map((part) => part?.source);
  let first = 0;
  for (const part of parts) {
    expect(
      part !== undefined && part.source === source && part.columns.first === first,
      "a delta net has no q, k and v",
    );
    first += part.columns.count;
  }
  for (const part of [q, k, v]) walk.inside.add(walk.stripViews(part));
  const convolved = walk.stripViews(source!);
  expect(convolved.op === "slice" && startOf(convolved) === 0, "the inputs of a delta net are no convolution");
  walk.inside.add(convolved);
  const conv = walk.take(convolved.inputs[0], "causalConv", "what a delta net reads");
  const { silu, hasBias, hasCounted } = attrsOf(conv, "causalConv");
  expect(silu && !hasBias && !hasCounted, "the convolution of a delta net has a bias, or no silu");
  const [past, x, weight] = conv.inputs;
  const window = weight.shape[1];
  const net = { keyHeads, valueHeads, keyDim, valueDim, window };
  expect(
    first === mixedFeatures(net) && sizeOf(x.shape) === sequences * tokens * first,
    "the convolution of a delta net has other features",
  );
  expect(before.dtype === float32, "the state of a delta net is no float32");
  const [inputs, matrix] = [[past, conv, sizeOf(x.shape)], [before, node, sizeOf(v.shape)]] as const;
  const own = updateOf(walk, state, sequences, ...inputs);
  const { update, slot, stays } = updateOf(walk, state, sequences, ...matrix);
  expect(own.stays === stays, "one state of a delta net alone is replaced by its layer");
  const kept = stays ? { x, q, k, v, rate, step, ops: [conv, node] } : undefined;
  if (kept) {
    const alike = [x, q, k, v, rate, step].every(({ dtype }) => dtype === own.update.parameter.dtype);
    expect(alike, "what states follow from has another dtype than the inputs of a convolution");
    for (const input of [x, q, k, v, rate, step]) walk.inside.add(input);
  }
  expect(
    own.slot?.index === slot?.index && own.slot?.position === slot?.position,
    "the states of a delta net are of different sequences",
  );
  return {
    past: own.update,
    matrix: update,
    slot,
    kept,
    rows: [sequences, tokens],
    net,
    unitEps: normEps,
    mixed: unbiased(walk, x, "the projection to q, k and v of a delta net"),
    b: unbiased(walk, rate, "the rate of a delta net"),
    a: unbiased(walk, step, "the decay of a delta net"),
    conv: walk.peekIndex(weight),
    dtBias: walk.stripViews(dtBias),
    logRate: walk.stripViews(logRate),
  };
}

/** An update of a loop's state, and which part of it a layer has. */
interface OwnUpdate {
  readonly update: StateUpdate;
  readonly slot: StateSlot | undefined;
  /** Whether another op replaces it. */
  readonly stays: boolean;
}

/** The update of a loop's state that an op reads as `before`, and leaves from its element `start` on. */
function updateOf(
  walk: Walk,
  state: readonly StateUpdate[],
  sequences: number,
  before: Node,
  op: Node,
  start: number,
): OwnUpdate {
  const read = slotRead(walk, before);
  expect(!read || sizeOf(read.index.shape) === sequences, "the states of a delta net are of other sequences");
  const states = read?.states ?? before;
  const update = state.find(({ parameter }) => parameter === states);
  const slot = read && { index: read.index, position: read.position };
  // What verifies drafts reads the outputs alone, once, and leaves the states to an op like it.
  const outputs = walk.readers(op);
  const stays = update !== undefined && outputs.length === 1 && startOf(outputs[0]) === 0 &&
    walk.readers(before).some((reader) => reader !== op && reader.op === op.op);
  if (stays) return { update, slot, stays };
  const written = update && walk.peek(update.value);
  const isWritten = read === undefined || written?.op === "scatter" && written.inputs[0] === states &&
      walk.peekIndex(written.inputs[1]) === read.index && attrsOf(written, "scatter").fn === "assign";
  const last = written && isWritten ? walk.peek(read ? written.inputs[2] : written) : undefined;
  const isLeft = last?.op === "slice" && last.inputs[0] === op && startOf(last) === start &&
    sizeOf(last.shape) === sizeOf(before.shape) && sameShape(update!.value.shape, states.shape);
  expect(isLeft && isFloat(states.dtype), "the states of recurrent layers are not those of a loop");
  const own: readonly Node[] = read ? [read.rows, written!] : [op];
  const isOwn = walk.readers(states).every((reader) => own.includes(reader)) &&
    (!read || walk.readers(before).every((reader) => reader === op));
  expect(isOwn, "more than its layer reads a recurrent state");
  if (read) walk.inside.add(before).add(read.rows);
  for (let at = update!.value; at !== op; at = at.op === "scatter" ? at.inputs[2] : at.inputs[0]) walk.inside.add(at);
  return { update: update!, slot, stays: false };
}
