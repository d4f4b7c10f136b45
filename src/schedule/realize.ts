/**
 * Evaluation: turns pending nodes into stored ones.
 *
 * All nodes asked for together become one Plan. Only they are stored; what lies between stays in the arena and goes.
 *
 * @module
 */

import { type Backend, streamOf } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import { ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { isContiguous, sizeOf } from "../graph/shape.ts";
import { type NodeStream, streamsUsed } from "../graph/stream.ts";
import { Executable } from "./execute.ts";
import { hasParts, mayFallBack, pendingFallbacks, runFallback, runsElsewhere } from "./fallback.ts";
import { collectWhenDue } from "./plan/garbage.ts";
import { uploadLeaf } from "./leaves.ts";
import { lowerCached } from "./plan_cache.ts";
import { copyOver, segmentBackend, segmentsOf } from "./segments.ts";
import type { Storage } from "./plan/storage.ts";

/** The device that a graph runs on: that of its stored leaves, or the default, or `otherwise` if it is given. */
export function backendOf(nodes: readonly Node[], otherwise?: Backend): Backend {
  return survey(nodes, otherwise).backend;
}

/** The device that a graph runs on, and whether nodes that may fall back are in it. */
function survey(nodes: readonly Node[], otherwise?: Backend): { backend: Backend; handsOver: boolean } {
  const seen = new Set<Node>();
  const stack = nodes.filter((node) => node.stored || node.inputs.length > 0); // hundreds of new arrays say nothing
  let found: Backend | undefined;
  let handsOver = false;
  for (let node = stack.pop(); node; node = stack.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    handsOver ||= mayFallBack(node);
    if (node.stored) {
      const { backend } = node.stored.storage as Storage;
      if (found && backend !== found) {
        throw new ValueError(
          `arrays of ${found.name} and ${backend.name} cannot be used together; move one with x.to(device)`,
        );
      }
      found = backend;
    }
    stack.push(...node.inputs);
  }
  return { backend: found ?? otherwise ?? getBackend(), handsOver };
}

/**
 * Evaluates nodes: on return the work is submitted, and reading waits for it. Nodes without a device yet go to `otherwise`,
 * or to the default device.
 */
export function realize(nodes: readonly Node[], otherwise?: Backend): void {
  holding(nodes, () => submit(nodes, otherwise));
}

function submit(nodes: readonly Node[], otherwise?: Backend): void {
  for (const node of nodes) node.check();
  const asked = [...new Set(nodes.filter((node) => node.op !== "stored"))];
  if (asked.length === 0) return;
  collectWhenDue();
  const pending = [...asked, ...besideOf(asked)];
  if (!streamsUsed()) {
    const { backend, handsOver: fallsBack } = survey(pending, otherwise);
    return submitOn(backend, pending, { fallsBack });
  }
  for (const segment of segmentsOf(pending)) {
    const backend = segmentBackend(segment, otherwise);
    copyOver(segment, backend, readHeld);
    submitOn(backend, segment.outputs, { stream: segment.stream, fallsBack: true });
  }
}

/** Nodes that are worth evaluating with `nodes`, since both depend on the same ones: see {@link Node.beside}. */
function besideOf(nodes: readonly Node[]): readonly Node[] {
  const seen = new Set<Node>(nodes), found = new Set<Node>();
  for (const node of seen) {
    for (const other of node.beside ?? []) {
      if (other.op !== "stored" && other.gone === undefined && other.holders > 0 && !seen.has(other)) found.add(other);
    }
    for (const input of node.inputs) seen.add(input);
  }
  return [...found];
}

/** Facts about pending nodes: their stream, and whether they depend on nodes that may fall back. */
interface PendingFacts {
  readonly stream?: NodeStream;
  readonly fallsBack: boolean;
}

/** Submits pending nodes whose arrays all lie on one device. */
function submitOn(backend: Backend, pending: readonly Node[], { stream, fallsBack }: PendingFacts): void {
  const special = fallsBack ? pendingFallbacks(pending) : [];
  const evaluate = (nodes: readonly Node[], on: Backend): void => submitOn(on, nodes, { fallsBack });
  for (const node of special) if (runsElsewhere(node, backend)) runFallback(node, backend, evaluate);
  const asked = new Set(
    [...pending, ...special.filter((node) => node.op !== "stored" && hasParts(node))].filter((node) =>
      node.op !== "stored"
    ),
  );
  const outputs = [...asked].filter((node) => !uploadLeaf(node, backend));
  if (outputs.length === 0) return;
  const lowered = lowerCached(outputs, backend);
  using executable = new Executable(backend, lowered);
  if (lowered.slots.some((slot) => slot.kind === "parameter")) {
    throw new ValueError(
      "a function that is being compiled or mapped cannot evaluate or read its arrays; return them instead",
    );
  }
  const { outputs: stored } = executable.run([], stream?.index);
  for (const base of lowered.donated) takeStorage(base);
  for (const storage of lowered.overwritten) storage.changed();
  [...outputs, ...lowered.inPlace].forEach((node, i) => node.settle(stored[i]));
}

/** Runs `fn` while nodes are held: the Tensors that show them may be forgotten meanwhile, and found by the collector. */
export function holding<T>(nodes: readonly Node[], fn: () => T): T {
  const unowned = nodes.map((node) => node.refs === 0);
  for (const node of nodes) node.retain();
  try {
    return fn();
  } finally {
    nodes.forEach((node, i) => unowned[i] ? node.handOn() : node.release());
  }
}

/** Ends a leaf whose storage an output has taken over. */
export function takeStorage(base: Node): void {
  if (!base.stored) return;
  const storage = base.stored.storage as Storage;
  storage.changed();
  storage.release();
  base.stored = undefined;
  base.gone = "its storage was donated to an update";
}

/** Evaluates nodes; on return their values are there. */
export function realizeNow(nodes: readonly Node[]): void {
  holding(nodes, () => {
    submit(nodes);
    for (const [backend, ticket] of writersOf(nodes)) backend.wait(ticket);
  });
}

/** Evaluates nodes; resolves when their values are there. The event loop stays alive. */
export async function realizeAsync(nodes: readonly Node[]): Promise<void> {
  const writers = holding(nodes, () => {
    submit(nodes);
    return writersOf(nodes);
  });
  for (const [backend, ticket] of writers) await backend.waitAsync(ticket);
}

/** The last submission on each stream that wrote into stored nodes. */
function writersOf(nodes: readonly Node[]): readonly (readonly [Backend, number])[] {
  if (nodes.length === 1) {
    const { backend, ticket } = nodes[0].stored!.storage as Storage;
    return ticket > 0 ? [[backend, ticket]] : [];
  }
  const last = new Map<string, readonly [Backend, number]>();
  for (const { stored } of nodes) {
    const { backend, ticket } = stored!.storage as Storage;
    const key = `${backend.name} ${streamOf(ticket)}`;
    if (ticket > (last.get(key)?.[1] ?? 0)) last.set(key, [backend, ticket]);
  }
  return [...last.values()];
}

/** Contiguous host bytes of a node; evaluates it and waits. */
export function readNode(node: Node): Uint8Array {
  return holding([node], () => readHeld(node));
}

function readHeld(node: Node): Uint8Array {
  realize([node]);
  const { storage, offset, strides, packing } = node.stored!;
  if (packing || !isContiguous(node.shape, strides)) {
    const dense = makeNode("contiguous", [node], node.shape, node.dtype, {});
    dense.retain();
    try {
      submitOn((storage as Storage).backend, [dense], { fallsBack: false }); // where it lies, whatever the stream of the scope is
      return readHeld(dense);
    } finally {
      dense.release();
    }
  }
  const out = new Uint8Array(sizeOf(node.shape) * node.dtype.bytes);
  const { backend, buffer } = storage as Storage;
  if (out.length > 0) backend.read(buffer, offset * node.dtype.bytes, out);
  return out;
}
