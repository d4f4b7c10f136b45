/**
 * Graphs over several streams, cut into parts that each run on one.
 *
 * Nodes of one stream with nothing of another between them are one part and become one Plan. Nodes that another part reads are stored. Parts are
 * submitted inputs first; a device makes one stream wait for another where data flows, not the host. Leaves belong to the part that reads
 * them.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { environment, getBackend } from "../backend/devices.ts";
import { explainFallback } from "../backend/explain.ts";
import { ValueError } from "../graph/error.ts";
import { makeNode, type Node } from "../graph/node.ts";
import { formatShape } from "../graph/shape.ts";
import type { NodeStream } from "../graph/stream.ts";
import { inputsFirst } from "./plan/order.ts";
import type { Storage } from "./plan/storage.ts";

/** A part of a graph on one stream, or on none in particular. */
export interface Segment {
  readonly stream: NodeStream | undefined;
  /** Nodes that are asked for or read by other parts. */
  readonly outputs: Node[];
}

/** The parts of the graph of pending `nodes`, those that others read first. */
export function segmentsOf(nodes: readonly Node[]): Segment[] {
  const order = inputsFirst(nodes, (node) => node.inputs);
  const levels = new Map<Node, number>();
  const rows: Map<NodeStream | undefined, Segment>[] = [];
  const segments = new Map<Node, Segment>();
  const wanted = new Set(nodes);
  for (const node of order) {
    if (node.op === "stored" || (node.inputs.length === 0 && !wanted.has(node))) continue;
    let level = 0;
    for (const input of node.inputs) {
      const before = levels.get(input);
      if (before !== undefined) level = Math.max(level, before + (input.stream === node.stream ? 0 : 1));
    }
    levels.set(node, level);
    const row = rows[level] ??= new Map();
    let segment = row.get(node.stream);
    if (!segment) row.set(node.stream, segment = { stream: node.stream, outputs: [] });
    segments.set(node, segment);
  }
  const outputs = new Set<Node>(nodes);
  for (const [node, segment] of segments) {
    for (const input of node.inputs) {
      const other = segments.get(input);
      if (other && other !== segment) outputs.add(input);
    }
  }
  for (const node of order) if (outputs.has(node)) segments.get(node)?.outputs.push(node);
  return rows.flatMap((row) => [...row.values()]).filter((segment) => segment.outputs.length > 0);
}

/**
 * The device of a part is that of its stream. Without a stream it is that of the arrays it reads that have no stream, else `otherwise` or
 * the default.
 */
export function segmentBackend(segment: Segment, otherwise: Backend | undefined): Backend {
  if (segment.stream) return getBackend(segment.stream.deviceName);
  let found: Backend | undefined;
  for (const node of inputsFirst(segment.outputs, (node) => node.inputs)) {
    if (!node.stored || node.stream) continue;
    const { backend } = node.stored.storage as Storage;
    if (found && backend !== found) {
      throw new ValueError(
        `arrays of ${found.name} and ${backend.name} cannot be used together; move one with x.to(device)`,
      );
    }
    found = backend;
  }
  return found ?? otherwise ?? getBackend();
}

/** Lets a part read what lies on other devices: `read` gives the values of such an array, and a copy stands for it. */
export function copyOver(segment: Segment, backend: Backend, read: (node: Node) => Uint8Array): void {
  const copies = new Map<Node, Node>();
  const copyOf = (node: Node): Node => {
    if (!node.stored) {
      // A leaf goes to the device of its first reader, and keeps the stream that said so.
      if (segment.stream && (node.op === "data" || node.op === "file")) node.stream ??= segment.stream;
      return node;
    }
    const from = node.stored.storage.device;
    if (from === backend.name) return node;
    const what = `an array of shape ${formatShape(node.shape)} is copied from ${from} to ${backend.name}`;
    if (!segment.stream && environment("VKMX_STRICT") === "1") {
      throw new ValueError(`${what}, which VKMX_STRICT=1 forbids; move it with x.to("${backend.name}")`);
    }
    explainFallback(`${what}, where the stream of an op is`);
    let copy = copies.get(node);
    if (!copy) copies.set(node, copy = makeNode("data", [], node.shape, node.dtype, { bytes: read(node) }));
    return copy;
  };
  for (const node of inputsFirst(segment.outputs, (node) => node.inputs)) {
    const inputs = node.inputs.map(copyOf);
    if (inputs.some((input, i) => input !== node.inputs[i])) {
      node.become({ op: node.op, inputs, attrs: node.attrs, composite: node.composite });
    }
  }
}
