/**
 * The type of a lowering rule: the contract between rules.ts, which lists them all, and the files of their families.
 *
 * @module
 */

import type { Node, OpName } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

/** Values of a node's inputs. */
export type Inputs = readonly Value[];

/** Lowers one node whose inputs have values. Most ops have one result; `quantize` has three. */
export type Rule = (lowering: Lowering, node: Node, inputs: Inputs) => Value | readonly Value[];

/** Rules of all ops that the walk in lower.ts does not treat itself (leaves, elementwise chains, parts). */
export type RuleName = Exclude<OpName, "stored" | "data" | "file" | "parameter" | "elementwise" | "part">;
