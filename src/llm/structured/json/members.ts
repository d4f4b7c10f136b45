/**
 * Objects and arrays of a schema.
 *
 * @module
 */

import { type Expression, literal, NEVER, sequence } from "../grammar/expression.ts";
import { jsonText } from "./text.ts";

/** A described property. */
export interface Member {
  readonly name: string;
  readonly value: Expression;
  readonly required: boolean;
}

type Edge = [from: number, part: Expression | undefined, to: number];

/** Paths in the making. */
class Graph {
  readonly edges: Edge[] = [];
  #nodes = 0;

  node(): number {
    return this.#nodes++;
  }

  edge(from: number, part: Expression | undefined, to: number): void {
    this.edges.push([from, part, to]);
  }

  ending(ends: readonly number[]): Expression {
    return { kind: "graph", nodes: this.#nodes, edges: this.edges, ends };
  }
}

/** Objects: described properties in their order, then any number of `others`, names with values. */
export function objects(members: readonly Member[], others: Expression | undefined): Expression {
  const graph = new Graph();
  const comma = literal(", ");
  // Before a member: nothing is written yet, or something is.
  let [first, later] = [graph.node(), graph.node()];
  for (const { name, value, required } of members) {
    const [begin, nextFirst, nextLater] = [graph.node(), graph.node(), graph.node()];
    graph.edge(first, undefined, begin);
    graph.edge(later, comma, begin);
    graph.edge(begin, sequence(literal(`${jsonText(name)}: `), value), nextLater);
    if (!required) {
      graph.edge(first, undefined, nextFirst);
      graph.edge(later, undefined, nextLater);
    }
    [first, later] = [nextFirst, nextLater];
  }
  if (others) {
    const begin = graph.node();
    graph.edge(first, undefined, begin);
    graph.edge(later, comma, begin);
    graph.edge(begin, others, later);
  }
  return sequence(literal("{"), graph.ending([first, later]), literal("}"));
}

/** Arrays of `min` to `max` items: the first ones described, the others `rest`. */
export function arrays(first: readonly Expression[], rest: Expression, min: number, max: number): Expression {
  if (min > max) return NEVER;
  const graph = new Graph();
  const ends: number[] = [];
  const separated = (count: number, item: Expression): Expression => count === 0 ? item : sequence(literal(", "), item);
  let at = graph.node();
  const last = max === Infinity ? Math.max(first.length, min, 1) : max;
  for (let count = 0; count < last; count++) {
    if (count >= min) ends.push(at);
    const next = graph.node();
    graph.edge(at, separated(count, first[count] ?? rest), next);
    at = next;
  }
  ends.push(at);
  if (max === Infinity) graph.edge(at, separated(last, rest), at);
  return sequence(literal("["), graph.ending(ends), literal("]"));
}
