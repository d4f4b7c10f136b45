/**
 * Memory of arrays that the program forgot without disposing of them.
 *
 * JavaScript's collector does not see device memory, and finalizers run between tasks only. A synchronous loop that evaluates and drops
 * arrays would hold all of them until its end. So they are looked for when the bytes of results that were evaluated since then, and are
 * still held, pass a limit. Memory that was released explicitly never counts.
 *
 * As in the collector itself there are two generations. Most arrays are forgotten soon, as the gradients of a step are, and V8's minor GC
 * finds those in a millisecond or two. Once new results reach a share of the live bytes, the next minor GC is used. Or one is made to run by
 * filling its space. Those that got old before they were forgotten are found by a whole collection, which takes tens of milliseconds. It
 * runs once the bytes that got old since the last one reach half of the live bytes.
 *
 * Dead arrays are found through WeakRefs, in the same task: see collector.ts. An engine without that has its finalizers alone, which
 * release what no collection here has found.
 *
 * @module
 */

import type { Node } from "../../graph/node.ts";
import { engine, scavenge, scavenged, watch } from "./collector.ts";

/**
 * Young results are checked after a minor GC once they exceed `bytes` and `share` of live memory. At twice that a GC is forced; `most`
 * replaces `bytes` while GCs take long.
 */
const MIN_YOUNG = { bytes: 4 << 20, most: 12 << 20, share: 1 / 4 } as const;
/** Bytes of long-lived results since the last full GC that do not start another one. */
const MIN_MIDDLE = 8 << 20;
/** Bytes of results of any age that do not start a full GC. */
const MIN_BYTES = 48 << 20;
/** Bytes of results that are a reason to look for young arrays, and then to collect, when nothing else runs. */
const IDLE_BYTES = 2 << 20;
/** Arrays after which the list of what lives until a checkpoint is cleared, between evaluations and at all. */
const CHECKPOINT_ARRAYS = { evaluated: 256, made: 50_000 } as const;
/** Arrays that are a reason to collect. */
const MIN_ARRAYS = 200_000;
/** Old arrays that are looked at with the young: V8 collects them at times, and few take no time. */
const MAX_OLD = 10_000;
/** Milliseconds from a reason to collect until it happens between tasks: a few collections' time, longer where they find nothing. */
const IDLE_MS = { least: 20, most: 50, useless: 2000 } as const;
/** Share of the bytes of JavaScript's heap that counts too: collecting takes as long as that is large. */
const HEAP_SHARE = 1 / 8;
/** How often in a row the minor GC may fail to run: engines differ in what it does with WeakRefs. */
const MAX_VAIN = 3;
/** Share of the time that having it run may take before more arrays are waited for. */
const MAX_COST = 1 / 10;

/** One Tensor's reference of a node, which it lets go when it is disposed of or was forgotten. */
export class Hold {
  readonly #owner: WeakRef<object>;
  #node: Node | undefined;
  /** Where it is listed. */
  #among: Set<Hold> = young;

  /** Retains `node` for `owner`. */
  constructor(owner: object, node: Node) {
    this.#owner = new WeakRef(owner);
    this.#node = node;
    node.retain();
    node.holders++;
    this.#among.add(this);
    registry.register(owner, this, this);
    if (++made - cleared >= CHECKPOINT_ARRAYS.made) checkpoint();
  }

  /** Lets the reference go. */
  release(): void {
    const node = this.#end();
    if (!node) return;
    node.release();
    // Pending nodes read it, perhaps for arrays that were forgotten.
    if (node.stored && node.holders === 0) {
      orphans.add(node);
      collectSoon();
    }
  }

  /** Gives the reference to the caller, which must hold the node at once. */
  handOn(): void {
    this.#end()?.handOn();
  }

  /** Whether the owner is there. */
  get isAlive(): boolean {
    return this.#owner.deref() !== undefined;
  }

  /** Moves on by a generation. */
  age(): void {
    const next = this.#among === young ? middle : old;
    this.#among.delete(this);
    this.#among = next;
    next.add(this);
  }

  #end(): Node | undefined {
    const node = this.#node;
    this.#node = undefined;
    if (!node) return undefined;
    node.holders--;
    this.#among.delete(this);
    registry.unregister(this);
    return node;
  }
}

const registry = new FinalizationRegistry<Hold>((hold) => hold.release());
/** Holds by how often they were found alive: never, once, more often. */
const young = new Set<Hold>();
const middle = new Set<Hold>();
const old = new Set<Hold>();
/** Stored nodes that no Tensor shows any more: something pending reads them. */
const orphans = new Set<Node>();
/** Arrays that were made, and how many there were at the last checkpoint. */
let made = 0;
let cleared = 0;
let survivors = 0;
let evaluations = 0;

/** Bytes of results by when they were made: since arrays were last looked for, before but since the last whole collection, before that. */
const bytes = { young: 0, middle: 0, old: 0 };
/** How often arrays were looked for, and how often until the last whole collection. */
let generation = 0;
let collected = 0;
const limit = { young: MIN_YOUNG.bytes as number, middle: MIN_MIDDLE as number, all: MIN_BYTES as number };

/** Counts the bytes of a result; gives what {@link uncount} takes when they are freed. */
export function count(size: number): number {
  bytes.young += size;
  if (bytes.young + bytes.middle > IDLE_BYTES) collectSoon();
  return generation;
}

/** Takes back what {@link count} counted in a generation. */
export function uncount(size: number, counted: number): void {
  bytes[counted === generation ? "young" : counted >= collected ? "middle" : "old"] -= size;
}

/** Looks for forgotten arrays when enough may be. Nodes that the caller works on must be retained. */
export function collectWhenDue(): void {
  evaluations++;
  if (bytes.young > limit.young) {
    const ran = scavenged();
    if (ran) vain = 0;
    if (ran || (bytes.young > patience && vain < MAX_VAIN)) sweep(ran);
  }
  const arrays = young.size + middle.size + old.size;
  const due = bytes.middle > limit.middle || bytes.young + bytes.middle > limit.all ||
    arrays > survivors + Math.max(MIN_ARRAYS, survivors);
  if (due) collect();
  // The next minor GC finds arrays that are forgotten from now on, if nothing else keeps them alive.
  if (made - cleared >= CHECKPOINT_ARRAYS.evaluated) checkpoint();
}

/** Forgets what lives until a checkpoint. */
function checkpoint(): void {
  engine()?.checkpoint();
  cleared = made;
}

/** How often in a row the minor GC could not be made to run. */
let vain = 0;
/** When that last was done, the least bytes of the young that are a reason to, and those that are one now. */
let forced = 0;
let least = MIN_YOUNG.bytes as number;
let patience = 2 * least;

/** Releases what arrays that are gone held. */
function release(...among: readonly Set<Hold>[]): void {
  for (const holds of among) for (const hold of holds) if (!hold.isAlive) hold.release();
}

/** Looks for arrays that were forgotten young, after a minor GC ran or by running one. */
function sweep(ran: boolean): void {
  if (!engine()) return;
  const start = performance.now();
  const among = old.size < MAX_OLD ? [young, middle, old] : [young, middle];
  if (ran) release(...among);
  if (!ran || bytes.young > patience / 2) {
    if (!scavenge()) {
      vain++;
      return void collect();
    }
    vain = 0;
    release(...among);
    const now = performance.now(), cost = (now - start) / (now - forced);
    forced = now;
    if (cost > MAX_COST) least = Math.min(2 * least, MIN_YOUNG.most);
    else if (cost < MAX_COST / 2) least = Math.max(least / 2, MIN_YOUNG.bytes);
  }
  for (const hold of middle) hold.age();
  for (const hold of young) hold.age();
  bytes.middle += bytes.young;
  bytes.young = 0;
  generation++;
  watch();
  setLimits();
}

/** Sets when the young arrays are next searched: after a minor GC, and in any case. */
function setLimits(): void {
  const share = MIN_YOUNG.share * (bytes.middle + bytes.old);
  limit.young = Math.max(MIN_YOUNG.bytes, share);
  patience = 2 * Math.max(least, share);
}

let took = 0;

/** Releases what unreachable arrays held; returns whether that were any bytes. Nodes that the caller works on must be retained. */
export function collect(): boolean {
  const v8 = engine();
  if (!v8) return false;
  const start = performance.now();
  const before = bytes.young + bytes.middle + bytes.old;
  checkpoint();
  v8.gc();
  release(young, middle, old);
  orphans.clear();
  survivors = young.size + middle.size + old.size;
  const all = bytes.young + bytes.middle + bytes.old;
  collected = ++generation;
  bytes.old = all;
  bytes.young = bytes.middle = 0;
  watch();
  took = performance.now() - start;
  const heap = HEAP_SHARE * v8.heap();
  limit.middle = Math.max(MIN_MIDDLE, all / 2, heap);
  limit.all = Math.max(MIN_BYTES, all, heap);
  setLimits();
  return all < before;
}

// `wait` with a timeout is a timer that keeps no process alive and that no test has to wait for.
const never = new Int32Array(new SharedArrayBuffer(4));
let waiting = false;
let useless = 0;

/** Collects some time after this task if something is still forgotten then, and nothing else was evaluated meanwhile. */
function collectSoon(): void {
  if (waiting || !engine()) return;
  waiting = true;
  const before = evaluations;
  const delay = Math.min(Math.max(IDLE_MS.least, 8 * took), IDLE_MS.most) * 2 ** useless;
  const later = Atomics.waitAsync(never, 0, 0, Math.min(delay, IDLE_MS.useless));
  Promise.resolve(later.value).then(() => {
    waiting = false;
    const forgotten = [...orphans].some((node) => node.stored && node.holders === 0);
    if (!forgotten && bytes.young + bytes.middle <= IDLE_BYTES) return;
    if (evaluations !== before) return collectSoon();
    orphans.clear();
    useless = collect() ? 0 : Math.min(useless + 1, 10);
  });
}
