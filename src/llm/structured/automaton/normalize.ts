/**
 * Networks that can be matched byte by byte. In them no rule matches the empty text, no rule calls itself before it takes a byte,
 * and every node leads to an end.
 *
 * @module
 */

import type { Rules } from "../grammar/expression.ts";
import { Network } from "./network.ts";

/** A network ready for matching. */
export interface Normalized {
  readonly network: Network;
  /** Whether the whole text may be empty. */
  readonly emptyText: boolean;
  /** Whether a path from a node reaches an end of its rule. */
  readonly live: Uint8Array;
  /** Position of each rule in an order in which a rule comes before those that it calls at its beginning. */
  readonly ranks: readonly number[];
}

/** The normalized network of a grammar. Throws a RangeError if it is too large. */
export function normalize(rules: Rules): Normalized {
  const network = new Network(rules);
  const nullable = skipNullable(network);
  for (const [rule, start] of network.starts.entries()) network.starts[rule] = separateStart(network, start);
  const order = removeLeftRecursion(network);
  const ranks: number[] = [];
  for (const [rank, rule] of order.entries()) ranks[rule] = rank;
  return { network, emptyText: nullable[0], live: liveNodes(network), ranks };
}

/** Finds the rules that take the empty text, and adds edges past their calls: calls take a byte or more from now on. */
function skipNullable({ free, calls, ends, starts }: Network): boolean[] {
  const nullable = starts.map(() => false);
  const callers = calls.flatMap((edges, node) => edges.length > 0 ? [node] : []);
  const waiting: number[][] = starts.map(() => []);
  for (const node of callers) for (let i = 0; i < calls[node].length; i += 2) waiting[calls[node][i]].push(node);
  // A node reaches its rule's end without a byte; found backwards from the ends.
  const empty = new Uint8Array(free.length);
  const into: number[][] = free.map(() => []);
  for (const [node, targets] of free.entries()) for (const to of targets) into[to].push(node);
  for (const node of callers) for (let i = 1; i < calls[node].length; i += 2) into[calls[node][i]].push(node);
  const startOf = new Map(starts.map((node, rule) => [node, rule]));
  const queue = ends.flatMap((end, node) => end ? [node] : []);
  for (const node of queue) empty[node] = 1;
  const passes = (node: number): boolean => {
    if (free[node].some((to) => empty[to])) return true;
    for (let i = 0; i < calls[node].length; i += 2) {
      if (nullable[calls[node][i]] && empty[calls[node][i + 1]]) return true;
    }
    return false;
  };
  for (let node; (node = queue.pop()) !== undefined;) {
    const rule = startOf.get(node);
    if (rule !== undefined) nullable[rule] = true;
    for (const other of rule === undefined ? into[node] : [...into[node], ...waiting[rule]]) {
      if (empty[other] || !passes(other)) continue;
      empty[other] = 1;
      queue.push(other);
    }
  }
  for (const node of callers) {
    for (let i = 0; i < calls[node].length; i += 2) {
      if (nullable[calls[node][i]]) free[node].push(calls[node][i + 1]);
    }
  }
  return nullable;
}

/** A new start that no edge leads to and that is no end. It gets the edges of all nodes that the old start reaches without a byte. */
function separateStart(network: Network, start: number): number {
  const fresh = network.node();
  for (const node of reach([start], (at) => network.free[at])) {
    append(network.bytes[fresh], network.bytes[node]);
    append(network.calls[fresh], network.calls[node]);
  }
  return fresh;
}

/** Appends numbers to a list of any length. */
function append(list: number[], more: readonly number[]): void {
  for (const value of more) list.push(value);
}

/** All nodes that are reached along some edges. */
function reach(from: readonly number[], edges: (node: number) => readonly number[]): Set<number> {
  const found = new Set(from);
  for (const node of found) for (const to of edges(node)) found.add(to);
  return found;
}

/** Nodes of the rest of a rule. */
function body(network: Network, from: readonly number[]): Set<number> {
  return reach(from, (node) => [...network.free[node], ...targets(network, node)]);
}

/** Where edges of bytes and calls lead. */
function targets({ bytes, calls }: Network, node: number): number[] {
  return [
    ...bytes[node].filter((_, i) => i % 3 === 2),
    ...calls[node].filter((_, i) => i % 2 === 1),
  ];
}

/**
 * Rewrites rules that call themselves at their beginning, by way of others too, as loops: `a ::= a x | y` takes y, then any number of x.
 * Returns rules in an order in which each comes before those that it calls at its beginning.
 */
function removeLeftRecursion(network: Network): number[] {
  const { calls, starts } = network;
  const firstCalls = (rule: number): number[] => calls[starts[rule]].filter((_, i) => i % 2 === 0);
  for (const group of components(starts.length, firstCalls)) {
    if (group.length === 1 && !firstCalls(group[0]).includes(group[0])) continue;
    for (const [i, rule] of group.entries()) {
      for (const other of group.slice(0, i)) inlineFirst(network, rule, other);
      loopFirst(network, rule);
    }
  }
  return components(starts.length, firstCalls).flat();
}

/** Takes the calls of a rule from the beginning of another and returns where they lead. */
function takeCalls({ calls, starts }: Network, rule: number, callee: number): number[] {
  const taken: number[] = [];
  const kept: number[] = [];
  const edges = calls[starts[rule]];
  for (let i = 0; i < edges.length; i += 2) {
    if (edges[i] === callee) taken.push(edges[i + 1]);
    else kept.push(edges[i], edges[i + 1]);
  }
  calls[starts[rule]] = kept;
  return taken;
}

/** Writes a rule into the beginning of another. */
function inlineFirst(network: Network, rule: number, callee: number): void {
  const { bytes, free, calls, ends, starts } = network;
  const [start, from] = [starts[rule], starts[callee]];
  for (const to of takeCalls(network, rule, callee)) {
    const copies = new Map<number, number>();
    for (const node of body(network, targets(network, from))) copies.set(node, network.node());
    const copied = (edges: readonly number[], every: number): number[] =>
      edges.map((value, i) => i % every === every - 1 ? copies.get(value)! : value);
    for (const [node, copy] of copies) {
      bytes[copy] = copied(bytes[node], 3);
      calls[copy] = copied(calls[node], 2);
      free[copy] = copied(free[node], 1);
      if (ends[node]) free[copy].push(to);
    }
    append(bytes[start], copied(bytes[from], 3));
    append(calls[start], copied(calls[from], 2));
  }
}

/** Writes calls of a rule from its own beginning as loops from its ends. */
function loopFirst(network: Network, rule: number): void {
  const again = takeCalls(network, rule, rule);
  if (again.length === 0) return;
  for (const node of body(network, [...targets(network, network.starts[rule]), ...again])) {
    if (network.ends[node]) append(network.free[node], again);
  }
}

/** Strongly connected components of a graph, each before those that it leads to. By Tarjan, without recursion. */
function components(count: number, edges: (node: number) => readonly number[]): number[][] {
  const found: number[][] = [];
  const index = new Int32Array(count).fill(-1);
  const low = new Int32Array(count);
  const onStack = new Uint8Array(count);
  const stack: number[] = [];
  let next = 0;
  for (let root = 0; root < count; root++) {
    if (index[root] >= 0) continue;
    const path: { readonly node: number; readonly to: readonly number[]; at: number }[] = [];
    const enter = (node: number): void => {
      index[node] = low[node] = next++;
      onStack[node] = 1;
      stack.push(node);
      path.push({ node, to: edges(node), at: 0 });
    };
    enter(root);
    while (path.length > 0) {
      const top = path[path.length - 1];
      if (top.at < top.to.length) {
        const to = top.to[top.at++];
        if (index[to] < 0) enter(to);
        else if (onStack[to]) low[top.node] = Math.min(low[top.node], index[to]);
        continue;
      }
      path.pop();
      if (path.length > 0) {
        const { node } = path[path.length - 1];
        low[node] = Math.min(low[node], low[top.node]);
      }
      if (low[top.node] !== index[top.node]) continue;
      const component = stack.splice(stack.indexOf(top.node));
      for (const node of component) onStack[node] = 0;
      found.push(component);
    }
  }
  return found.reverse();
}

/**
 * Nodes from which some text reaches an end of the rule. A call leads on only if its rule has a text of at least one byte. So the
 * search tells paths of any length from those that take a byte.
 */
function liveNodes({ bytes, free, calls, ends, starts }: Network): Uint8Array {
  const count = free.length;
  const [any, some] = [new Uint8Array(count), new Uint8Array(count)];
  const rules = new Uint8Array(starts.length);
  const freeInto: number[][] = free.map(() => []);
  const bytesInto: number[][] = free.map(() => []);
  const callsInto: number[][] = free.map(() => []);
  const callers: number[][] = starts.map(() => []);
  for (let node = 0; node < count; node++) {
    for (const to of free[node]) freeInto[to].push(node);
    for (let i = 2; i < bytes[node].length; i += 3) bytesInto[bytes[node][i]].push(node);
    for (let i = 0; i < calls[node].length; i += 2) {
      callsInto[calls[node][i + 1]].push(node, calls[node][i]);
      callers[calls[node][i]].push(node, calls[node][i + 1]);
    }
  }
  const startOf = new Map(starts.map((node, rule) => [node, rule]));
  const queue: number[] = [];
  const mark = (node: number, takesByte: boolean): void => {
    const before = any[node] + some[node];
    any[node] = 1;
    if (takesByte) some[node] = 1;
    if (any[node] + some[node] > before) queue.push(node);
  };
  for (let node = 0; node < count; node++) if (ends[node]) mark(node, false);
  for (let node; (node = queue.pop()) !== undefined;) {
    for (const from of freeInto[node]) mark(from, some[node] === 1);
    for (const from of bytesInto[node]) mark(from, true);
    for (let i = 0; i < callsInto[node].length; i += 2) {
      if (rules[callsInto[node][i + 1]]) mark(callsInto[node][i], true);
    }
    const rule = startOf.get(node);
    if (rule === undefined || rules[rule] || !some[node]) continue;
    rules[rule] = 1;
    for (let i = 0; i < callers[rule].length; i += 2) if (any[callers[rule][i + 1]]) mark(callers[rule][i], true);
  }
  return any;
}
