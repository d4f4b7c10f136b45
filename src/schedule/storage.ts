/**
 * Counted device memory: what stored nodes hold.
 *
 * @module
 */

import type { Backend, BufferHandle } from "../backend/backend.ts";
import type { StorageRef } from "../graph/node.ts";

/** A buffer of a backend that goes back when the last node lets go of it. */
export class Storage implements StorageRef {
  readonly backend: Backend;
  readonly bytes: number;
  #buffer: BufferHandle;
  #refs = 1;
  #watchers: (() => void)[] | undefined;

  /** Allocates `bytes` with one reference, where the host can look in at any time when `visible`. Zero-sized arrays get a small buffer too, so that every array has an address. */
  constructor(backend: Backend, bytes: number, visible: boolean = false) {
    this.backend = backend;
    this.bytes = bytes;
    this.#buffer = backend.alloc(Math.max(bytes, 4), visible);
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

/** Memory that several share. It lives as long as somebody holds what was taken. */
export class SharedMemory {
  #storage: Storage | undefined;

  /** Storage of at least `bytes`, the same for all where it is large enough; a reference for the caller. */
  take(backend: Backend, bytes: number): Storage {
    const there = this.#storage;
    if (there && there.refs > 0 && there.bytes >= bytes && there.backend === backend) there.retain();
    else this.#storage = new Storage(backend, bytes);
    return this.#storage!;
  }
}
