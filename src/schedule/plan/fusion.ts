/**
 * Fusers: rows of a table that lowering walks before it lowers a graph op by op.
 *
 * A {@link Fuser} looks for sequences of nodes in plain array code that a few kernels compute together. Its result is a {@link
 * Fusion}: it claims nodes, and emits their dispatches when lowering comes to them. Lowering knows nothing else of it,
 * so a second fused architecture is a row of `fusers.ts`.
 *
 * @module
 */

import type { Node, OpName } from "../../graph/node.ts";
import type { Lowering } from "./context.ts";
import type { GraphView } from "./pattern.ts";
import type { LowerOptions } from "./options.ts";
import type { Value } from "./value.ts";

/** A parameter and the node that replaces it. */
export interface StateUpdate {
  readonly parameter: Node;
  readonly value: Node;
}

/** The part of a lowering that a fuser sees. */
export interface FusionContext {
  readonly l: Lowering;
  readonly graph: GraphView;
  /** Nodes whose values are asked for. */
  readonly wanted: ReadonlySet<Node>;
  /** State that the graph replaces, if it is a step of a loop. */
  readonly state: readonly StateUpdate[];
  /** The value of a leaf; undefined if a node is none. */
  leaf(node: Node): Value | undefined;
  /** The value of a node outside of the fusion; one whose turn has not come yet is lowered now. */
  value(node: Node): Value;
  /** Takes the value of a node inside that others read. */
  done(node: Node, value: Value): void;
}

/** Nodes that are computed together. */
export interface Fusion {
  /** Nodes that need no lowering of their own. */
  readonly inside: ReadonlySet<Node>;
  /** Called at the turn of each node inside, in the order of the graph. */
  emit(node: Node): void;
  /** Called after all nodes, by what overwrites what they read. */
  finish?(): void;
}

/** A row of the table of fusers. */
export interface Fuser {
  /** It is asked about graphs with one of these ops only. */
  readonly ops: readonly OpName[];
  /** Whether the row takes part. */
  enabled(options: LowerOptions): boolean;
  /** Its match in a graph, if there is one. It prints itself why a similar part does not match. */
  match(context: FusionContext): readonly Fusion[];
}
