/**
 * Tapes: a record of the ops that a function ran on certain arrays, so that they can be replayed.
 *
 * While a function runs under a tape, every node that depends on one of its inputs becomes an entry. An entry is the op, the inputs and
 * the attributes as they were made. Evaluating an array turns its node into stored values and drops its inputs, but the entry keeps both. So a function
 * may look at its values on the way, and later reads of an evaluated array get the values.
 *
 * Tapes nest: a gradient that is taken inside of another function is recorded on that function's tape.
 *
 * @module
 */

import { type Definition, makeNode, type Node, setRecorder } from "../../graph/node.ts";
import { type Tensor, wrap } from "./tensor.ts";

/** Derivative rules that a transformed function has itself, instead of the rules of ops; see custom.ts. */
export interface CustomRules {
  /** Cotangents of the inputs. */
  vjp(
    inputs: readonly Tensor[],
    cotangents: readonly Tensor[],
    outputs: readonly Tensor[],
  ): readonly (Tensor | undefined)[];
  /** Tangents of the outputs; undefined stands for none. */
  jvp(inputs: readonly Tensor[], tangents: readonly (Tensor | undefined)[]): readonly (Tensor | undefined)[];
  /** Outputs of batches along the first axis, as many as there are; inputs without one are the same for all. */
  vmap(inputs: readonly Tensor[], batched: readonly boolean[], size: number): readonly Tensor[];
}

/** A step of a recorded function. */
export interface Entry extends Definition {
  readonly outputs: readonly Node[];
  readonly composite: Node["composite"];
  readonly custom?: CustomRules;
}

const open: Tape[] = [];

function note(node: Node): void {
  for (const tape of open) tape.note(node);
}

/** Runs `fn` without any tape being written. */
export function unrecorded<T>(fn: () => T): T {
  const tapes = open.splice(0);
  setRecorder(undefined);
  try {
    return fn();
  } finally {
    open.push(...tapes);
    setRecorder(open.length > 0 ? note : undefined);
  }
}

/** Whether a function is being recorded. */
export function recording(): boolean {
  return open.length > 0;
}

/** A record of the ops on its inputs. It retains all its nodes until it is disposed. */
export class Tape implements Disposable {
  readonly entries: Entry[] = [];
  readonly #traced = new Set<Node>();
  readonly #whole: boolean;
  readonly #held: Node[] = [];

  /** A tape of the nodes that depend on `inputs`. Only a `whole` one includes dependencies through stopGradient(). */
  constructor(inputs: readonly Node[], whole: boolean = false) {
    this.#whole = whole;
    for (const node of inputs) this.#add(node);
  }

  /** Whether a node depends on the inputs. */
  has(node: Node): boolean {
    return this.#traced.has(node);
  }

  /** Records while `fn` runs. */
  record<T>(fn: () => T): T {
    open.push(this);
    setRecorder(note);
    try {
      return fn();
    } finally {
      open.splice(open.indexOf(this), 1);
      setRecorder(open.length > 0 ? note : undefined);
    }
  }

  /** Adds a node that was just made if it depends on the inputs. */
  note(node: Node): void {
    const { op, inputs, shape, dtype, attrs, composite } = node;
    if (op === "stopGradient" && !this.#whole) return;
    if (inputs.some((input) => this.#traced.has(input))) {
      this.#push({ op, inputs, shape, dtype, attrs, composite, outputs: [node] });
    }
  }

  /** Adds a step that brings rules of its own, if it depends on the inputs. */
  noteCustom(inputs: readonly Node[], outputs: readonly Node[], custom: CustomRules): void {
    if (!inputs.some((input) => this.#traced.has(input))) return;
    const [{ op, shape, dtype, attrs }] = outputs;
    this.#push({ op, inputs, shape, dtype, attrs, composite: undefined, outputs, custom });
  }

  #push(entry: Entry): void {
    this.entries.push(entry);
    for (const input of entry.inputs) this.#hold(input);
    for (const output of entry.outputs) this.#add(output);
  }

  #add(node: Node): void {
    this.#traced.add(node);
    this.#hold(node);
  }

  #hold(node: Node): void {
    node.retain();
    this.#held.push(node);
  }

  /** Lets go of all nodes. */
  [Symbol.dispose](): void {
    for (const node of this.#held.splice(0)) node.release();
    this.entries.length = 0;
    this.#traced.clear();
  }
}

/** Adds a step with rules of its own to all open tapes. */
export function noteCustom(inputs: readonly Node[], outputs: readonly Node[], custom: CustomRules): void {
  for (const tape of open) tape.noteCustom(inputs, outputs, custom);
}

/** A node that shows the same values as another and is no other: the input of a tape. */
export function aliasOf(node: Node): Node {
  return makeNode("broadcast", [node], node.shape, node.dtype, {});
}

/** The result of another node of the same op, inputs exchanged. */
export function remake(
  entry: Definition & Pick<Entry, "composite">,
  inputs: readonly Node[],
  shape = entry.shape,
): Tensor {
  return wrap(makeNode(entry.op, inputs, shape, entry.dtype, entry.attrs, entry.composite));
}
