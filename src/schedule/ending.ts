/**
 * The end of a step that is no decoder's: final norm, head and choice of the token for one row, such as the last one of a prompt,
 * by the kernels that end a decoder's step.
 *
 * It is found from the loop's state upwards and emitted behind everything else, since it overwrites state that others read.
 *
 * @module
 */

import { attrsOf, type Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { isFloat, isHalf, type Matrix } from "./decoder.ts";
import { emitEnd, headResults, type StateUpdate, type StepEnd } from "./decoder_end.ts";
import { headAffine } from "./decoder_layouts.ts";
import type { Lowering, Value } from "./lowering.ts";
import { options } from "./options.ts";
import { prepare } from "./prepared.ts";
import { findEnd } from "./region_end.ts";
import { expect, type GraphView, Mismatch, Walk } from "./region_walk.ts";

/** The end of a step as found in a graph. */
interface Found {
  /** The row (…, 1, hidden) before the final norm. */
  readonly x: Node;
  readonly norm: Node;
  readonly eps: number;
  readonly head: Matrix;
  readonly hidden: number;
  readonly bits: number;
  readonly groupSize: number;
  readonly logits: Node;
  readonly end: StepEnd;
  readonly inside: ReadonlySet<Node>;
}

const THREADS = 256;
/** Threads that the kernels want to exchange values by shuffles. */
const LANES = 32;
/** Workgroups of the head: four for each of the multiprocessors of a large GPU. */
const WORKGROUPS = 528;

/** The end of a step, ready to be emitted. */
export class Ending {
  /** Nodes that need no lowering of their own. */
  readonly inside: ReadonlySet<Node>;
  readonly #l: Lowering;
  readonly #found: Found;
  readonly #affine: Value;

  /** `affine` holds scales and biases of the head in the layout of its kernel. */
  constructor(l: Lowering, found: Found, affine: Value) {
    this.inside = found.inside;
    this.#l = l;
    this.#found = found;
    this.#affine = affine;
  }

  /** Emits it, behind everything that reads the state. `value` gives values of nodes outside, `done` takes those of the new state. */
  emit(value: (node: Node) => Value, done: (node: Node, value: Value) => void): void {
    const { x, norm, eps, head, hidden, groupSize, logits, end } = this.#found;
    const l = this.#l;
    const plain = (node: Node): Value => l.contiguous(value(node), true);
    const vocabulary = sizeOf(logits.shape);
    const workgroups = Math.min(WORKGROUPS, Math.ceil(vocabulary / LANES));
    const results = headResults(l, logits, false, 1, vocabulary, workgroups, end, value);
    const row = plain(x);
    const buffers = [row, plain(norm), plain(head.codes), this.#affine];
    l.emit("decode_head_row", [...buffers, results.logits, results.best, results.scratch, results.recent], {
      threads: THREADS,
      spec: {
        HIDDEN: hidden,
        GROUP: groupSize,
        DTYPE_W: norm.dtype.code,
        SUBGROUP: Math.min(LANES, l.backend.limits.subgroup),
        DTYPE_X: row.dtype.code,
        ...UNUSED.spec,
        ...results.spec,
      },
      push: { vocabulary, eps, ...UNUSED.push },
      workgroups: [1, workgroups, 1],
    });
    emitEnd(l, results, 1, vocabulary, undefined, end, value, done);
  }
}

/** What kernels of the layers look at, and the head does not. */
const UNUSED = {
  spec: { INTERMEDIATE: 8, KV_HEADS: 1, HEADS: 1, HEAD_DIM: 8, DTYPE_KV: 0, COPIES: 1, UNROLL: 1, ROUNDS: 1 },
  push: { capacity: 0, layer: 0, head_eps: 0, score_scale: 0, rope_scale: 0, log2_base: 0 },
} as const;

/**
 * Looks for the end of a step that replaces `state`. `leaf` gives values of leaves. Undefined where there is nothing like it; a
 * reason where the kernels cannot serve it.
 */
export function openEnding(
  l: Lowering,
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  state: readonly StateUpdate[],
  leaf: (node: Node) => Value | undefined,
): Ending | string | undefined {
  const product = graph.order.findLast((n) => n.op === "quantizedMatmul" && sizeOf(n.shape) === n.shape.at(-1));
  if (!product || state.length === 0 || !l.backend.has("decode_head_row")) return undefined;
  const { subgroup, maxThreads } = l.backend.limits;
  if (options.regions === "auto" && subgroup < LANES) return undefined;
  try {
    expect(maxThreads >= THREADS, `workgroups have at most ${maxThreads} threads, ${THREADS} are needed`);
    const found = find(new Walk(graph, wanted), product, state);
    const { head: { scales, biases }, hidden, groupSize, logits } = found;
    const sources = [leaf(scales), leaf(biases)];
    const layout = headAffine(sizeOf(logits.shape), hidden, groupSize);
    const affine = sources.every((s) => s !== undefined) ? prepare(l, sources, layout) : undefined;
    expect(affine !== undefined, "the head's scales are not stored as arrays of their own, or there is no memory");
    return new Ending(l, found, affine[0]);
  } catch (error) {
    if (error instanceof Mismatch) return error.message;
    throw error;
  }
}

function find(walk: Walk, product: Node, state: readonly StateUpdate[]): Found {
  const { matrix: head, x: normed, bits, groupSize } = walk.product(product, "the head");
  const { x, weight, eps } = walk.norm(normed, "the final norm");
  const hidden = head.scales.shape[1] * groupSize;
  const logits = walk.upward(product);
  const found = findFed(walk, logits, state);
  expect(found !== undefined, "no token is chosen from the logits that the state's rest follows from");
  const { end, inside } = found;

  expect(bits === 4 && groupSize % 32 === 0, `the head has ${bits} bits in groups of ${groupSize}`);
  expect(hidden % 128 === 0 && hidden <= 8192, `the hidden size ${hidden} is no multiple of 128 up to 8192`);
  const alike = [weight, head.scales, head.biases].every(({ dtype }) => isHalf(dtype) && dtype === weight.dtype);
  expect(alike, "scales and norm weights are not all float16 or all bfloat16");
  expect(isFloat(x.dtype) && isFloat(logits.dtype), "the logits are no floats");

  walk.inside.delete(logits);
  const own = new Set([...walk.inside, logits, ...inside]);
  const values = new Set<Node>(updatesOf(end).map(({ value }) => value));
  for (const node of own) {
    expect(values.has(node) || !walk.wanted.has(node), `the result of ${node.op} is asked for`);
    const outside = walk.readers(node).find((r) => !own.has(r));
    expect(outside === undefined, `${outside?.op} also reads the result of ${node.op}`);
  }
  // What else there is in the state stays, or is written in place: it is no view of what is overwritten here.
  const stays = ({ parameter, value }: StateUpdate): boolean =>
    values.has(value) || value === parameter || value.inputs[0] === parameter;
  expect(state.every(stays), "other state is computed anew");
  return { x, norm: weight, eps, head, hidden, bits, groupSize, logits, end, inside: own };
}

/** The end of the step, where one of the state's positions counts the tokens that were fed. */
function findFed(walk: Walk, logits: Node, state: readonly StateUpdate[]): ReturnType<typeof findEnd> {
  for (const { parameter, value } of state) {
    if (parameter === value || value.op !== "elementwise" || attrsOf(value, "elementwise").fn !== "add") continue;
    const position = value.inputs.map((n) => walk.peekIndex(n)).find((n) => n.op !== "full");
    const found = position && findEnd(walk, logits, position, state, true);
    if (found) return found;
  }
  return undefined;
}

function updatesOf({ next, position, key, rings }: StepEnd): readonly StateUpdate[] {
  return [next, position, ...(key ? [key] : []), ...rings];
}
