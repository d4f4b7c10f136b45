/**
 * Lowers the nodes of one graph in order. A value comes from the fusion that claimed the node, its composite, an elementwise
 * chain or the rule of its op.
 *
 * @module
 */

import { float32, isHalf } from "../graph/dtype.ts";
import { attrsOf, type Node, type OpName } from "../graph/node.ts";
import { sameShape } from "../graph/shape.ts";
import { FUSERS } from "./fusers.ts";
import { leafValue } from "./leaves.ts";
import { buildChain, canGrow, type Chain, emitChain } from "./ops/elementwise_chain.ts";
import { emitWide, isWideElementwise } from "./ops/elementwise_wide.ts";
import type { RuleName } from "./ops/rule.ts";
import { RULES } from "./ops/rules.ts";
import type { PendingGraph } from "./pending_graph.ts";
import type { Lowering } from "./plan/context.ts";
import { Donations } from "./plan/donation.ts";
import type { Fusion, FusionContext, StateUpdate } from "./plan/fusion.ts";
import type { LowerOptions } from "./plan/options.ts";
import type { Value } from "./plan/value.ts";

/** Ops whose rules take operands in blocks or pages, as they are in memory. */
const BLOCK_READERS: ReadonlySet<OpName> = new Set<OpName>(["attention", "sinkAttention"]);

/** Nodes of a graph on their way into a Plan, and the values of those that were lowered. */
export class NodeLowering {
  readonly #l: Lowering;
  readonly #graph: PendingGraph;
  readonly #options: LowerOptions;
  readonly #donations: Donations;
  readonly #values = new Map<Node, Value>();
  /** Values of nodes with several results, which nodes `part` name. */
  readonly #results = new Map<Node, readonly Value[]>();
  /** Chains of elementwise nodes that wait for their only reader to take them over. */
  readonly #held = new Map<Node, Chain>();
  readonly #fusions: Fusion[] = [];
  readonly #lowered = new Set<Node>();

  constructor(l: Lowering, graph: PendingGraph, options: LowerOptions) {
    this.#l = l;
    this.#graph = graph;
    this.#options = options;
    this.#donations = new Donations(graph, graph.wanted);
  }

  /** Lowers all nodes. `state` is what the graph replaces, if it is a step of a loop. */
  lowerAll(state: readonly StateUpdate[]): void {
    this.#fuse(state);
    for (const node of this.#graph.order) this.#lower(node);
    for (const fusion of this.#fusions) fusion.finish?.();
  }

  /** The value of a node that was lowered, with strides alone. */
  value(node: Node): Value {
    const value = this.#stored(node);
    if (!value.blocks && !value.pages) return value;
    const joined = this.#l.plain(value);
    this.#values.set(node, joined);
    return joined;
  }

  /** The value of a node as it lies in memory: in blocks or pages where attention may read it so. */
  #stored(node: Node): Value {
    const chain = this.#held.get(node);
    if (chain) {
      this.#held.delete(node);
      this.#setOwn(node, this.#dispatch(chain));
    }
    return this.#values.get(node)!;
  }

  /** Takes a value that is no view of another node's. */
  #setOwn(node: Node, value: Value): void {
    this.#values.set(node, value);
    this.#donations.note(node, value);
  }

  // ---- fusions --------------------------------------------------------------------------------------------------------

  /** Asks all fusers what they find. */
  #fuse(state: readonly StateUpdate[]): void {
    const context: FusionContext = {
      l: this.#l,
      graph: this.#graph,
      wanted: this.#graph.wanted,
      state,
      leaf: (node) => this.#leaf(node),
      value: (node) => this.#leaf(node) ?? this.#lowerEarly(node),
      done: (node, value) => void this.#values.set(node, value),
    };
    for (const fuser of FUSERS) {
      const isAsked = fuser.enabled(this.#options) && fuser.ops.some((op) => this.#graph.ops.has(op));
      if (isAsked) this.#fusions.push(...fuser.match(context));
    }
  }

  #leaf(node: Node): Value | undefined {
    const value = this.#values.get(node) ?? leafValue(this.#l, node);
    if (value) this.#values.set(node, value);
    return value;
  }

  /** Lowers a node whose turn may not have come yet, and what it is computed from. */
  #lowerEarly(node: Node): Value {
    const stack = [node];
    for (let next = stack.at(-1); next; next = stack.at(-1)) {
      const pending = this.#lowered.has(next)
        ? []
        : this.#graph.inputs(next).filter((input) => !this.#lowered.has(input));
      stack.push(...pending);
      if (pending.length > 0) continue;
      this.#lower(next);
      stack.pop();
    }
    return this.value(node);
  }

  // ---- a node ---------------------------------------------------------------------------------------------------------

  #lower(node: Node): void {
    if (this.#lowered.has(node)) return;
    this.#lowered.add(node);
    const fusion = this.#fusions.findLast(({ inside }) => inside.has(node));
    const composite = this.#graph.replaced.get(node);
    if (fusion) fusion.emit(node);
    else if (composite) this.#values.set(node, this.value(composite));
    else if (isWideElementwise(node)) this.#lowerWide(node);
    else if (node.op === "elementwise") this.#lowerElementwise(node);
    else if (node.op === "part") this.#setOwn(node, this.#results.get(node.inputs[0])![attrsOf(node, "part").index]);
    else if (!this.#isImmediate(node)) this.#applyRule(node);
  }

  #lowerWide(node: Node): void {
    this.#l.from(node.op);
    this.#setOwn(node, emitWide(this.#l, node, node.inputs.map((input) => this.value(input))));
  }

  #applyRule(node: Node): void {
    const l = this.#l;
    l.from(node.op);
    const valueOf = (input: Node): Value => BLOCK_READERS.has(node.op) ? this.#stored(input) : this.value(input);
    const result = leafValue(l, node) ?? RULES[node.op as RuleName](l, node, node.inputs.map(valueOf));
    if (Array.isArray(result)) this.#results.set(node, result as readonly Value[]);
    else this.#setOwn(node, result as Value);
  }

  /** Whether a node is a scalar that all of its readers take as an immediate. */
  #isImmediate(node: Node): boolean {
    if (node.op !== "full" || this.#graph.wanted.has(node)) return false;
    return this.#readers(node).every((reader) =>
      reader.op === "elementwise" && !isWideElementwise(reader) &&
      reader.inputs.filter((input) => input.op === "full").length <= 2
    );
  }

  #readers(node: Node): readonly Node[] {
    return this.#graph.readers.get(node) ?? [];
  }

  // ---- elementwise chains ---------------------------------------------------------------------------------------------

  #lowerElementwise(node: Node): void {
    const chain = buildChain(node, (input) => this.#held.get(input), (input) => this.value(input));
    // Chains that were taken over are not dispatched by themselves.
    for (const input of node.inputs) this.#held.delete(input);
    if (this.#isReadUnwidened(chain)) this.#values.set(node, this.#l.broadcast(chain.inputs[0], node.shape));
    else if (this.#isTakenOver(chain)) this.#held.set(node, chain);
    else this.#setOwn(node, this.#dispatch(chain));
  }

  /** Whether a chain only widens 16-bit floats to float32, which all of its readers do themselves. */
  #isReadUnwidened(chain: Chain): boolean {
    const { node } = chain;
    return this.#options.fuse && isWidening(chain) && !this.#graph.wanted.has(node) &&
      this.#readers(node).every((reader) => readsAnyFloats(reader, node));
  }

  /** Whether the only reader of a chain will take it over. */
  #isTakenOver(chain: Chain): boolean {
    const { node } = chain;
    if (!this.#options.fuse || !this.#graph.isReadLast(node) || !canGrow(chain)) return false;
    const [reader] = this.#readers(node);
    return reader.op === "elementwise" && !isWideElementwise(reader) && sameShape(reader.shape, node.shape);
  }

  /** Writes the dispatch of a chain, if it does more than show its input; the result may lie in the memory of an input. */
  #dispatch(chain: Chain): Value {
    const { node, inputs, sources, steps } = chain;
    const l = this.#l;
    if (steps.length === 0 && inputs[0].dtype === node.dtype) return l.broadcast(inputs[0], node.shape);
    let out: Value | undefined;
    inputs.forEach((input, i) => out ??= this.#donations.take(l, node, sources[i], input));
    out ??= l.temporary(node.shape, node.dtype);
    l.from(node.op);
    emitChain(l, chain, out);
    return out;
  }
}

/** Whether a chain is a cast from 16-bit floats to float32 and nothing else. */
function isWidening({ node, inputs, steps }: Chain): boolean {
  return steps.length === 0 && node.dtype === float32 && isHalf(inputs[0].dtype);
}

/** Whether the kernels of a node read floats of any dtype, in float32: they need no copy `input` in float32. */
function readsAnyFloats(node: Node, input: Node): boolean {
  if (node.op === "quantizedMatmul") return node.inputs.every((other, i) => (other === input) === (i === 0));
  return node.op === "matmul" || node.op === "reduce" || (node.op === "elementwise" && !isWideElementwise(node));
}
