/**
 * Which memory an elementwise result may take over: that of an input which nothing else reads, also if it is reached through views. So a
 * chain of operations over a large array needs no memory but what it began with.
 *
 * An intermediate may be overwritten when it and the views of it have a single reader each. For a stored leaf there is one more condition:
 * nothing of it can be evaluated after this graph. Neither the leaf nor what reads it here is held elsewhere.
 *
 * @module
 */

import type { Node, OpName } from "../../graph/node.ts";
import { contiguousStrides, isContiguous, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "./context.ts";
import type { Value } from "./value.ts";
import type { Storage } from "./storage.ts";

/** Ops whose result may lie in the memory of their input. */
export const VIEWS: ReadonlySet<OpName> = new Set<OpName>([
  "stopGradient",
  "reshape",
  "transpose",
  "slice",
  "broadcast",
  "asStrided",
  "contiguous",
]);

/** Where results begin, in bytes: kernels read others slowly. */
const ALIGN = 16;
/** Bytes that a result may keep alive beyond its own, at least and as a share of its own. */
const SPARE = { bytes: 16384, share: 1 / 16 } as const;

/** A graph as far as this looks at it. */
interface Readers {
  readonly order: readonly Node[];
  readonly readers: ReadonlyMap<Node, readonly Node[]>;
  readonly replaced: ReadonlyMap<Node, Node>;
}

/** Decides for one graph. */
export class Donations {
  readonly #graph: Readers;
  readonly #wanted: ReadonlySet<Node>;
  /** The node that made the value which lies in a slot. */
  readonly #makers = new Map<number, Node>();
  /** Slots of leaves that were taken over. */
  readonly #overwritten = new Set<number>();
  /** Nodes that go when the graph has been evaluated. */
  #passing: Set<Node> | undefined;

  constructor(graph: Readers, wanted: ReadonlySet<Node>) {
    this.#graph = graph;
    this.#wanted = wanted;
  }

  /** Notes where a node's value lies. */
  note(node: Node, { slot }: Value): void {
    if (!this.#makers.has(slot)) this.#makers.set(slot, node);
  }

  /**
   * The memory of `value`, which `reader` reads as its input `node`, for a result with as many elements of the
   * same bytes. Undefined if it may not be overwritten.
   */
  take(l: Lowering, reader: Node, node: Node, value: Value): Value | undefined {
    const { slot, offset, shape, strides, packing, blocks } = value;
    const source = l.slots[slot];
    const bytes = sizeOf(reader.shape) * reader.dtype.bytes;
    if (packing || blocks || value.dtype.bytes !== reader.dtype.bytes || sizeOf(shape) !== sizeOf(reader.shape)) {
      return undefined;
    }
    if (!isContiguous(shape, strides) || bytes === 0 || (offset * value.dtype.bytes) % ALIGN !== 0) return undefined;
    let base = node;
    while (this.#makers.get(slot) !== base) {
      const of = this.#graph.replaced.get(base) ?? (VIEWS.has(base.op) ? base.inputs[0] : undefined);
      if (!of || !this.#isOnly(base)) return undefined;
      base = of;
    }
    if (!this.#isOnly(base)) return undefined;
    const mine = source.kind === "temporary" || this.#overwritten.has(slot);
    const leaf = source.kind === "storage" ? source.storage : undefined;
    if (!mine && (!leaf || l.repeats || !this.#isLast(base, leaf))) return undefined;
    const whole = source.kind === "temporary" ? source.bytes : leaf!.bytes;
    if (whole - bytes > Math.max(SPARE.bytes, bytes * SPARE.share)) return undefined;
    this.#makers.set(slot, reader);
    if (!mine) {
      this.#overwritten.add(slot);
      l.overwritten.push(leaf!);
    }
    return { slot, offset, shape: reader.shape, strides: contiguousStrides(reader.shape), dtype: reader.dtype };
  }

  /** Whether a node has a single reader and is no result. */
  #isOnly(node: Node): boolean {
    return this.#graph.readers.get(node)?.length === 1 && !this.#wanted.has(node);
  }

  /** Whether nothing can read a stored leaf or what depends on it after this graph. */
  #isLast(leaf: Node, storage: Storage): boolean {
    return leaf.op === "stored" && storage.refs === 1 && this.#goes(leaf);
  }

  #goes(node: Node): boolean {
    if (!this.#passing) {
      const passing = this.#passing = new Set();
      const { order, readers, replaced } = this.#graph;
      for (const node of order.toReversed()) {
        const all = readers.get(node) ?? [];
        const held = all.reduce((sum, reader) => sum + reader.inputs.filter((input) => input === node).length, 0);
        const go = all.every((reader) => (this.#wanted.has(reader) || passing.has(reader)) && !replaced.has(reader));
        if (go && node.refs === held && !this.#wanted.has(node)) passing.add(node);
      }
    }
    return this.#passing.has(node);
  }
}
