/**
 * The cache of Plans: a small graph like one that was lowered before takes over its Plan.
 *
 * Every decision of lowering follows from a signature: ops, attributes, shapes and dtypes, how nodes hang together, where stored leaves begin
 * and in which strides. It also holds which nodes and storages have other owners, since that decides what may be overwritten. Two graphs of one
 * signature differ in the storages alone, which are bound anew. Ops that look at more than that are never cached.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { Dtype } from "../graph/dtype.ts";
import type { Node, OpName } from "../graph/node.ts";
import { uploadLeaf } from "./leaves.ts";
import { lower, type Lowered, type SlotBinding } from "./lower.ts";
import { options } from "./plan/options.ts";
import { profiler } from "./plan/profile.ts";
import type { Storage } from "./plan/storage.ts";

/** Ops that are lowered by their attributes and inputs alone, in fresh memory or by the rules of donation.ts. */
const CACHED_OPS: ReadonlySet<OpName> = new Set<OpName>([
  "elementwise",
  "full",
  "arange",
  "reshape",
  "transpose",
  "slice",
  "broadcast",
  "contiguous",
  "concatenate",
  "reduce",
  "softmax",
  "scan",
  "sort",
  "argsort",
  "matmul",
]);

/** Most nodes of a graph whose Plan is kept, and most Plans of a device. */
const MAX_NODES = 32;
const MAX_PLANS = 128;

/** A part of a signature; compared by Object.is, so that -0 is another constant than 0. */
type SignaturePart = string | number | bigint | boolean | Dtype | undefined;

/** A lowered graph without its storages. */
interface CachedPlan {
  readonly signature: readonly SignaturePart[];
  readonly lowered: Lowered;
  /** Number of the leaf's storage for each slot that is bound to one, else -1. */
  readonly storages: readonly number[];
  /** Numbers of the storages that are overwritten. */
  readonly overwritten: readonly number[];
}

const cachedPlans = new WeakMap<Backend, Map<number, CachedPlan>>();

/** Reads a graph into a signature. */
class Reader {
  readonly signature: SignaturePart[] = [options.fuse];
  /** Distinct storages of the leaves, in their order. */
  readonly storages: Storage[] = [];
  readonly #nodes: Node[] = [];
  /** How often the graph reads each. */
  readonly #reads: number[] = [];
  /** Nodes that were come to; those on the way to a leaf are among them, so that graphs of any depth are left in time. */
  #met = 0;
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  /** Whether the graph of `outputs` is one to cache. Leaves with host or file content are uploaded on the way. */
  read(outputs: readonly Node[]): boolean {
    for (const node of outputs) if (this.#visit(node) < 0) return false;
    const { signature } = this;
    for (const node of outputs) signature.push(this.#nodes.indexOf(node));
    this.#nodes.forEach((node, i) => signature.push(node.refs === this.#reads[i])); // whether it goes with the graph
    // After all uploads, which may share storages.
    for (const storage of this.storages) signature.push(storage.refs === 1, storage.bytes);
    return true;
  }

  /** The number of a node, after those of its inputs, or -1. */
  #visit(node: Node): number {
    const nodes = this.#nodes;
    for (let i = nodes.length - 1; i >= 0; i--) if (nodes[i] === node) return i;
    if (this.#met++ >= MAX_NODES || node.gone !== undefined) return -1;
    if (node.inputs.length === 0) uploadLeaf(node, this.#backend);
    const { signature } = this;
    const { op, inputs } = node;
    if (op === "stored") {
      const { storage, offset, strides, packing } = node.stored!;
      if (packing) return -1;
      let at = this.storages.indexOf(storage as Storage);
      if (at < 0) at = this.storages.push(storage as Storage) - 1;
      signature.push(op, at, offset);
      for (let i = 0; i < strides.length; i++) signature.push(strides[i]);
    } else {
      if (!CACHED_OPS.has(op) || node.composite) return -1;
      const numbers: number[] = [];
      for (let i = 0; i < inputs.length; i++) {
        const number = this.#visit(inputs[i]);
        if (number < 0) return -1;
        numbers.push(number);
        this.#reads[number]++;
      }
      signature.push(op, inputs.length);
      for (let i = 0; i < numbers.length; i++) signature.push(numbers[i]);
      this.#attributes(node.attrs);
    }
    const { shape } = node;
    signature.push(node.dtype, shape.length);
    for (let i = 0; i < shape.length; i++) signature.push(shape[i]);
    this.#reads.push(0);
    return nodes.push(node) - 1;
  }

  #attributes(attrs: object): void {
    for (const key in attrs) {
      const value = (attrs as Record<string, SignaturePart>)[key];
      this.signature.push(key);
      if (typeof value === "object") this.#attributes(value); // keys of lists are their places
      else this.signature.push(value);
    }
    this.signature.push(undefined); // the end: a shorter list is another one
  }
}

/** Where to look for a signature; the last one of several that meet there is kept. */
function hashOf(signature: readonly SignaturePart[]): number {
  let hash = signature.length;
  for (let i = 0; i < signature.length; i++) hash = Math.imul(hash ^ wordOf(signature[i]), 0x9e3779b1) ^ hash >>> 15;
  return hash;
}

function wordOf(part: SignaturePart): number {
  if (typeof part === "number") return (part | 0) === part ? part : part * 1048583;
  if (typeof part === "boolean") return part ? 1 : 2;
  if (typeof part === "object") return part.code;
  if (typeof part !== "string") return 3;
  const last = part.length - 1; // names of functions differ there
  return part.length + part.charCodeAt(0) * 31 + part.charCodeAt(last >> 1) * 961 + part.charCodeAt(last) * 29791;
}

function isSame(a: readonly SignaturePart[], b: readonly SignaturePart[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return false;
  return true;
}

/** {@link lower} of what runs once, by a cached Plan if there is one. */
export function lowerCached(outputs: readonly Node[], backend: Backend): Lowered {
  const reader = new Reader(backend);
  if (!profiler.host("lowering", () => reader.read(outputs))) return lower(outputs, backend, options);
  const { signature, storages } = reader;
  const hash = hashOf(signature);
  let plans = cachedPlans.get(backend);
  if (!plans) cachedPlans.set(backend, plans = new Map());
  const found = plans.get(hash);
  if (found && isSame(found.signature, signature)) return bind(found, storages);
  const lowered = lower(outputs, backend, options);
  const kept = withoutStorages(lowered, signature, storages);
  if (kept) {
    plans.set(hash, kept);
    if (plans.size > MAX_PLANS) plans.delete(plans.keys().next().value!); // the oldest
  }
  return lowered;
}

/** The cached part of a lowered graph; undefined if it depends on more than the storages of its leaves. */
function withoutStorages(
  lowered: Lowered,
  signature: readonly SignaturePart[],
  leaves: readonly Storage[],
): CachedPlan | undefined {
  const { slots, overwritten, inPlace, donated, status, probe } = lowered;
  if (inPlace.length + donated.length > 0 || status || probe) return undefined;
  const storages: number[] = [];
  for (const slot of slots) {
    const at = slot.kind === "storage" ? leaves.indexOf(slot.storage) : -1;
    if (slot.kind === "parameter" || (slot.kind === "storage" && at < 0)) return undefined;
    storages.push(at);
  }
  const free = slots.map((slot): SlotBinding => slot.kind === "storage" ? { kind: "result", bytes: 0 } : slot);
  return {
    signature,
    lowered: { ...lowered, slots: free, overwritten: [] },
    storages,
    overwritten: overwritten.map((storage) => leaves.indexOf(storage)),
  };
}

/** The same over other storages. */
function bind({ lowered, storages, overwritten }: CachedPlan, leaves: readonly Storage[]): Lowered {
  const slots = lowered.slots.slice();
  for (let i = 0; i < slots.length; i++) {
    if (storages[i] < 0) continue;
    const storage = leaves[storages[i]];
    storage.retain();
    slots[i] = { kind: "storage", storage };
  }
  return { ...lowered, slots, overwritten: overwritten.map((i) => leaves[i]) };
}
