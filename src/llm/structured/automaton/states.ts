/**
 * States of matching: after some bytes of a text, where in the network it may be. They are made when they are first reached, and kept,
 * so that a byte mostly costs one look into a table.
 *
 * A state is a set of pairs: a node of the network, and a frame. The frame says where to go on when the rule of this node ends.
 * Frames with the same continuations are one object. This keeps the number of pairs small for ambiguous texts too.
 *
 * @module
 */

import type { Rules } from "../grammar/expression.ts";
import { normalize, type Normalized } from "./normalize.ts";

/** Most states that are kept. */
const MAX_STATES = 1 << 16;
/** Most pairs of a state. */
const MAX_GROUPS = 1 << 12;

/** Nodes that a text may be at. The set has all nodes that follow without a byte, but only those with edges of their own. */
export interface NodeSet {
  readonly id: number;
  readonly nodes: readonly number[];
  /** Whether the rule may end. */
  readonly ends: boolean;
  /** Rules that may begin here, and where to go on after them; undefined if it was not looked for. */
  calls: readonly (readonly [rule: number, after: NodeSet])[] | undefined;
  /** The set after a byte of each class; null for none, undefined if it was not looked for. */
  readonly moves: (NodeSet | null | undefined)[];
}

/** Where to go on when a rule ends. */
export interface Frame {
  readonly id: number;
  readonly links: readonly (readonly [NodeSet, Frame])[];
  /** Whether the text may end here. */
  readonly final: boolean;
  /** Whether the continuation is left open; see {@link States.inside}. */
  readonly open: boolean;
  /** The state when the rule has ended. */
  after: State | undefined;
}

/** A state. */
export interface State {
  readonly groups: readonly (readonly [NodeSet, Frame])[];
  /** Whether the text may end. */
  readonly ends: boolean;
  /** Whether an open frame is reached. */
  readonly leaves: boolean;
  /** The state after a byte of each class. */
  readonly next: (State | undefined)[];
}

/** The states of a grammar. */
export class States {
  /** The class of each byte: the grammar tells no bytes of one class apart. */
  readonly classes: Uint8Array;
  /** The state that no text leads on from. */
  readonly dead: State;
  readonly #normalized: Normalized;
  readonly #classCount: number;
  readonly #final: Frame;
  readonly #open: Frame;
  readonly #starts: (NodeSet | undefined)[] = [];
  #ids = 0;
  #sets = new Map<string, NodeSet>();
  #frames = new Map<string, Frame>();
  #states = new Map<string, State>();

  /** Throws a RangeError if the grammar is too large. */
  constructor(rules: Rules) {
    this.#normalized = normalize(rules);
    [this.classes, this.#classCount] = byteClasses(this.#normalized);
    this.#final = { id: ++this.#ids, links: [], final: true, open: false, after: undefined };
    this.#open = { id: ++this.#ids, links: [], final: false, open: true, after: undefined };
    this.dead = { groups: [], ends: false, leaves: false, next: [] };
    for (let i = 0; i < this.#classCount; i++) this.dead.next.push(this.dead);
  }

  /** Whether there is a text of the grammar. */
  get possible(): boolean {
    const { network, live, emptyText } = this.#normalized;
    return emptyText || live[network.starts[0]] === 1;
  }

  /** The state at the beginning of a text. */
  start(): State {
    return this.#state([[this.#startOf(0), this.#final]], this.#normalized.emptyText);
  }

  /** The state of nodes whose frame is left open: `leaves` is set after bytes that end their rule. */
  inside(set: NodeSet): State {
    return this.#keep([[set, this.#open]], false, false);
  }

  /** The state when the rule of a frame has ended. */
  after(frame: Frame): State {
    return frame.after ??= this.#state(frame.links, frame.final);
  }

  /** The state after a byte of a class. */
  step(state: State, byteClass: number): State {
    const known = state.next[byteClass];
    if (known) return known;
    const moved: [NodeSet, Frame][] = [];
    for (const [set, frame] of state.groups) {
      const to = this.#move(set, byteClass);
      if (to) moved.push([to, frame]);
    }
    return state.next[byteClass] = moved.length === 0 ? this.dead : this.#state(moved, false);
  }

  /** Forgets the kept states if they are too many, and returns whether it did. States in use go on. */
  forget(): boolean {
    if (this.#states.size < MAX_STATES) return false;
    for (const state of this.#states.values()) state.next.fill(undefined);
    for (const set of this.#sets.values()) {
      set.moves.fill(undefined);
      set.calls = undefined;
    }
    for (const frame of this.#frames.values()) frame.after = undefined;
    this.#states = new Map();
    this.#sets = new Map();
    this.#frames = new Map();
    this.#starts.length = 0;
    return true;
  }

  #startOf(rule: number): NodeSet {
    return this.#starts[rule] ??= this.#set([this.#normalized.network.starts[rule]]);
  }

  /** The state of pairs, with where rules that end lead to, and with the rules that begin. */
  #state(pairs: readonly (readonly [NodeSet, Frame])[], ended: boolean): State {
    const groups: Groups = new Map();
    const left = new Set<Frame>();
    let ends = ended;
    const queue = [...pairs];
    for (let pair; (pair = queue.pop());) {
      const [set, frame] = pair;
      addTo(groups, set, frame);
      if (!set.ends || left.has(frame)) continue;
      left.add(frame);
      ends ||= frame.final;
      for (const link of frame.links) queue.push(link);
    }
    const leaves = [...left].some((frame) => frame.open);
    this.#begin(groups);
    const all = [...groups].map(([frame, sets]) => [this.#joinSets(sets), frame] as const);
    const kept = all.filter(([set]) => set.nodes.length > 0).sort((a, b) => a[1].id - b[1].id);
    return this.#keep(kept, ends, leaves);
  }

  /** Begins the rules that are called, each after all that call it at their beginning. */
  #begin(groups: Groups): void {
    const { ranks } = this.#normalized;
    const waiting = new Map<number, Groups>();
    /** The waiting rules, of which the next one comes last. */
    const order: number[] = [];
    const call = (set: NodeSet, frame: Frame): void => {
      for (const [rule, after] of this.#calls(set)) {
        let links = waiting.get(rule);
        if (!links) {
          waiting.set(rule, links = new Map());
          insert(order, rule, (other) => ranks[other] > ranks[rule]);
        }
        addTo(links, after, frame);
      }
    };
    for (const [frame, sets] of [...groups]) for (const set of sets) call(set, frame);
    for (let rule; (rule = order.pop()) !== undefined;) {
      const frame = this.#frame(waiting.get(rule)!);
      waiting.delete(rule);
      const start = this.#startOf(rule);
      addTo(groups, start, frame);
      call(start, frame);
    }
  }

  /** The frame of continuations. One that does nothing but end its own rule is replaced by what follows that: lists stay flat. */
  #frame(continuations: Groups): Frame {
    const links: Groups = new Map();
    let [final, open] = [false, false];
    for (const [frame, sets] of continuations) {
      const set = this.#joinSets(sets);
      if (set.nodes.length > 0) addTo(links, set, frame);
      if (!set.ends || set.nodes.length > 0) continue;
      final ||= frame.final;
      open ||= frame.open;
      for (const [more, outer] of frame.links) addTo(links, more, outer);
    }
    const pairs = [...links].map(([frame, sets]) => [this.#joinSets(sets), frame] as const);
    pairs.sort((a, b) => a[1].id - b[1].id);
    const key = `${final} ${open} ${pairs.map(([set, frame]) => `${set.id},${frame.id}`).join(" ")}`;
    let found = this.#frames.get(key);
    if (!found) {
      found = { id: ++this.#ids, links: pairs, final, open, after: undefined };
      this.#frames.set(key, found);
    }
    return found;
  }

  #keep(groups: State["groups"], ends: boolean, leaves: boolean): State {
    if (groups.length === 0 && !ends && !leaves) return this.dead;
    const key = `${ends} ${leaves} ${groups.map(([set, frame]) => `${set.id},${frame.id}`).join(" ")}`;
    let found = this.#states.get(key);
    if (!found) {
      found = { groups, ends, leaves, next: new Array(this.#classCount).fill(undefined) };
      this.#states.set(key, found);
    }
    return found;
  }

  /** The union of sets. */
  #joinSets(sets: readonly NodeSet[]): NodeSet {
    if (sets.every((set) => set === sets[0])) return sets[0];
    return this.#set(sets.flatMap((set) => set.nodes), sets.some((set) => set.ends));
  }

  #move(set: NodeSet, byteClass: number): NodeSet | null {
    const known = set.moves[byteClass];
    if (known !== undefined) return known;
    const { network: { bytes }, live } = this.#normalized;
    const byte = this.classes.indexOf(byteClass);
    const reached: number[] = [];
    for (const node of set.nodes) {
      const edges = bytes[node];
      for (let i = 0; i < edges.length; i += 3) {
        if (edges[i] <= byte && byte <= edges[i + 1] && live[edges[i + 2]]) reached.push(edges[i + 2]);
      }
    }
    return set.moves[byteClass] = reached.length === 0 ? null : this.#set(reached);
  }

  /** The set of nodes and of all that follow them without a byte. */
  #set(nodes: readonly number[], ended: boolean = false): NodeSet {
    const { network: { bytes, free, calls, ends }, live } = this.#normalized;
    const reached = new Set(nodes);
    for (const node of reached) for (const to of free[node]) if (live[to]) reached.add(to);
    const isEnd = ended || [...reached].some((node) => ends[node]);
    const kept = [...reached].filter((node) => bytes[node].length > 0 || calls[node].length > 0).sort((a, b) => a - b);
    const key = `${isEnd} ${kept.join(" ")}`;
    let found = this.#sets.get(key);
    if (!found) {
      const moves = new Array(this.#classCount).fill(undefined);
      found = { id: ++this.#ids, nodes: kept, ends: isEnd, calls: undefined, moves };
      this.#sets.set(key, found);
    }
    return found;
  }

  #calls(set: NodeSet): NonNullable<NodeSet["calls"]> {
    if (set.calls) return set.calls;
    const { network: { calls, starts }, live } = this.#normalized;
    const targets = new Map<number, number[]>();
    for (const node of set.nodes) {
      for (let i = 0; i < calls[node].length; i += 2) {
        const [rule, to] = [calls[node][i], calls[node][i + 1]];
        if (!live[to] || !live[starts[rule]]) continue;
        const known = targets.get(rule);
        if (known) known.push(to);
        else targets.set(rule, [to]);
      }
    }
    return set.calls = [...targets].map(([rule, to]) => [rule, this.#set(to)] as const);
  }
}

/** Sets of nodes by their frame. */
type Groups = Map<Frame, NodeSet[]>;

function addTo(groups: Groups, set: NodeSet, frame: Frame): void {
  const known = groups.get(frame);
  if (known) known.push(set);
  else groups.set(frame, [set]);
  if (groups.size > MAX_GROUPS) throw new RangeError("it is too ambiguous");
}

/** Inserts a value after all for which `isBefore` holds, in a list where these come first. */
function insert(list: number[], value: number, isBefore: (other: number) => boolean): void {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(list[middle])) low = middle + 1;
    else high = middle;
  }
  list.splice(low, 0, value);
}

/** Classes of bytes that no edge of a network tells apart, and how many there are. */
function byteClasses({ network }: Normalized): [Uint8Array, number] {
  const border = new Uint8Array(257);
  for (const edges of network.bytes) {
    for (let i = 0; i < edges.length; i += 3) border[edges[i]] = border[edges[i + 1] + 1] = 1;
  }
  const classes = new Uint8Array(256);
  let current = 0;
  for (let byte = 0; byte < 256; byte++) classes[byte] = byte > 0 && border[byte] ? ++current : current;
  return [classes, current + 1];
}
