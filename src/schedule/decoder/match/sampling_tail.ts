/**
 * The end of a step in a graph: from the logits to the new state of a loop.
 *
 * Recognised are a penalty on recent tokens, argmax and op `sample`. So is this state: the token, the position plus one, the half of a
 * split random key that the draw does not use. So are two rings by position: of tokens, and of op `logprobs`. Everything between must be
 * read by these alone.
 *
 * @module
 */

import type { StateUpdate } from "../../plan/fusion.ts";
import { MAX_RINGS, type SamplingTail, updatesOf } from "../ends.ts";
import { type Dtype, uint32 } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";
import { immediateBits } from "../../ops/elementwise_chain.ts";

import { type Choice, LARGEST, MAX_COLS } from "../../ops/sampling.ts";
import type { Walk } from "../../plan/pattern.ts";
import { isSameNumber } from "../../plan/row_position.ts";

/** The end of a step, the nodes between the logits and the new state, and the one of them that is the token. */
export interface FoundTail {
  readonly end: SamplingTail;
  readonly inside: ReadonlySet<Node>;
  readonly token: Node;
}

/** A token as the graph chooses it from logits. */
interface Chosen {
  readonly token: Node;
  /** The logits that it is chosen from. */
  readonly row: Node;
  readonly choice: Choice;
  readonly settings: Node | undefined;
  readonly mask: Node | undefined;
  readonly penalty: SamplingTail["penalty"];
  /** The node (rows, 2, 2) of the split keys whose second halves are drawn from, and the keys. */
  readonly split: { readonly halves: Node; readonly key: Node } | undefined;
}

/**
 * The end of the step whose logits are `logits`; undefined when there is none that the kernels know. `position` is that of the token that
 * was fed: state, or state plus how many other tokens were fed before it. With `late` the end comes after everything that reads the
 * position.
 */
export function findSamplingTail(
  walk: Walk,
  logits: Node,
  position: Node,
  state: readonly StateUpdate[],
  runsLast: boolean = false,
): FoundTail | undefined {
  const chosen = findChoice(walk, logits, sizeOf(position.shape));
  const end = chosen && new StateFinder(walk, chosen, position, state).find();
  if (!end) return undefined;
  const inside = between(updatesOf(end).map((u) => u.value), [logits, end.settings, end.mask]);
  return isClosed(walk, end, inside, runsLast) ? { end, inside, token: chosen.token } : undefined;
}

/** Finds in the state of a loop what a chosen token and its position become. */
class StateFinder {
  readonly #walk: Walk;
  readonly #chosen: Chosen;
  /** Of the token that was fed. */
  readonly #position: Node;
  readonly #state: readonly StateUpdate[];
  readonly #rows: number;

  constructor(walk: Walk, chosen: Chosen, position: Node, state: readonly StateUpdate[]) {
    this.#walk = walk;
    this.#chosen = chosen;
    this.#position = position;
    this.#state = state;
    this.#rows = sizeOf(position.shape);
  }

  /** All updates; undefined if one that must be there is not, or the kernels know no room for one. */
  find(): SamplingTail | undefined {
    const { choice, settings, mask, penalty, split } = this.#chosen;
    const state = this.#state;
    const next = state.find((u) => this.#isTokenState(u));
    const position = state.find((u) => this.#isPositionState(u));
    const key = split && state.find((u) => u.parameter === split.key && isHalf(u.value, split.halves, 0));
    const rings = state.filter((u) => this.#isTokenRing(u));
    const logprobs = state.map((u) => this.#logprobsRing(u)).filter((ring) => ring !== undefined);
    if (!next || !position || (split && !key) || rings.length > MAX_RINGS || logprobs.length > 1) return undefined;
    const fed = this.#position === position.parameter ? undefined : this.#position;
    return { choice, settings, mask, penalty, next, position, fed, key, rings, logprobs: logprobs[0] };
  }

  #isTokenState({ parameter, value }: StateUpdate): boolean {
    return sizeOf(parameter.shape) === this.#rows && isIndex(parameter) && this.#isToken(value);
  }

  #isPositionState({ parameter, value }: StateUpdate): boolean {
    const position = this.#position;
    const before = isElementwise(position, "add") ? position.inputs.map(viewed) : [position];
    return before.includes(parameter) && this.#isNextPosition(value);
  }

  #isTokenRing(update: StateUpdate): boolean {
    const { parameter } = update;
    if (!hasRows(parameter, this.#rows) || !isIndex(parameter)) return false;
    const written = this.#writtenNext(update, parameter.shape.length - 1);
    return written !== undefined && this.#isToken(written);
  }

  /** A ring of log probabilities of what the token is chosen from. */
  #logprobsRing(update: StateUpdate): SamplingTail["logprobs"] {
    const { shape, dtype } = update.parameter;
    const written = shape.length === 3 && shape[0] === this.#rows ? this.#writtenNext(update, 1) : undefined;
    const told = written && viewed(written);
    if (told?.op !== "logprobs" || this.#walk.graph.replaced.has(told) || dtype !== told.dtype) return undefined;
    const { row, mask } = this.#chosen;
    const [of, tokens, masked] = told.inputs;
    const fits = viewed(of) === viewed(row) && (masked && viewed(masked)) === mask && this.#isToken(tokens);
    return fits ? { ...update, top: attrsOf(told, "logprobs").top } : undefined;
  }

  #isToken(node: Node): boolean {
    return isIndex(node) && ofIndices(node) === this.#chosen.token;
  }

  #isNextPosition(node: Node): boolean {
    const sum = viewed(node);
    return isElementwise(sum, "add") && sum.inputs.some((i) => isSame(viewed(i), this.#position)) &&
      sum.inputs.some((i) => this.#walk.peekFull(i) === 1);
  }

  /** The value that a ring gets at the next position, if an update of state is one along `axis`. */
  #writtenNext({ parameter, value }: StateUpdate, axis: number): Node | undefined {
    if (value.op !== "dynamicSliceUpdate" || value.inputs[0] !== parameter) return undefined;
    const [, update, start] = value.inputs;
    const at = viewed(start);
    const { axes, donate } = attrsOf(value, "dynamicSliceUpdate");
    const fits = donate && axes.length === 1 && axes[0] === axis && isElementwise(at, "remainder") &&
      this.#isNextPosition(at.inputs[0]) && this.#walk.peekFull(at.inputs[1]) === parameter.shape[axis];
    return fits ? update : undefined;
  }
}

/**
 * Whether nothing else depends on the nodes of an end, or on state that it overwrites. A `late` end comes after everything that reads the
 * position.
 */
function isClosed(walk: Walk, end: SamplingTail, inside: ReadonlySet<Node>, late: boolean): boolean {
  const updates = updatesOf(end);
  const values = new Set(updates.map((u) => u.value));
  const own = (node: Node): boolean => walk.inside.has(node) || inside.has(node);
  const known = new Map<Node, boolean>(); // paths through layers join in each: without it their number doubles with every layer
  const readHere = (node: Node): boolean => {
    const found = known.get(node) ??
      walk.readers(node).every((r) => own(r) || (!walk.wanted.has(r) && readHere(r)));
    known.set(node, found);
    return found;
  };
  return [...inside].every((n) => values.has(n) || (!walk.wanted.has(n) && readHere(n))) &&
    updates.every((u) => (late && u === end.position) || readHere(u.parameter)) &&
    updates.every(({ value }) => walk.readers(value).every((reader) => value === end.position.value && own(reader)));
}

/** The end of a step that only chooses tokens, and the logits that another step left for it; undefined when there is none. */
export function findChoiceStep(
  walk: Walk,
  state: readonly StateUpdate[],
): FoundTail & { readonly logits: Node } | undefined {
  const sample = walk.graph.order.findLast(({ op }) => op === "sample");
  const isCounted = ({ parameter, value }: StateUpdate): boolean => {
    const sum = viewed(value);
    return isElementwise(sum, "add") && sum.inputs.some((i) => viewed(i) === parameter);
  };
  const position = state.find((u) => isIndex(u.parameter) && isCounted(u))?.parameter;
  if (!sample || !position || sizeOf(position.shape) !== sizeOf(sample.shape)) return undefined;
  const [logits] = sample.inputs;
  const found = findSamplingTail(walk, logits, position, state);
  return found && { ...found, logits };
}

/** All nodes that `results` are computed from, and they themselves, down to `ends` and leaves. */
function between(results: readonly Node[], ends: readonly (Node | undefined)[]): Set<Node> {
  const inside = new Set<Node>();
  const pending = [...results];
  for (let node = pending.pop(); node; node = pending.pop()) {
    if (ends.includes(node) || node.inputs.length === 0 || inside.has(node)) continue;
    inside.add(node);
    pending.push(...node.inputs);
  }
  return inside;
}

function findChoice(walk: Walk, logits: Node, rows: number): Chosen | undefined {
  const scatter = walk.readers(logits).find((r) => r.op === "scatterAlong" && r.inputs[0] === logits);
  const penalty = scatter && findPenalty(walk, logits, scatter, rows);
  if (scatter && !penalty) return undefined;
  let row = scatter ?? logits;
  for (;;) {
    const readers = walk.readers(row);
    const argmax = readers.find((r) => r.op === "reduce" && attrsOf(r, "reduce").fn === "argmax");
    if (argmax && sizeOf(argmax.shape) === rows && argmax.dtype === uint32) {
      return { token: argmax, row, choice: LARGEST, settings: undefined, mask: undefined, penalty, split: undefined };
    }
    const sample = readers.find((r) => r.op === "sample" && !walk.graph.replaced.has(r));
    if (sample) {
      const choice = attrsOf(sample, "sample");
      const mask = choice.masked ? viewed(sample.inputs.at(-1)!) : undefined;
      const [, settings, uniforms] = choice.draws ? sample.inputs : [];
      const split = uniforms && findSplit(uniforms, rows);
      return split || !choice.draws ? { token: sample, row, choice, settings, mask, penalty, split } : undefined;
    }
    if (readers.length !== 1 || readers[0].op !== "reshape") return undefined;
    row = readers[0];
  }
}

/** logits with where(seen < 0, seen * factor, seen / factor) written at the recent tokens, seen being what stood there. */
function findPenalty(walk: Walk, logits: Node, scatter: Node, rows: number): SamplingTail["penalty"] {
  const [, indices, lowered] = scatter.inputs;
  const recent = viewed(indices);
  if (
    attrsOf(scatter, "scatterAlong").fn !== "assign" || recent.op !== "parameter" || !isIndex(recent) ||
    !hasRows(recent, rows) || sizeOf(logits.shape) > rows * MAX_COLS || !isElementwise(lowered, "select")
  ) return undefined;
  const [less, multiplied, divided] = lowered.inputs;
  const seen = multiplied.inputs[0];
  const operation = (node: Node, fn: string): number | undefined =>
    isElementwise(node, fn) && node.inputs[0] === seen ? walk.peekFull(node.inputs[1]) : undefined;
  const factor = operation(multiplied, "multiply");
  const fits = seen?.op === "gatherAlong" && seen.inputs[0] === logits && viewed(seen.inputs[1]) === recent &&
    operation(less, "less") === 0 && operation(divided, "divide") === factor && multiplied.dtype === logits.dtype;
  return fits && factor !== undefined ? { recent, factor: roundedTo(logits.dtype, factor) } : undefined;
}

/** The split key that uniform numbers are drawn from: min(bits(second half) * 2^-32, the largest float below 1). */
function findSplit(uniforms: Node, rows: number): Chosen["split"] {
  const under = scaled(uniforms, "minimum", 1 - 2 ** -24);
  const cast = under && scaled(under, "multiply", 2 ** -32);
  const word = cast && isElementwise(cast, "cast") ? cast.inputs[0] : undefined;
  if (word?.op !== "randomBits" || sizeOf(word.shape) !== rows) return undefined;
  const half = viewed(word.inputs[0]);
  const halves = half.op === "slice" ? half.inputs[0] : undefined;
  if (halves?.op !== "randomBits" || sizeOf(halves.shape) !== 4 * rows || !isHalf(half, halves, 1)) return undefined;
  const [key] = halves.inputs;
  return key.op === "parameter" && sizeOf(key.shape) === 2 * rows ? { halves, key } : undefined;
}

/** x of fn(x, value) over float32. */
function scaled(node: Node, fn: string, value: number): Node | undefined {
  if (!isElementwise(node, fn)) return undefined;
  const [x, scalar] = node.inputs.map(viewed);
  return scalar.op === "full" && attrsOf(scalar, "full").value === value ? x : undefined;
}

/** Whether a node is half `which` of every key. */
function isHalf(node: Node, halves: Node, which: 0 | 1): boolean {
  const slice = viewed(node);
  if (slice.op !== "slice" || slice.inputs[0] !== halves || 2 * sizeOf(slice.shape) !== sizeOf(halves.shape)) {
    return false;
  }
  const { starts, steps } = attrsOf(slice, "slice");
  const last = halves.shape.length - 1;
  return halves.shape[last - 1] === 2 && halves.shape[last] === 2 && slice.shape[last - 1] === 1 &&
    starts.every((start, axis) => start === (axis === last - 1 ? which : 0)) && steps.every((step) => step === 1);
}

/** Steps through views that keep the order of elements. */
function viewed(node: Node): Node {
  while (
    ["reshape", "contiguous"].includes(node.op) ||
    (node.op === "broadcast" && sizeOf(node.shape) === sizeOf(node.inputs[0].shape))
  ) {
    node = node.inputs[0];
  }
  return node;
}

function isElementwise(node: Node, fn: string): boolean {
  return node.op === "elementwise" && attrsOf(node, "elementwise").fn === fn;
}

/** Whether two nodes are one, or sums of the same. */
function isSame(a: Node, b: Node): boolean {
  const [these, those] = [a, b].map((n) => isElementwise(n, "add") ? n.inputs.map(viewed) : []);
  return a === b || (these.length > 0 && these.every((n) => those.some((m) => isSameNumber(n, m))));
}

/** Steps through views and casts between integers. */
function ofIndices(node: Node): Node {
  for (;;) {
    const base = viewed(node);
    if (!isElementwise(base, "cast") || base.inputs[0].dtype.kind === "float") return base;
    node = base.inputs[0];
  }
}

/** Whether a node is (rows, n), or (n,) if there is one row. */
function hasRows(node: Node, rows: number): boolean {
  return node.shape.length === 2 ? node.shape[0] === rows : node.shape.length === 1 && rows === 1;
}

function isIndex(node: Node): boolean {
  return node.dtype.kind !== "float" && node.dtype.bytes === 4;
}

/** A scalar as an operand of that dtype. */
function roundedTo(dtype: Dtype, value: number): number {
  return new Float32Array(Uint32Array.of(immediateBits(dtype, value)).buffer)[0];
}
