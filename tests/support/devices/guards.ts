/**
 * Guards around every buffer that a device allocates: bytes before it and after it that no kernel may change.
 *
 * A guarded device allocates more than it is asked for and shifts the offsets of whatever uses the buffer. Guards and fresh
 * buffers hold NaN in every float type, so that reads outside, or before a write, show in results. A buffer that
 * is freed is kept until the next check.
 *
 * @module
 */

import {
  type Backend,
  type BufferHandle,
  type BufferKind,
  setSlot,
  slotBuffer,
  slotCount,
  slotOffset,
} from "../../../src/backend/backend.ts";

/** Bytes before a buffer: a multiple of every alignment that kernels count on. */
export const FRONT = 256;
/** Bytes after it. */
export const BACK = 256;

/** NaN in float32, and in float16 and bfloat16 in both halves. */
const PATTERN = [0xff, 0xff, 0xff, 0x7f] as const;

/** `bytes` of the pattern, from its beginning. */
export function pattern(bytes: number): Uint8Array {
  return Uint8Array.from({ length: bytes }, (_, i) => PATTERN[i % PATTERN.length]);
}

/** Places of a guard that have changed, as text; empty if none has. `from` is where the guard begins, counted from the buffer. */
export function changes(guard: Uint8Array, from: number): string {
  const expected = pattern(guard.length);
  const at = Array.from(guard).flatMap((byte, i) => byte === expected[i] ? [] : [from + i]);
  return at.length === 0 ? "" : `bytes ${at[0]} to ${at[at.length - 1]}`;
}

type GuardedCall = "alloc" | "free" | "write" | "read" | "readMapped" | "load" | "run";

/** Puts guards around all buffers that a device allocates from now on, until it is disposed. */
export class Guards implements Disposable {
  readonly #backend: Backend;
  readonly #plain: Pick<Backend, GuardedCall>;
  /** Bytes asked for, by handle. */
  readonly #live = new Map<BufferHandle, number>();
  #freed: BufferHandle[] = [];
  /** All that {@link Guards.check} has found. */
  readonly found: string[] = [];

  constructor(backend: Backend) {
    this.#backend = backend;
    const bind = <K extends GuardedCall>(name: K): Backend[K] => backend[name].bind(backend) as Backend[K];
    this.#plain = {
      alloc: bind("alloc"),
      free: bind("free"),
      write: bind("write"),
      read: bind("read"),
      readMapped: bind("readMapped"),
      load: bind("load"),
      run: bind("run"),
    };
    const plain = this.#plain;
    const place = (buffer: BufferHandle, at: number): number => this.#live.has(buffer) ? at + FRONT : at;
    const guarded: Pick<Backend, GuardedCall> = {
      alloc: (bytes, kind) => this.#alloc(bytes, kind),
      free: (buffer) => this.#live.has(buffer) ? void this.#freed.push(buffer) : plain.free(buffer),
      write: (buffer, at, data) => plain.write(buffer, place(buffer, at), data),
      read: (buffer, at, out) => plain.read(buffer, place(buffer, at), out),
      readMapped: (buffer, at, out) => plain.readMapped(buffer, place(buffer, at), out),
      load: (buffer, at, path, from, bytes) => plain.load(buffer, place(buffer, at), path, from, bytes),
      run: (plan, slots, times) => {
        const shifted = slots.slice();
        for (let i = 0; i < slotCount(slots); i++) {
          const buffer = slotBuffer(slots, i);
          setSlot(shifted, i, buffer, place(buffer, slotOffset(slots, i)));
        }
        return plain.run(plan, shifted, times);
      },
    };
    Object.assign(backend, guarded);
  }

  #alloc(bytes: number, kind?: BufferKind): BufferHandle {
    const buffer = this.#plain.alloc(FRONT + bytes + BACK, kind);
    this.#plain.write(buffer, 0, pattern(FRONT));
    this.#plain.write(buffer, FRONT, pattern(bytes));
    this.#plain.write(buffer, FRONT + bytes, pattern(BACK));
    this.#live.set(buffer, bytes);
    return buffer;
  }

  /** Writes outside of buffers, one line each; releases buffers that were freed. */
  check(): string[] {
    const found: string[] = [];
    const guard = new Uint8Array(Math.max(FRONT, BACK));
    for (const [buffer, bytes] of this.#live) {
      for (const [at, size] of [[-FRONT, FRONT], [bytes, BACK]]) {
        const part = guard.subarray(0, size);
        this.#plain.read(buffer, FRONT + at, part);
        const changed = changes(part, at);
        if (!changed) continue;
        found.push(`${this.#backend.name}: a buffer of ${bytes} bytes was written outside, at ${changed}`);
        this.#plain.write(buffer, FRONT + at, pattern(size));
      }
    }
    for (const buffer of this.#freed) {
      this.#live.delete(buffer);
      this.#plain.free(buffer);
    }
    this.#freed = [];
    this.found.push(...found);
    return found;
  }

  /** Guarded buffers that are not freed. */
  get alive(): number {
    return this.#live.size - this.#freed.length;
  }

  /** The device as it was; buffers that are alive cannot be used any more. */
  [Symbol.dispose](): void {
    this.check();
    for (const name of Object.keys(this.#plain) as GuardedCall[]) delete (this.#backend as Partial<Backend>)[name];
  }
}
