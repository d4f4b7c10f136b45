/**
 * Compiled functions: a graph is traced and lowered once per set of input shapes, then its Plan is run again and again.
 *
 * Inputs become parameters that are bound at each call. The Plan keeps its arena, so a call costs no lowering, and a
 * backend that records Plans replays its recording while the same storage comes back.
 *
 * @module
 */

import { scopeStream } from "../graph/stream.ts";
import { ValueError } from "../graph/error.ts";
import type { Backend } from "../backend/backend.ts";
import { attrsOf, makeNode, type Node } from "../graph/node.ts";
import { isContiguous, sizeOf } from "../graph/shape.ts";
import { Executable } from "./execute.ts";
import { collectWhenDue } from "./plan/garbage.ts";
import { lower } from "./lower.ts";
import { options } from "./plan/options.ts";
import { backendOf, holding, realize, takeStorage } from "./realize.ts";
import type { Storage } from "./plan/storage.ts";

interface Trace {
  readonly executable: Executable;
  readonly outputs: readonly Pick<Node, "shape" | "dtype">[];
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
    const { executable } = trace;
    for (const base of executable.lowered.donated) {
      const { index } = attrsOf(base, "parameter");
      const shared = (dense[index].stored!.storage as Storage).refs > 1;
      if (shared || dense.some((node, i) => node === dense[index] && i !== index)) dense[index] = copied(dense[index]);
    }
    const { outputs, ticket } = executable.run(dense, scopeStream()?.index);
    for (const base of executable.lowered.donated) takeStorage(dense[attrsOf(base, "parameter").index]);
    dense.forEach((node, i) => node !== inputs[i] && node.release());
    const nodes = outputs.map((at, i) => {
      const node = makeNode("stored", [], trace.outputs[i].shape, trace.outputs[i].dtype, {});
      node.stored = at;
      return node;
    });
    return { outputs: nodes, ticket };
  }

  #trace(inputs: readonly Node[], backend: Backend): Trace {
    const parameters = inputs.map((node, index) => makeNode("parameter", [], node.shape, node.dtype, { index }));
    const outputs = this.#fn(parameters);
    for (const node of outputs) node.retain();
    try {
      const lowered = lower(outputs, backend, { ...options, reusable: true });
      const executable = new Executable(backend, lowered);
      if (lowered.inPlace.length > 0) {
        executable[Symbol.dispose]();
        throw new ValueError("compile() expected the function to return every array that it updates in place");
      }
      return { executable, outputs: outputs.map(({ shape, dtype }) => ({ shape, dtype })) };
    } finally {
      for (const node of outputs) node.release();
    }
  }

  /** Ends all traces with their Plans and arenas. */
  [Symbol.dispose](): void {
    for (const { executable } of this.#traces.values()) executable[Symbol.dispose]();
    this.#traces.clear();
  }
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
