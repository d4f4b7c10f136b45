/**
 * Counted device memory: what stored nodes hold.
 *
 * @module
 */

import type { Backend, BufferHandle, BufferKind } from "../../backend/backend.ts";
import { limits, RuntimeError } from "../../backend/devices.ts";
import type { StorageRef } from "../../graph/node.ts";
import { collect, count, uncount } from "./garbage.ts";

/** Where memory is that says nothing else. */
let defaultKind: BufferKind = "device";

/**
 * Runs `fn`: what it allocates is in host memory, where devices have memory of their own. That holds until it returns, also if it gives a
 * promise.
 */
export function inHostMemory<T>(fn: () => T): T {
  const before = defaultKind;
  defaultKind = "host";
  try {
    return fn();
  } finally {
    defaultKind = before;
  }
}

/** Whether {@link inHostMemory} allocated what a settled node has. */
export function isInHostMemory(stored: { readonly storage: StorageRef } | undefined): boolean {
  return (stored?.storage as Storage | undefined)?.kind === "host";
}

/** A buffer of a backend that goes back when the last node lets go of it. */
export class Storage implements StorageRef {
  readonly backend: Backend;
  readonly bytes: number;
  /** Where it is. */
  readonly kind: BufferKind;
  #buffer: BufferHandle;
  #refs = 1;
  /** Ticket of the last submission that wrote it, if that was a Plan; 0 for none. */
  ticket = 0;
  /** The generation that it was counted in, where it counts as what a program may forget. */
  #counted: number | undefined;
  #watchers: (() => void)[] | undefined;

  /**
   * Allocates `bytes` with one reference. The default kind is "device", and "host" within {@link inHostMemory}. Zero-sized arrays get a small
   * buffer too, so that every array has an address.
   */
  constructor(backend: Backend, bytes: number, kind: BufferKind = defaultKind) {
    this.backend = backend;
    this.bytes = bytes;
    this.kind = kind;
    this.#buffer = allocate(backend, Math.max(bytes, 4), kind);
  }

  /** Whether the host can look in at any time. */
  get hostVisible(): boolean {
    return this.kind === "visible";
  }

  /** Counts the memory as what a program may forget: see garbage.ts. */
  countAsResult(): void {
    this.#counted ??= count(this.bytes);
  }

  /** Counts it no more: its owner frees it. */
  countNoMore(): void {
    if (this.#counted !== undefined) uncount(this.bytes, this.#counted);
    this.#counted = undefined;
  }

  /** Name of the device. */
  get device(): string {
    return this.backend.name;
  }

  /** The buffer; an error once released. */
  get buffer(): BufferHandle {
    if (this.#refs === 0) throw new Error("storage was used after its last release");
    return this.#buffer;
  }

  /** References held. */
  get refs(): number {
    return this.#refs;
  }

  retain(): void {
    this.#refs++;
  }

  release(): void {
    if (--this.#refs > 0) return;
    this.changed();
    this.countNoMore();
    this.backend.free(this.#buffer);
  }

  /** Calls `watcher` once, when the content is next written or freed. */
  onChange(watcher: () => void): void {
    (this.#watchers ??= []).push(watcher);
  }

  /** Says that the content is another one from now on. */
  changed(): void {
    const watchers = this.#watchers;
    if (!watchers) return;
    this.#watchers = undefined;
    for (const watcher of watchers) watcher();
  }
}

/** Waits for the work that uses freed memory, then gives that memory back. */
function makeRoom(backend: Backend): void {
  const { cacheLimit } = backend.memory();
  backend.synchronize();
  backend.setCacheLimit(0);
  backend.setCacheLimit(cacheLimit);
}

/** Bytes in use of the memory that a limit is for: those of the host count only where there is no other. */
function deviceBytes(backend: Backend): number {
  const { active, hostActive, hostTotal } = backend.memory();
  return hostTotal > 0 ? active - hostActive : active;
}

/** A buffer; where memory is out, what a program has forgotten is looked for first. */
function allocate(backend: Backend, bytes: number, kind: BufferKind): BufferHandle {
  if (limits.memory !== undefined && deviceBytes(backend) + bytes > limits.memory) makeRoom(backend);
  try {
    return backend.alloc(bytes, kind);
  } catch (error) {
    if (!(error instanceof RuntimeError && error.code === "out-of-memory") || !collect()) throw error;
    return backend.alloc(bytes, kind);
  }
}

/** Memory that several arrays share. It lives as long as a storage of it is held. */
export class SharedMemory {
  readonly #storages = new Map<Backend, Storage[]>();

  /** Storage number `i` of a device, of at least `bytes`, the same for all if it is large enough; a reference for the caller. */
  take(backend: Backend, bytes: number, i: number): Storage {
    const storages = this.#storages.get(backend) ?? [];
    this.#storages.set(backend, storages);
    const there = storages[i];
    if (there && there.refs > 0 && there.bytes >= bytes) there.retain();
    else storages[i] = new Storage(backend, bytes);
    return storages[i];
  }
}
