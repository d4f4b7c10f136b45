/**
 * Compiled functions: a graph is traced and lowered once per set of input shapes, then its Plan is run again and again.
 *
 * Inputs become parameters that are bound at each call. The Plan keeps its arena, so a call costs no lowering. A backend that records Plans
 * replays its recording if the same storage comes back. A graph with nodes that fall back to the CPU is no single Plan. Its trace is kept
 * as it is, and evaluated over the inputs of each call.
 *
 * @module
 */

import { scopeStream } from "../graph/stream.ts";
import { ValueError } from "../graph/error.ts";
import type { Backend } from "../backend/backend.ts";
import { attrsOf, makeNode, type Node, type Stored } from "../graph/node.ts";
import { isContiguous, sizeOf } from "../graph/shape.ts";
import { Executable } from "./execute.ts";
import { collectWhenDue } from "./plan/garbage.ts";
import { pendingFallbacks, runsElsewhere } from "./fallback.ts";
import { lower } from "./lower.ts";
import { options } from "./plan/options.ts";
import { inputsFirst } from "./plan/order.ts";
import { backendOf, holding, realize, takeStorage } from "./realize.ts";
import type { Storage } from "./plan/storage.ts";

interface Trace extends Disposable {
  call(inputs: Node[]): { readonly outputs: readonly Node[]; readonly ticket: number };
}

/** A function over nodes, compiled per shapes, dtypes and device of its inputs. */
export class CompiledGraph implements Disposable {
  readonly #fn: (parameters: readonly Node[]) => readonly Node[];
  readonly #traces = new Map<string, Trace>();

  /** `fn` builds the graph; it is called once per new key and must not evaluate anything. */
  constructor(fn: (parameters: readonly Node[]) => readonly Node[]) {
    this.#fn = fn;
  }

  /** Runs the function; results are stored nodes. `key` adds to the cache key whatever else the trace depends on. */
  call(inputs: readonly Node[], key = ""): { readonly outputs: readonly Node[]; readonly ticket: number } {
    return holding(inputs, () => this.#call(inputs, key));
  }

  #call(inputs: readonly Node[], key: string): { readonly outputs: readonly Node[]; readonly ticket: number } {
    const backend = backendOf(inputs);
    const dense = inputs.map((node) => stored(node, backend));
    const id = [backend.name, options.fuse, key, ...dense.map((n) => `${n.dtype.name}(${n.shape})`)].join("|");
    collectWhenDue();
    let trace = this.#traces.get(id);
    if (!trace) this.#traces.set(id, trace = this.#trace(dense, backend));
    const found = trace.call(dense);
    dense.forEach((node, i) => node !== inputs[i] && node.release());
    return found;
  }

  #trace(inputs: readonly Node[], backend: Backend): Trace {
    const parameters = inputs.map((node, index) => makeNode("parameter", [], node.shape, node.dtype, { index }));
    const outputs = this.#fn(parameters);
    for (const node of outputs) node.retain();
    try {
      if (pendingFallbacks(outputs).some((node) => runsElsewhere(node, backend))) {
        return new Template(outputs, backend);
      }
      const lowered = lower(outputs, backend, { ...options, reusable: true });
      const executable = new Executable(backend, lowered);
      if (lowered.inPlace.length > 0) {
        executable[Symbol.dispose]();
        throw new ValueError("compile() expected the function to return every array that it updates in place");
      }
      return new Compiled(executable, outputs.map(({ shape, dtype }) => ({ shape, dtype })));
    } finally {
      for (const node of outputs) node.release();
    }
  }

  /** Ends all traces with their Plans and arenas. */
  [Symbol.dispose](): void {
    for (const trace of this.#traces.values()) trace[Symbol.dispose]();
    this.#traces.clear();
  }
}

/** A trace as one Plan. */
class Compiled implements Trace {
  readonly #executable: Executable;
  readonly #outputs: readonly Pick<Node, "shape" | "dtype">[];

  constructor(executable: Executable, outputs: readonly Pick<Node, "shape" | "dtype">[]) {
    this.#executable = executable;
    this.#outputs = outputs;
  }

  call(inputs: Node[]): { readonly outputs: readonly Node[]; readonly ticket: number } {
    const { donated } = this.#executable.lowered;
    for (const base of donated) {
      const { index } = attrsOf(base, "parameter");
      const shared = (inputs[index].stored!.storage as Storage).refs > 1;
      if (shared || inputs.some((node, i) => node === inputs[index] && i !== index)) {
        inputs[index] = copied(inputs[index]);
      }
    }
    const { outputs, ticket } = this.#executable.run(inputs, scopeStream()?.index);
    for (const base of donated) takeStorage(inputs[attrsOf(base, "parameter").index]);
    return { outputs: outputs.map((at, i) => storedNode(this.#outputs[i], at)), ticket };
  }

  [Symbol.dispose](): void {
    this.#executable[Symbol.dispose]();
  }
}

/** A trace that is evaluated anew over the inputs of each call. */
class Template implements Trace {
  readonly #outputs: readonly Node[];
  readonly #backend: Backend;

  constructor(outputs: readonly Node[], backend: Backend) {
    for (const node of outputs) node.retain();
    this.#outputs = outputs;
    this.#backend = backend;
  }

  call(inputs: Node[]): { readonly outputs: readonly Node[]; readonly ticket: number } {
    const copies = new Map<Node, Node>();
    for (const node of inputsFirst(this.#outputs, (node) => node.inputs)) {
      const { op, shape, dtype, attrs, composite } = node;
      const copy = op === "parameter"
        ? inputs[attrsOf(node, op).index]
        : node.inputs.length === 0
        ? node
        : makeNode(op, node.inputs.map((input) => copies.get(input)!), shape, dtype, attrs, composite);
      copies.set(node, copy);
    }
    const found = this.#outputs.map((node) => copies.get(node)!);
    for (const node of found) node.retain();
    try {
      realize(found, this.#backend);
      const ticket = Math.max(0, ...found.map(({ stored }) => (stored!.storage as Storage).ticket));
      const outputs = found.map((node) => {
        node.stored!.storage.retain();
        return storedNode(node, node.stored!);
      });
      return { outputs, ticket };
    } finally {
      for (const node of found) node.release();
    }
  }

  [Symbol.dispose](): void {
    for (const node of this.#outputs) node.release();
  }
}

/** A stored node that takes over one reference of its storage. */
function storedNode({ shape, dtype }: Pick<Node, "shape" | "dtype">, at: Stored): Node {
  const node = makeNode("stored", [], shape, dtype, {});
  node.stored = at;
  return node;
}

/** A stored node in memory of its own, for a Plan to write into: other arrays lie in the node's. It is flat and holds one reference. */
function copied(node: Node): Node {
  const size = [sizeOf(node.shape)];
  const flat = makeNode("reshape", [node], size, node.dtype, {});
  const copy = makeNode("concatenate", [flat], size, node.dtype, { axis: 0 });
  copy.retain();
  realize([copy]);
  return copy;
}

/** Whether a stored node is contiguous and aligned, or each of its parts along the first `axes` is. */
export function isDense(node: Node, axes: number = 0): boolean {
  const { shape, dtype, stored } = node;
  const { offset, strides, packing } = stored!;
  const aligned = [offset, ...strides.slice(0, axes)].every((elements) => (elements * dtype.bytes) % 16 === 0);
  return !packing && aligned && isContiguous(shape.slice(axes), strides.slice(axes));
}

/** The node itself, evaluated, when it is contiguous and aligned; otherwise a copy that is. The copy holds one reference. */
export function stored(node: Node, backend: Backend): Node {
  realize([node], backend);
  if (isDense(node)) return node;
  const dense = makeNode("contiguous", [node], node.shape, node.dtype, {});
  dense.retain();
  realize([dense]);
  return dense;
}
