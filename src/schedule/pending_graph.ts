/**
 * The graph that one lowering is about: its nodes in order, the readers of each, and the composites of fused ops without a kernel.
 *
 * @module
 */

import { explainFallback } from "../backend/explain.ts";
import type { Backend } from "../backend/backend.ts";
import { newestNode, type Node, type OpName } from "../graph/node.ts";
import { FUSED_OPS, type FusedName, type FusedOp } from "./ops/fused_ops.ts";
import type { LowerOptions } from "./plan/options.ts";
import { inputsFirst } from "./plan/order.ts";

/** Ops whose result is in memory of its own, and which have read their inputs when it is there. */
const TAKERS: ReadonlySet<OpName> = new Set<OpName>(["gather", "attention", "sinkAttention"]);
/** Ops that may show their input where it is. */
const VIEWS: ReadonlySet<OpName> = new Set<OpName>(["gatherPages", "reshape", "transpose", "slice"]);

/** The pending graph of `outputs`, inputs first, with composites in place of fused ops where needed. */
export class PendingGraph {
  readonly order: readonly Node[];
  /** The ops of all nodes. */
  readonly ops: ReadonlySet<OpName>;
  /** Nodes whose values are asked for. */
  readonly wanted: ReadonlySet<Node>;
  /** Distinct nodes that read each node. */
  readonly readers = new Map<Node, Node[]>();
  /** Composites that stand for fused nodes. */
  readonly replaced = new Map<Node, Node>();
  /** Where a node is in the order. */
  #places: ReadonlyMap<Node, number> | undefined;

  constructor(outputs: readonly Node[], backend: Backend, options: LowerOptions) {
    this.wanted = new Set(outputs);
    const newest = newestNode();
    const found = inputsFirst(outputs, (node) => {
      node.check();
      this.#replace(node, backend, options);
      return this.inputs(node);
    });
    // In the order in which the program made them. So a derivative reads values that are computed again for it at once, and lets them go.
    const made = found.filter((node) => node.id <= newest).sort((a, b) => a.id - b.id);
    this.order = inputsFirst(made, (node) => this.inputs(node));
    this.ops = new Set(this.order.map(({ op }) => op));
    for (const node of this.order) {
      for (const input of new Set(this.inputs(node))) {
        const list = this.readers.get(input);
        if (list) list.push(node);
        else this.readers.set(input, [node]);
      }
    }
  }

  /** Lets a composite stand for a fused node if there is no kernel for it. */
  #replace(node: Node, backend: Backend, { fuse }: LowerOptions): void {
    const fused: FusedOp | undefined = FUSED_OPS[node.op as FusedName];
    if (!fused || !node.composite) return;
    const kernel = fused.kernel(node, backend);
    if (fuse && kernel && backend.has(kernel)) return;
    if (fuse) {
      const why = kernel
        ? `${backend.name} has no kernel ${kernel}`
        : "this device has no kernel for it, or none for its sizes and dtypes";
      explainFallback(`${node.op}: in primitives, because ${why}`);
    }
    const composite = node.composite(node);
    composite.retain();
    this.replaced.set(node, composite);
  }

  /** The inputs from which a node is computed. */
  inputs(node: Node): readonly Node[] {
    const composite = this.replaced.get(node);
    return composite ? [composite] : node.inputs;
  }

  /**
   * Whether nothing reads a node after its writer does, which replaces it. What else reads it must be done by then: the writer depends on it.
   * Without a writer the node may have one reader.
   */
  isReadLast(node: Node, writer?: Node): boolean {
    const readers = this.readers.get(node) ?? [];
    if (this.wanted.has(node) || readers.length === 0) return false;
    if (readers.length === 1) return true;
    if (writer === undefined) return false;
    const others = this.#takersOf(node, writer);
    return others !== undefined && this.#dependsOnAll(writer, others);
  }

  /**
   * What takes the elements of a node for good, beside its writer; undefined if something may read them at any time. A writer that reads them
   * through a view does so while it writes.
   */
  #takersOf(node: Node, writer: Node): readonly Node[] | undefined {
    const takers: Node[] = [];
    for (const reader of this.readers.get(node)!) {
      if (reader === writer && node === writer.inputs[0]) continue;
      if (TAKERS.has(reader.op)) takers.push(reader);
      else {
        // A view in the place of its node, which others read in turn.
        const further = VIEWS.has(reader.op) && !this.wanted.has(reader) ? this.#takersOf(reader, writer) : undefined;
        if (!further) return undefined;
        takers.push(...further);
      }
    }
    return takers;
  }

  /** Whether a node is computed from all of some others. */
  #dependsOnAll(node: Node, others: readonly Node[]): boolean {
    const places = this.#places ??= new Map(this.order.map((node, i) => [node, i]));
    const first = Math.min(...others.map((other) => places.get(other)!));
    const seen = new Set<Node>();
    const open = [node];
    for (let at = open.pop(); at; at = open.pop()) {
      for (const input of this.inputs(at)) {
        if ((places.get(input) ?? -1) < first || seen.has(input)) continue;
        seen.add(input);
        open.push(input);
      }
    }
    return others.every((other) => seen.has(other));
  }

  /** Lets the composites go. */
  release(): void {
    for (const composite of this.replaced.values()) composite.release();
  }
}
