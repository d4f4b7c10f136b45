/**
 * V8's collector, as far as a program reaches it: a whole collection, and its minor GC, which looks through young objects only.
 *
 * V8 keeps what a WeakRef was made or read for alive until a microtask checkpoint. Running a script in a context with its own microtask
 * queue is such a checkpoint, and runs no code of the program. So WeakRefs show also inside a task which arrays are gone.
 *
 * @module
 */

import process from "node:process";

/** Elements of an array that fills a part of the minor GC's space, how many fill it whatever its size, and between two looks. */
const FILLER = { elements: 2048, most: 3072, between: 32 } as const;

/** The interface of V8. */
export interface Engine {
  /** Runs the collector. */
  readonly gc: () => void;
  /** Forgets what lives until a microtask checkpoint. */
  readonly checkpoint: () => void;
  /** Bytes of the heap in use. */
  readonly heap: () => number;
}

let found: Engine | null | undefined;

/** V8; undefined if another engine runs. */
export function engine(): Engine | undefined {
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

/** An object that nothing holds: gone once the minor GC has run. */
let canary = new WeakRef({});
/** Objects that fill the minor GC's space. They are held, so that V8 allocates them. */
const filler: { array: unknown } = { array: undefined };

/** Begins to watch for the minor GC, and forgets what lives until a checkpoint. */
export function watch(): void {
  canary = new WeakRef({});
  engine()?.checkpoint();
}

/** Whether the minor GC ran since {@link watch}. */
export function scavenged(): boolean {
  if (canary.deref() === undefined) return true;
  engine()?.checkpoint(); // looking has kept it alive
  return false;
}

/** Runs the minor GC by filling its space. Returns whether it ran and cleared WeakRefs, which it does not while V8 marks old objects. */
export function scavenge(): boolean {
  watch();
  for (let i = 1; i <= FILLER.most; i++) {
    filler.array = new Array(FILLER.elements);
    if (i % FILLER.between === 0 && scavenged()) return true;
  }
  return false;
}
