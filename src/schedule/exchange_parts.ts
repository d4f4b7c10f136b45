/**
 * Cuts the graph of a step at its collectives, so that each part between them is a Plan.
 *
 * A node is in the first part that has all of its inputs: that of the collectives before it, and one more. What a later part reads of it is
 * carried in a buffer. Leaves and views of them are in every part that reads them, so that no weight is carried.
 *
 * @module
 */

import { makeNode, type Node, type OpName } from "../graph/node.ts";
import { sameShape } from "../graph/shape.ts";
import { VIEWS } from "./plan/donation.ts";
import { inputsFirst } from "./plan/order.ts";
import { type StateSpec, StepGraph } from "./step_graph.ts";

/** Ops that may write into the memory of their first input. */
const UPDATES: ReadonlySet<OpName> = new Set<OpName>([
  "sliceUpdate",
  "dynamicSliceUpdate",
  "scatter",
  "scatterAlong",
  "appendPages",
  "copyPages",
]);

/** A collective with the buffers of its input and of its result; -1 where nothing reads that. */
export interface Exchange {
  readonly node: Node;
  readonly input: number;
  readonly result: number;
}

/** A part of a step. */
export interface StepPart {
  /** Its graph: over the state, then over the buffers of `buffers`. */
  readonly graph: StepGraph;
  /** The buffers that it reads or writes. */
  readonly buffers: readonly number[];
  /** What is exchanged after it. */
  readonly exchanges: readonly Exchange[];
}

/** A step in parts, and the buffers that carry values between them. */
export interface StepParts {
  readonly parts: readonly StepPart[];
  readonly buffers: readonly StateSpec[];
}

/** A value that is carried: made by a part, or exchanged after it, and read until another. */
interface Carried {
  readonly made: number;
  until: number;
  buffer: number;
}

/** Cuts a graph at the nodes of `collectives`. */
export function cutAtCollectives(graph: StepGraph, collectives: ReadonlySet<Node>): StepParts {
  return new Cutter(graph, collectives).cut();
}

class Cutter {
  readonly #graph: StepGraph;
  readonly #collectives: ReadonlySet<Node>;
  readonly #order: readonly Node[];
  /** The part of each node; undefined for one that is in every part that reads it. */
  readonly #partOf = new Map<Node, number | undefined>();
  /** The last part. */
  #last = 0;
  readonly #carried = new Map<Node, Carried>();
  readonly #buffers: StateSpec[] = [];

  constructor(graph: StepGraph, collectives: ReadonlySet<Node>) {
    this.#graph = graph;
    this.#collectives = collectives;
    this.#order = inputsFirst(graph.outputs, (node) => node.inputs);
    this.#number();
  }

  cut(): StepParts {
    const { outputs, parameters } = this.#graph;
    const inPlace = outputs.map((node, i) => this.#inPlace(node, parameters[i]));
    this.#carry(inPlace);
    this.#allocate();
    const parts = Array.from({ length: this.#last + 1 }, (_, part) => this.#partGraph(part, inPlace));
    return { parts, buffers: this.#buffers };
  }

  /** The part from which on a node's value is there. */
  #from(node: Node): number | undefined {
    const part = this.#partOf.get(node);
    return this.#collectives.has(node) ? part! + 1 : part;
  }

  #number(): void {
    const ofState = new Set<Node>(this.#graph.parameters);
    for (const node of this.#order) {
      const froms = node.inputs.map((input) => this.#from(input)).filter((from) => from !== undefined);
      const depends = node.inputs.some((input) => ofState.has(input));
      if (depends) ofState.add(node);
      const anywhere = froms.length === 0 && (VIEWS.has(node.op) || !depends) && !this.#collectives.has(node);
      this.#partOf.set(node, anywhere ? undefined : Math.max(0, ...froms));
      this.#last = Math.max(this.#last, this.#from(node) ?? 0);
    }
  }

  /** The part in which a parameter's new value is written into its memory, where no later part reads the old one; else undefined. */
  #inPlace(output: Node, parameter: Node): number | undefined {
    const part = this.#partOf.get(output);
    if (part === undefined) return undefined;
    const chain = new Set<Node>();
    let node = output;
    for (; node !== parameter; node = node.inputs[0]) {
      const at = this.#partOf.get(node);
      if (!(VIEWS.has(node.op) || UPDATES.has(node.op)) || (at !== undefined && at !== part)) return undefined;
      chain.add(node);
    }
    const views = new Set<Node>([parameter]); // of the old value
    for (const reader of this.#order) {
      if (chain.has(reader) || !reader.inputs.some((input) => views.has(input))) continue;
      const at = this.#partOf.get(reader);
      if (at === undefined) views.add(reader);
      else if (at > part) return undefined;
    }
    return part < this.#last && this.#graph.outputs.some((other) => views.has(other)) ? undefined : part;
  }

  /** Notes what later parts, collectives and the end of the step read. */
  #carry(inPlace: readonly (number | undefined)[]): void {
    const note = (node: Node, until: number, made = this.#partOf.get(node)): void => {
      if (made === undefined) return;
      const known = this.#carried.get(node);
      if (known) known.until = Math.max(known.until, until);
      else this.#carried.set(node, { made, until, buffer: -1 });
    };
    for (const node of this.#order) {
      const part = this.#partOf.get(node);
      if (part === undefined) continue;
      const exchanges = this.#collectives.has(node);
      for (const input of node.inputs) {
        const made = this.#partOf.get(input) ?? (exchanges ? part : undefined);
        if (exchanges || this.#collectives.has(input) || made! < part) note(input, part, made);
      }
    }
    this.#graph.outputs.forEach((node, i) => {
      if (inPlace[i] === undefined && this.#partOf.get(node) !== this.#last) note(node, this.#last);
    });
  }

  /** Gives carried values buffers. One whose last reader is in an earlier part lends its own. */
  #allocate(): void {
    const taken: { readonly buffer: number; readonly until: number }[] = [];
    for (const [{ shape, dtype }, value] of [...this.#carried].sort(([, a], [, b]) => a.made - b.made)) {
      const at = taken.findIndex(({ buffer, until }) => {
        const spec = this.#buffers[buffer];
        return until < value.made && spec.dtype === dtype && sameShape(spec.shape, shape);
      });
      value.buffer = at >= 0 ? taken.splice(at, 1)[0].buffer : this.#buffers.push({ shape, dtype }) - 1;
      taken.push({ buffer: value.buffer, until: value.until });
    }
  }

  /** The graph of a part. */
  #partGraph(part: number, inPlace: readonly (number | undefined)[]): StepPart {
    const { state, stacks, parameters, outputs, backend } = this.#graph;
    // A collective's result is written after the part that makes its input, and read by later ones.
    const held = [...this.#carried].filter(([node, { made, until }]) =>
      part <= until && (this.#collectives.has(node) ? made < part : made <= part)
    );
    const buffers = held.map(([, { buffer }]) => buffer);
    const graph = new StepGraph(
      [...state, ...buffers.map((buffer) => this.#buffers[buffer])],
      stacks,
      (own) => {
        const copies = new Map<Node, Node>(parameters.map((node, i) => [node, own[i]]));
        held.forEach(([node, { made }], i) => made < part && copies.set(node, own[parameters.length + i]));
        const values = [
          ...outputs.map((node, i) => (inPlace[i] ?? this.#last) === part ? node : parameters[i]),
          ...held.map(([node]) => node),
        ];
        for (const node of inputsFirst(values, (node) => copies.has(node) ? [] : node.inputs)) {
          if (copies.has(node)) continue;
          const { op, inputs, shape, dtype, attrs, composite } = node;
          copies.set(
            node,
            inputs.length === 0
              ? node
              : makeNode(op, inputs.map((input) => copies.get(input)!), shape, dtype, attrs, composite),
          );
        }
        return values.map((node) => copies.get(node)!);
      },
      () => backend,
    );
    const bufferOf = (node: Node): number => this.#carried.get(node)?.buffer ?? -1;
    const exchanges = this.#order.filter((node) => this.#collectives.has(node) && this.#partOf.get(node) === part)
      .sort((a, b) => a.id - b.id) // as the program made them, which is the same order on all processes
      .map((node) => ({ node, input: bufferOf(node.inputs[0]), result: bufferOf(node) }));
    return { graph, buffers, exchanges };
  }
}
