/**
 * Finite automata over code points: regular expressions, and texts that several of them match.
 *
 * @module
 */

import { type CodePoints, EVERY, intersection } from "./code_points.ts";
import type { Expression } from "./expression.ts";
import type { Pattern } from "./regex.ts";

/** Most nodes of an automaton. */
const MAX_NODES = 200_000;

/** An automaton: node 0 is its start. */
export interface CodeAutomaton {
  /** Edges of each node that take a code point. */
  readonly edges: readonly (readonly [set: CodePoints, to: number][])[];
  /** Edges of each node that take none. */
  readonly free: readonly (readonly number[])[];
  /** Whether a text may end at a node. */
  readonly ends: readonly boolean[];
}

/** The label of an edge: a code point, or nothing at the begin or the end of a text. */
type Label = CodePoints | "start" | "end" | undefined;

/** The automaton of a pattern, which matches the `whole` text or a part of it. */
export function automatonOf(pattern: Pattern, whole: boolean): CodeAutomaton {
  const graph = new PatternGraph();
  const [first, last] = [graph.node(), graph.node()];
  graph.add(pattern, first, last);
  if (!whole) { for (const node of [first, last]) graph.edge(node, EVERY, node); }
  return graph.resolved(first, last);
}

/** The automaton of any `min` to `max` code points. */
export function lengthAutomaton(min: number, max: number): CodeAutomaton {
  return automatonOf({ kind: "repeat", part: { kind: "class", set: () => EVERY }, min, max }, true);
}

/** The graph of a pattern with its assertions. */
class PatternGraph {
  readonly #edges: [Label, number][][] = [];

  node(): number {
    if (this.#edges.length >= MAX_NODES) throw new RangeError("it is too large");
    return this.#edges.push([]) - 1;
  }

  edge(from: number, label: Label, to: number): void {
    this.#edges[from].push([label, to]);
  }

  /** Adds paths of a pattern between two nodes. */
  add(pattern: Pattern, from: number, to: number): void {
    switch (pattern.kind) {
      case "class":
        return this.edge(from, pattern.set(), to);
      case "start":
      case "end":
        return this.edge(from, pattern.kind, to);
      case "choice":
        for (const part of pattern.parts) this.add(part, from, to);
        return;
      case "sequence": {
        let at = from;
        for (const part of pattern.parts) {
          const next = this.node();
          this.add(part, at, next);
          at = next;
        }
        return this.edge(at, undefined, to);
      }
      case "repeat":
        return this.#repeat(pattern, from, to);
    }
  }

  #repeat({ part, min, max }: Pattern & { kind: "repeat" }, from: number, to: number): void {
    let at = this.node();
    this.edge(from, undefined, at);
    for (let i = 0; i < (max === Infinity ? min : max); i++) {
      if (i >= min) this.edge(at, undefined, to);
      const next = this.node();
      this.add(part, at, next);
      at = next;
    }
    if (max === Infinity) {
      const again = this.node();
      this.edge(at, undefined, again);
      this.add(part, again, at);
    }
    this.edge(at, undefined, to);
  }

  /**
   * The automaton without assertions. A node is split by whether a code point was taken, and whether the end was asserted. After an
   * asserted end no code point may follow.
   */
  resolved(first: number, last: number): CodeAutomaton {
    const built = new Builder();
    built.node(first, 0);
    for (let i = 0; i < built.states.length; i++) {
      const [node, flags] = built.states[i];
      built.ends.push(node === last);
      for (const [label, to] of this.#edges[node]) {
        if (label === undefined) built.freeEdge(i, to, flags);
        else if (label === "start") (flags & TAKEN) === 0 && built.freeEdge(i, to, flags);
        else if (label === "end") built.freeEdge(i, to, flags | ENDED);
        else if ((flags & ENDED) === 0 && label.length > 0) built.edge(i, label, to, flags | TAKEN);
      }
    }
    return built;
  }
}

const TAKEN = 1;
const ENDED = 2;

/** An automaton whose nodes are pairs. */
class Builder implements CodeAutomaton {
  readonly states: [number, number][] = [];
  readonly edges: [CodePoints, number][][] = [];
  readonly free: number[][] = [];
  readonly ends: boolean[] = [];
  readonly #indices = new Map<number, number>();

  node(a: number, b: number): number {
    const key = a * MAX_NODES + b;
    let index = this.#indices.get(key);
    if (index === undefined) {
      if (this.states.length >= MAX_NODES) throw new RangeError("it is too large");
      index = this.states.push([a, b]) - 1;
      this.#indices.set(key, index);
      this.edges.push([]);
      this.free.push([]);
    }
    return index;
  }

  edge(from: number, set: CodePoints, a: number, b: number): void {
    this.edges[from].push([set, this.node(a, b)]);
  }

  freeEdge(from: number, a: number, b: number): void {
    this.free[from].push(this.node(a, b));
  }
}

/** The automaton of texts that both match. */
export function bothOf(a: CodeAutomaton, b: CodeAutomaton): CodeAutomaton {
  const built = new Builder();
  built.node(0, 0);
  for (let i = 0; i < built.states.length; i++) {
    const [p, q] = built.states[i];
    built.ends.push(a.ends[p] && b.ends[q]);
    for (const to of a.free[p]) built.freeEdge(i, to, q);
    for (const to of b.free[q]) built.freeEdge(i, p, to);
    for (const [left, toLeft] of a.edges[p]) {
      for (const [right, toRight] of b.edges[q]) {
        const set = intersection(left, right);
        if (set.length > 0) built.edge(i, set, toLeft, toRight);
      }
    }
  }
  return built;
}

/** The texts of an automaton, whose code points are written as `write` says. */
export function expressionOf(automaton: CodeAutomaton, write: (set: CodePoints) => Expression): Expression {
  const written = new Map<CodePoints, Expression>();
  const writtenOnce = (set: CodePoints): Expression => {
    const known = written.get(set) ?? write(set);
    written.set(set, known);
    return known;
  };
  return {
    kind: "graph",
    nodes: automaton.edges.length,
    edges: automaton.edges.flatMap((edges, from) => [
      ...edges.map(([set, to]) => [from, writtenOnce(set), to] as const),
      ...automaton.free[from].map((to) => [from, undefined, to] as const),
    ]),
    ends: automaton.ends.flatMap((end, node) => end ? [node] : []),
  };
}
