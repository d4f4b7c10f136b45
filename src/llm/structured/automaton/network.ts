/**
 * A grammar as a network of nodes: edges of bytes and edges that call a rule. A rule's texts are the paths from its start to an end.
 *
 * @module
 */

import type { CodePoints } from "../grammar/code_points.ts";
import type { Expression, Rules } from "../grammar/expression.ts";
import { type ByteRange, utf8Ranges } from "./utf8.ts";

/** Most nodes of a network. */
const MAX_NODES = 1 << 20;

/** Nodes and their edges, by node. */
export class Network {
  /** First byte, last byte and target of each edge, one after the other. */
  readonly bytes: number[][] = [];
  /** Targets of edges that take no byte. */
  readonly free: number[][] = [];
  /** Rule and target of each call, one after the other. */
  readonly calls: number[][] = [];
  /** Whether the text of a rule may end at a node. */
  readonly ends: boolean[] = [];
  /** The first node of each rule. */
  readonly starts: number[] = [];

  /** The network of a grammar. Throws a RangeError if it is too large. */
  constructor(rules: Rules) {
    for (const rule of rules) {
      const [start, end] = [this.node(), this.node()];
      this.ends[end] = true;
      this.starts.push(start);
      this.#add(rule, start, end);
    }
  }

  /** A new node. */
  node(): number {
    if (this.bytes.length >= MAX_NODES) throw new RangeError("it is too large");
    this.free.push([]);
    this.calls.push([]);
    this.ends.push(false);
    return this.bytes.push([]) - 1;
  }

  /** Adds the paths of an expression between two nodes. */
  #add(expression: Expression, from: number, to: number): void {
    switch (expression.kind) {
      case "byte":
        this.bytes[from].push(expression.first, expression.last, to);
        return;
      case "points":
        return this.#addPoints(expression.set, from, to);
      case "rule":
        this.calls[from].push(expression.index, to);
        return;
      case "lazy":
        return this.#add(expression.make(), from, to);
      case "choice":
        for (const part of expression.parts) this.#add(part, from, to);
        return;
      case "sequence": {
        let at = from;
        for (const [i, part] of expression.parts.entries()) {
          const next = i + 1 < expression.parts.length ? this.node() : to;
          this.#add(part, at, next);
          at = next;
        }
        if (at !== to) this.free[at].push(to);
        return;
      }
      case "repeat":
        return this.#addRepeat(expression, from, to);
      case "graph": {
        const nodes = Array.from({ length: expression.nodes }, () => this.node());
        this.free[from].push(nodes[0]);
        for (const [a, part, b] of expression.edges) {
          if (part) this.#add(part, nodes[a], nodes[b]);
          else this.free[nodes[a]].push(nodes[b]);
        }
        for (const end of expression.ends) this.free[nodes[end]].push(to);
      }
    }
  }

  #addRepeat({ part, min, max }: Expression & { kind: "repeat" }, from: number, to: number): void {
    let at = this.node();
    this.free[from].push(at);
    for (let i = 0; i < (max === Infinity ? min : max); i++) {
      if (i >= min) this.free[at].push(to);
      const next = this.node();
      this.#add(part, at, next);
      at = next;
    }
    if (max === Infinity) {
      const again = this.node();
      this.free[at].push(again);
      this.#add(part, again, at);
    }
    this.free[at].push(to);
  }

  /** Adds the bytes of code points. Code points with the same last bytes share nodes. */
  #addPoints(set: CodePoints, from: number, to: number): void {
    const shared = new Map<string, number>();
    for (const ranges of utf8Ranges(set)) {
      const after = (i: number): number => {
        if (i === ranges.length) return to;
        const key = ranges.slice(i).join(" ");
        let node = shared.get(key);
        if (node === undefined) {
          node = this.node();
          shared.set(key, node);
          this.#addByte(node, ranges[i], after(i + 1));
        }
        return node;
      };
      this.#addByte(from, ranges[0], after(1));
    }
  }

  #addByte(from: number, [first, last]: ByteRange, to: number): void {
    this.bytes[from].push(first, last, to);
  }
}
