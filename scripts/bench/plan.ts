/**
 * Times hand-written Plans by the device's timestamps: what the benchmarks of single kernels share.
 *
 * @module
 */

import { type Backend, encodeSlots } from "../../src/backend/backend.ts";
import type { Dtype } from "../../src/graph/dtype.ts";
import { contiguousStrides, type Shape, sizeOf } from "../../src/graph/shape.ts";
import { Lowering } from "../../src/schedule/plan/context.ts";
import type { Value } from "../../src/schedule/plan/value.ts";
import { Storage } from "../../src/schedule/plan/storage.ts";

/** Measurements, of which the median counts. */
export const REPEATS = 7;
/** Milliseconds of work before each measurement. */
export const WARM_MS = 150;
/** float16 pairs {scale 0.0078, bias -0.0586}, and a random float16 number below 2 in magnitude twice. */
export const AFFINE = 0xab802000;
export const HALVES = 0x3555b666;

function median(values: number[]): number {
  return values.sort((a, b) => a - b)[values.length >> 1];
}

/** Runs for a while: an idle device has a fraction of its clock. */
export function warmUp(run: () => void, ms: number = WARM_MS): void {
  const start = performance.now();
  do run(); while (performance.now() - start < ms);
}

/** A hand-written Plan over its own buffers. */
export class Bench implements Disposable {
  readonly #backend: Backend;
  readonly #storages: Storage[] = [];
  readonly l: Lowering;

  constructor(backend: Backend) {
    this.#backend = backend;
    this.l = new Lowering(backend, () => false, false);
  }

  /** An array of random words, or of one word. */
  array(shape: Shape, dtype: Dtype, word?: number): Value {
    const storage = new Storage(this.#backend, sizeOf(shape) * dtype.bytes);
    this.#storages.push(storage);
    const chunk = new Uint32Array(Math.min(1 << 18, Math.ceil(storage.bytes / 4)));
    if (word !== undefined) chunk.fill(word);
    else for (let at = 0; at < chunk.length; at += 1 << 14) crypto.getRandomValues(chunk.subarray(at, at + (1 << 14)));
    const bytes = new Uint8Array(chunk.buffer);
    for (let at = 0; at < storage.bytes; at += bytes.length) {
      this.#backend.write(storage.buffer, at, bytes.subarray(0, storage.bytes - at));
    }
    return { slot: this.l.storageSlot(storage), offset: 0, strides: contiguousStrides(shape), shape, dtype };
  }

  /** Microseconds that each of `parts` neighbouring dispatches takes, on average over the Plan, after `warmMs` of work. */
  time(parts: number, warmMs: number = WARM_MS): number[] {
    // The rules' intermediates get memory of their own.
    this.l.slots.forEach((source, slot) => {
      if (source.kind !== "temporary") return;
      const storage = new Storage(this.#backend, source.bytes);
      this.#storages.push(storage);
      this.l.slots[slot] = { kind: "storage", storage };
    });
    const plan = this.#backend.compile(this.l.builder.finish(this.l.slots.length, (slot) => slot));
    const buffers = this.l.slots.map((s) => (s as { storage: Storage }).storage.buffer);
    const slots = encodeSlots(buffers.map((buffer) => ({ buffer, byteOffset: 0 })));
    const rounds: number[][] = [];
    warmUp(() => this.#backend.wait(this.#backend.run(plan, slots)), warmMs);
    this.#backend.profile(true);
    for (let i = 0; i < REPEATS; i++) {
      this.#backend.wait(this.#backend.run(plan, slots));
      const times = this.#backend.profileRead(plan);
      const sums = new Array<number>(parts).fill(0);
      times.forEach((t, at) => sums[at % parts] += t / 1000 / (times.length / parts));
      rounds.push(sums);
    }
    this.#backend.profile(false);
    this.#backend.release(plan);
    return Array.from({ length: parts }, (_, part) => median(rounds.map((sums) => sums[part])));
  }

  [Symbol.dispose](): void {
    for (const storage of this.#storages) storage.release();
  }
}
