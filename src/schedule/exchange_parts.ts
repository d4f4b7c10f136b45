/**
 * Cuts the graph of a step into parts, each of which is a Plan: at its collectives, or where data goes to another device.
 *
 * part_numbers.ts says which part computes a node. What another part reads of it is carried in a buffer, or in one on each of two
 * devices. Leaves and views of them are in every part that reads them, so that no weight is carried.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { ValueError } from "../graph/error.ts";
import { makeNode, type Node, type OpName } from "../graph/node.ts";
import { sameShape } from "../graph/shape.ts";
import type { PartNumbers } from "./part_numbers.ts";
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

/**
 * A value that goes from one array to another: what a collective makes of it, or a copy on another device. Arrays are those of the state by
 * their numbers, then the buffers. `to` is -1 if nothing reads the result.
 */
export interface Exchange {
  readonly collective?: Node;
  readonly from: number;
  readonly to: number;
}

/** A buffer on a device. */
export interface CarryBuffer extends StateSpec {
  readonly backend: Backend;
}

/** A part of a step. */
export interface StepPart {
  /** Its graph over `arrays`. */
  readonly graph: StepGraph;
  /** The arrays that it reads or writes: of the state by their numbers, then buffers. */
  readonly arrays: readonly number[];
  /** What is exchanged before it. */
  readonly exchanges: readonly Exchange[];
}

/** A step in parts, and the buffers that carry values between them. */
export interface StepParts {
  readonly parts: readonly StepPart[];
  readonly buffers: readonly CarryBuffer[];
}

/** A value that is carried on a device: written by a part, or exchanged before one. */
interface Carried {
  readonly node: Node;
  readonly backend: Backend;
  /** The part that writes it, or before which it is exchanged. */
  readonly made: number;
  readonly isExchanged: boolean;
  /** The last part that reads it, or before which it is exchanged. */
  until: number;
  buffer: number;
}

/** An exchange whose buffers are not chosen yet; `from` may be the number of an array of the state. */
interface Noted {
  readonly node: Node;
  readonly before: number;
  readonly collective?: Node;
  readonly from: Carried | number;
  readonly to: () => Carried | undefined;
}

/** Cuts a graph into its parts. */
export function cutStep(graph: StepGraph, numbers: PartNumbers): StepParts {
  return new Cutter(graph, numbers).cut();
}

class Cutter {
  readonly #graph: StepGraph;
  readonly #numbers: PartNumbers;
  readonly #last: number;
  readonly #homeOf: ReadonlyMap<Node, number>;
  readonly #carried: Carried[] = [];
  readonly #exchanges: Noted[] = [];
  readonly #buffers: CarryBuffer[] = [];

  constructor(graph: StepGraph, numbers: PartNumbers) {
    this.#graph = graph;
    this.#numbers = numbers;
    this.#last = numbers.devices.length - 1;
    this.#homeOf = new Map(graph.parameters.map((node, i) => [node, graph.parts[i].node]));
  }

  cut(): StepParts {
    const { outputs, parameters, parts: sources } = this.#graph;
    /** The part that computes each output. */
    const made = outputs.map((node, i) =>
      this.#inPlace(node, parameters[i]) ?? this.#numbers.devices.lastIndexOf(this.#numbers.homes[sources[i].node])
    );
    this.#carry(made);
    this.#allocate();
    const parts = this.#numbers.devices.map((_, part) => ({
      ...this.#partGraph(part, made),
      exchanges: this.#exchanges.filter(({ before }) => before === part).map((one) => this.#exchangeOf(one)),
    }));
    return { parts, buffers: this.#buffers };
  }

  #partOf(node: Node): number | undefined {
    return this.#numbers.partOf.get(node);
  }

  /** The part in which a parameter's new value is written into its memory, where no later part reads the old one; else undefined. */
  #inPlace(output: Node, parameter: Node): number | undefined {
    const part = this.#partOf(output);
    if (part === undefined) return undefined;
    const { devices, order } = this.#numbers;
    const chain = new Set<Node>();
    let node = output;
    for (; node !== parameter; node = node.inputs[0]) {
      const at = this.#partOf(node);
      if (!(VIEWS.has(node.op) || UPDATES.has(node.op)) || (at !== undefined && at !== part)) return undefined;
      chain.add(node);
    }
    const views = new Set<Node>([parameter]); // of the old value
    for (const reader of order) {
      if (chain.has(reader) || !reader.inputs.some((input) => views.has(input))) continue;
      const at = this.#partOf(reader);
      if (at === undefined) views.add(reader);
      else if (at > part && devices[at] === devices[part]) return undefined; // other devices have a copy of it
    }
    return part < this.#last && this.#graph.outputs.some((other) => views.has(other)) ? undefined : part;
  }

  /** The carried value of a node on a device, noted once. */
  #note(node: Node, backend: Backend, made: number, until: number, isExchanged: boolean): Carried {
    const known = this.#carried.find((one) =>
      one.node === node && one.backend === backend && one.isExchanged === isExchanged
    );
    if (known) {
      known.until = Math.max(known.until, until);
      return known;
    }
    const carried = { node, backend, made, isExchanged, until, buffer: -1 };
    this.#carried.push(carried);
    return carried;
  }

  /** Notes what parts, collectives and the end of the step read of earlier ones. */
  #carry(made: readonly number[]): void {
    const { order, collectives } = this.#numbers;
    for (const node of order) {
      const part = this.#partOf(node);
      if (part === undefined) continue;
      if (collectives.has(node)) this.#noteCollective(node, part);
      else for (const input of node.inputs) this.#read(input, part);
    }
    this.#graph.outputs.forEach((node, i) => made[i] >= 0 && this.#read(node, made[i]));
    this.#exchanges.sort((a, b) => a.node.id - b.node.id); // as the program made them, which is the same order on all processes
  }

  /** Has a part read a node. */
  #read(node: Node, part: number): void {
    const { devices, collectives } = this.#numbers;
    const from = this.#partOf(node);
    if (from === undefined) {
      if (this.#homeOf.has(node)) this.#readState(node, part);
      else for (const input of node.inputs) this.#read(input, part);
    } else if (collectives.has(node)) this.#note(node, devices[part], from + 1, part, true);
    else if (from !== part) {
      const own = this.#note(node, devices[from], from, part, false);
      if (devices[from] !== devices[part]) this.#copy(own, node, from + 1, part);
    }
  }

  #noteCollective(node: Node, part: number): void {
    const { devices, collectives } = this.#numbers;
    const [input] = node.inputs;
    const isResult = collectives.has(input);
    if (isResult) this.#read(input, part);
    const own = this.#note(input, devices[part], this.#partOf(input) ?? part, part, isResult);
    const result = (): Carried | undefined => this.#carried.find((one) => one.node === node);
    this.#exchanges.push({ node, before: part + 1, collective: node, from: own, to: result });
  }

  /** Has a part read an array of the state. Where that is on another device, it is copied when the step begins. */
  #readState(node: Node, part: number): void {
    const { devices, homes } = this.#numbers;
    const state = this.#homeOf.get(node)!;
    if (homes[state] === devices[part]) return;
    if (this.#graph.stacks[state]) throw new ValueError("an array of a loop's state is read in parts on two devices");
    this.#copy(state, node, 0, part);
  }

  /** Has a value copied to the device of a part, once, before a part that is not later. */
  #copy(from: Carried | number, node: Node, before: number, part: number): void {
    const count = this.#carried.length;
    const to = this.#note(node, this.#numbers.devices[part], before, part, true);
    if (this.#carried.length > count) this.#exchanges.push({ node, before, from, to: () => to });
  }

  /** Gives carried values buffers. One whose last reader is in an earlier part lends its own. */
  #allocate(): void {
    const taken: { readonly buffer: number; readonly until: number }[] = [];
    for (const value of this.#carried.sort((a, b) => a.made - b.made)) {
      const { node: { shape, dtype }, backend } = value;
      const at = taken.findIndex(({ buffer, until }) => {
        const spec = this.#buffers[buffer];
        // An exchange before a part runs after the parts before that.
        return until < value.made - (value.isExchanged ? 1 : 0) && spec.backend === backend && spec.dtype === dtype &&
          sameShape(spec.shape, shape);
      });
      value.buffer = at >= 0 ? taken.splice(at, 1)[0].buffer : this.#buffers.push({ shape, dtype, backend }) - 1;
      taken.push({ buffer: value.buffer, until: value.until });
    }
  }

  #exchangeOf({ collective, from, to }: Noted): Exchange {
    const numberOf = (one: Carried): number => this.#graph.state.length + one.buffer;
    const result = to();
    return {
      ...(collective && { collective }),
      from: typeof from === "number" ? from : numberOf(from),
      to: result ? numberOf(result) : -1,
    };
  }

  /** The graph of a part, whose outputs `made` says. */
  #partGraph(part: number, made: readonly number[]): Omit<StepPart, "exchanges"> {
    const { state, stacks, parameters, outputs, parts: sources } = this.#graph;
    const { devices, homes } = this.#numbers;
    const backend = devices[part];
    const own = state.flatMap((_, i) => homes[i] === backend ? [i] : []);
    const indices = own.flatMap((i) => sources.flatMap(({ node }, parameter) => node === i ? [parameter] : []));
    const held = this.#carried.filter((one) => one.backend === backend && one.made <= part && part <= one.until);
    const severalDevices = new Set(devices).size > 1;
    const graph = new StepGraph(
      [...own.map((i) => state[i]), ...held.map(({ buffer }) => this.#buffers[buffer])],
      own.map((i) => stacks[i]),
      (given) => {
        const copies = new Map<Node, Node>(indices.map((index, i) => [parameters[index], given[i]]));
        held.forEach(({ node, isExchanged, made }, i) => {
          if (isExchanged || made < part) copies.set(node, given[indices.length + i]);
        });
        const values = [
          ...indices.map((i) => made[i] === part ? outputs[i] : parameters[i]),
          ...held.map(({ node }) => node),
        ];
        for (const node of inputsFirst(values, (node) => copies.has(node) ? [] : node.inputs)) {
          if (copies.has(node)) continue;
          const { op, inputs, shape, dtype, attrs, composite } = node;
          // A leaf that is not evaluated belongs to the device of its first reader.
          const isShared = inputs.length === 0 && (node.stored !== undefined || !severalDevices);
          copies.set(
            node,
            isShared ? node : makeNode(op, inputs.map((input) => copies.get(input)!), shape, dtype, attrs, composite),
          );
        }
        return values.map((node) => copies.get(node)!);
      },
      () => backend,
    );
    const arrays = [...own, ...held.map(({ buffer }) => state.length + buffer)];
    return { graph, arrays };
  }
}
