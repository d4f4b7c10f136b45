/**
 * Memory of arrays that the program forgot without disposing of them.
 *
 * JavaScript's collector does not see device memory, and finalizers run between tasks only: a synchronous loop that evaluates and
 * drops arrays would hold all of them until its end. So the collector is asked when the bytes of results that were evaluated since
 * it last ran, and are still held, pass a limit; the limit grows with what survives, as that of a generational collector does, so
 * that a program which keeps much is not collected all the time. What was let go explicitly never counts.
 *
 * Dead arrays are then found through WeakRefs, in the same task: V8 keeps what a WeakRef was made or read for alive until a
 * microtask checkpoint, and running a script in a context with a microtask queue of its own is one, while no code of the program
 * runs. An engine without that has its finalizers alone, which release what no collection here has found.
 *
 * @module
 */

import process from "node:process";
import type { Node } from "../../graph/node.ts";

/** Bytes of forgotten results that are no reason to collect, and fewer that are one when nothing else runs. */
const LEAST_BYTES = 48 << 20;
const IDLE_BYTES = 8 << 20;
/** Arrays after which the list of what lives until a checkpoint is cleared, and after which they are a reason to collect. */
const CHECKPOINT_ARRAYS = 50_000;
const LEAST_ARRAYS = 200_000;
/** Milliseconds from a reason to collect until it happens between tasks: a few collections' time, longer where they find nothing. */
const IDLE_MS = { least: 20, most: 50, useless: 2000 } as const;
/** Share of the bytes of JavaScript's heap that counts too: collecting takes as long as that is large. */
const HEAP_SHARE = 1 / 8;

/** One Tensor's reference of a node, which it lets go when it is disposed of or was forgotten. */
export class Hold {
  readonly #owner: WeakRef<object>;
  #node: Node | undefined;

  /** Retains `node` for `owner`. */
  constructor(owner: object, node: Node) {
    this.#owner = new WeakRef(owner);
    this.#node = node;
    node.retain();
    node.holders++;
    holds.add(this);
    registry.register(owner, this, this);
    if (++made % CHECKPOINT_ARRAYS === 0) engine()?.checkpoint();
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

  /** Gives the reference to the caller, who must hold the node at once. */
  handOn(): void {
    this.#end()?.handOn();
  }

  /** Whether the owner is there. */
  get isAlive(): boolean {
    return this.#owner.deref() !== undefined;
  }

  #end(): Node | undefined {
    const node = this.#node;
    this.#node = undefined;
    if (!node) return undefined;
    node.holders--;
    holds.delete(this);
    registry.unregister(this);
    return node;
  }
}

const registry = new FinalizationRegistry<Hold>((hold) => hold.release());
const holds = new Set<Hold>();
/** Stored nodes that no Tensor shows any more: something pending reads them. */
const orphans = new Set<Node>();
let made = 0;
let survivors = 0;

/** Bytes of results by whether they were there at the last collection. */
const bytes = { young: 0, old: 0 };
let generation = 0;
let limit = LEAST_BYTES;

/** Counts the bytes of a result; gives what {@link uncount} takes when they are freed. */
export function count(size: number): number {
  bytes.young += size;
  return generation;
}

/** Takes back what {@link count} counted in a generation. */
export function uncount(size: number, counted: number): void {
  bytes[counted === generation ? "young" : "old"] -= size;
}

/** Collects when enough was forgotten. Nodes that the caller works on must be retained. */
export function collectWhenDue(): void {
  if (bytes.young > limit || holds.size > survivors + Math.max(LEAST_ARRAYS, survivors)) collect();
  else if (bytes.young > IDLE_BYTES) collectSoon();
}

interface Engine {
  /** Runs the collector. */
  readonly gc: () => void;
  /** Forgets what lives until a microtask checkpoint. */
  readonly checkpoint: () => void;
  /** Bytes of the heap in use. */
  readonly heap: () => number;
}

let found: Engine | null | undefined;

function engine(): Engine | undefined {
  if (found === undefined) found = findEngine();
  return found ?? undefined;
}

function findEngine(): Engine | null {
  try {
    const v8 = process.getBuiltinModule("node:v8");
    const vm = process.getBuiltinModule("node:vm");
    v8.setFlagsFromString("--expose-gc");
    const gc = vm.runInNewContext("gc");
    const context = vm.createContext({}, { microtaskMode: "afterEvaluate" });
    const script = new vm.Script("Promise.resolve().then(() => 1)");
    if (typeof gc !== "function") return null;
    return {
      gc: () => gc(),
      checkpoint: () => script.runInContext(context),
      heap: () => v8.getHeapStatistics().used_heap_size,
    };
  } catch {
    return null; // another engine: finalizers will do
  }
}

let took = 0;

/**
 * Releases what arrays held that nobody can reach any more; whether that were any bytes. Nodes that the caller works on must be
 * retained.
 */
export function collect(): boolean {
  const v8 = engine();
  if (!v8) return false;
  const start = performance.now();
  const before = bytes.young + bytes.old;
  v8.checkpoint();
  v8.gc();
  for (const hold of holds) if (!hold.isAlive) hold.release();
  orphans.clear();
  survivors = holds.size;
  const all = bytes.young + bytes.old;
  generation++;
  bytes.old = all;
  bytes.young = 0;
  took = performance.now() - start;
  limit = Math.max(LEAST_BYTES, all, HEAP_SHARE * v8.heap());
  return all < before;
}

// `wait` with a timeout is a timer that keeps no process alive and that no test has to wait for.
const never = new Int32Array(new SharedArrayBuffer(4));
let waiting = false;
let useless = 0;

/** Collects some time after this task where something is still forgotten then. */
function collectSoon(): void {
  if (waiting || !engine()) return;
  waiting = true;
  const delay = Math.min(Math.max(IDLE_MS.least, 8 * took), IDLE_MS.most) * 2 ** useless;
  const later = Atomics.waitAsync(never, 0, 0, Math.min(delay, IDLE_MS.useless));
  Promise.resolve(later.value).then(() => {
    waiting = false;
    const due = bytes.young > IDLE_BYTES || [...orphans].some((node) => node.stored && node.holders === 0);
    orphans.clear();
    if (due) useless = collect() ? 0 : Math.min(useless + 1, 10);
  });
}
