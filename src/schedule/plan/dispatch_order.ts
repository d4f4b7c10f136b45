/**
 * The order of dispatches where only barriers order them. A barrier waits until all that came before it is done. So dispatches that do not
 * depend on each other should be between the same two. Small ones that could have run before a barrier are moved there. Barriers are most of
 * the time of a step of a model that runs op by op.
 *
 * Dispatches conflict where they touch one slot and at least one of them writes it. Those that conflict keep their order, so results have the
 * same bits.
 *
 * @module
 */

import { bufferOf, type KernelBuffer, type KernelName, KERNELS } from "../../backend/kernels.ts";
import type { DispatchSource } from "./profile.ts";

/** How many dispatches further on are looked at, in the order in which the program made them. */
const WINDOW = 64;
/** Bytes that a dispatch writes at most to be moved. Large ones gain little, and what they write would live longer. */
export const SMALL_BYTES: number = 2 ** 21;

/** A new order, and the barriers in it. */
export interface DispatchOrder {
  /** The numbers of the dispatches, in the new order. */
  readonly order: readonly number[];
  /** How many barriers come before each dispatch, by its old number. */
  readonly epochs: readonly number[];
}

/** Dispatches that stay together: one, or one and those after it whose writes are disjoint from its own. */
interface Unit {
  readonly first: number;
  count: number;
  readonly reads: Set<number>;
  readonly writes: Set<number>;
  /** Whether all before it must come before it, and all after it after it. */
  readonly isFixed: boolean;
}

/** The slots that some dispatches read and write. */
class Touched {
  readonly #reads = new Set<number>();
  readonly #writes = new Set<number>();

  add({ reads, writes }: Unit): void {
    for (const slot of reads) this.#reads.add(slot);
    for (const slot of writes) this.#writes.add(slot);
  }

  conflictsWith({ reads, writes }: Unit): boolean {
    for (const slot of reads) if (this.#writes.has(slot)) return true;
    for (const slot of writes) if (this.#writes.has(slot) || this.#reads.has(slot)) return true;
    return false;
  }
}

/** Orders dispatches so that there are few barriers. `bytesOf` is the size of a slot, 0 of one that is there anyway. */
export function orderDispatches(sources: readonly DispatchSource[], bytesOf: (slot: number) => number): DispatchOrder {
  const units = unitsOf(sources);
  const order: number[] = [];
  const epochs = new Array<number>(sources.length);
  let next = 0;
  const waiting: Unit[] = [];
  const fill = (): void => {
    while (waiting.length < WINDOW && next < units.length) waiting.push(units[next++]);
  };
  fill();
  for (let epoch = 0; waiting.length > 0; epoch++) {
    const [running, skipped] = [new Touched(), new Touched()];
    for (let i = 0; i < waiting.length;) {
      const unit = waiting[i];
      const waits = running.conflictsWith(unit) || i > 0 && (!isMovable(unit, bytesOf) || skipped.conflictsWith(unit));
      if (waits) {
        if (unit.isFixed) break;
        skipped.add(unit);
        i++;
        continue;
      }
      waiting.splice(i, 1);
      fill();
      running.add(unit);
      for (let at = unit.first; at < unit.first + unit.count; at++) {
        order.push(at);
        epochs[at] = epoch;
      }
    }
  }
  return { order, epochs };
}

function isMovable({ writes, isFixed }: Unit, bytesOf: (slot: number) => number): boolean {
  if (isFixed) return false;
  let bytes = 0;
  for (const slot of writes) bytes += bytesOf(slot);
  return bytes <= SMALL_BYTES;
}

function unitsOf(sources: readonly DispatchSource[]): Unit[] {
  const units: Unit[] = [];
  sources.forEach((source, i) => {
    let unit = source.disjoint ? units.at(-1) : undefined;
    if (!unit) {
      // Fused kernels know an order that their buffers do not show, and what a kernel made at run time writes is not known.
      const isFixed = source.region !== undefined || source.preamble || !Object.hasOwn(KERNELS, source.kernel);
      units.push(unit = { first: i, count: 0, reads: new Set(), writes: new Set(), isFixed });
    }
    unit.count++;
    const uses = usesOf(source.kernel);
    source.values.forEach((value, i) => {
      if (!value) return;
      const { read, write } = uses(i);
      if (read) unit.reads.add(value.slot);
      if (write) unit.writes.add(value.slot);
    });
  });
  return units;
}

type Use = Pick<KernelBuffer, "read" | "write">;
const USES = new Map<string, (binding: number) => Use>();

/** What a kernel does with each of its bindings. One made at run time may read and write all of them. */
function usesOf(kernel: string): (binding: number) => Use {
  const known = USES.get(kernel);
  if (known) return known;
  if (!Object.hasOwn(KERNELS, kernel)) return () => ({ read: true, write: true });
  const row = KERNELS[kernel as KernelName];
  const [buffers, columns] = [row.buffers, row.columns].map((texts) => texts.map(bufferOf));
  const uses = (i: number): Use => buffers[i] ?? columns[(i - buffers.length) % columns.length];
  USES.set(kernel, uses);
  return uses;
}
