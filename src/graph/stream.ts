/**
 * Which stream a node belongs to: the one in whose scope it is made.
 *
 * Outside of every scope nodes have no stream: they run on the first stream of the device where their arrays lie. Evaluation looks at
 * streams only after a program has used one.
 *
 * @module
 */

/** A stream as nodes know it. */
export interface NodeStream {
  /** Name of the device. */
  readonly deviceName: string;
  /** Number among the streams of the device; 0 is its default stream. */
  readonly index: number;
}

let scope: NodeStream | undefined;
let used = false;

/** The stream of the innermost scope, if any. */
export function scopeStream(): NodeStream | undefined {
  return scope;
}

/** Enters the scope of a stream, or leaves all; gives the one before. */
export function enterStream(stream: NodeStream | undefined): NodeStream | undefined {
  const before = scope;
  scope = stream;
  used ||= stream !== undefined;
  return before;
}

/** Whether any node may have a stream. */
export function streamsUsed(): boolean {
  return used;
}
