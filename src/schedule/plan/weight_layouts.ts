/**
 * Prepared weights: stored arrays in the layout that a kernel wants to read.
 *
 * One Plan makes all layouts that a lowering is the first to ask for, {@link runPrepared}. They are kept beside the storage they came from:
 * freed with it, and dropped when it is written. The device counts them in its memory like every array. If they would not fit, lowering
 * takes a kernel that reads the plain layout.
 *
 * @module
 */

import { encodeSlots, type Slot } from "../../backend/backend.ts";
import { explain } from "../../backend/explain.ts";
import type { Dtype } from "../../graph/dtype.ts";
import { isContiguous, type Shape, sizeOf } from "../../graph/shape.ts";
import { Lowering } from "./context.ts";
import type { Value } from "./value.ts";
import { profiler } from "./profile.ts";
import { Storage } from "./storage.ts";

/** How to make a layout. */
export interface Layout {
  /** Names the layout and all it depends on besides the sources. */
  readonly key: string;
  /** The arrays that it consists of; contiguous, aligned. */
  readonly results: readonly { readonly shape: Shape; readonly dtype: Dtype }[];
  /** Dispatches that make the results. `upload` brings words that only they read. No intermediates. */
  emit(
    l: Lowering,
    sources: readonly Value[],
    results: readonly Value[],
    upload: (words: Uint32Array, dtype: Dtype) => Value,
  ): void;
}

/** A layout that was made: its sources tell whether it is for the arrays asked for. */
interface PreparedLayout {
  readonly sources: readonly Storage[];
  readonly results: readonly Storage[];
}

const known = new WeakMap<Storage, Map<string, PreparedLayout>>();

/**
 * The sources in another layout, which is there once {@link runPrepared} was called. Undefined if they are not stored and contiguous, or if
 * the device has too little room. It needs twice the bytes of the layout, or of `allBytes` if the layout is of no use without others.
 */
export function prepare(
  l: Lowering,
  sources: readonly Value[],
  layout: Layout,
  allBytes: number = 0,
): readonly Value[] | undefined {
  const storages: Storage[] = [];
  for (const { slot, shape, strides, packing } of sources) {
    const source = l.slots[slot];
    if (source.kind !== "storage" || packing || !isContiguous(shape, strides)) return undefined;
    storages.push(source.storage);
  }
  const key = [layout.key, ...sources.map((s) => `${s.dtype.name}(${s.shape})+${s.offset}`)].join("|");
  const table = known.get(storages[0]) ?? new Map<string, PreparedLayout>();
  known.set(storages[0], table);
  let found = table.get(key);
  if (!found || !found.sources.every((s, i) => s === storages[i])) {
    if (!fits(l, layout, allBytes, kindOf(storages))) return undefined;
    table.set(key, found = make(l, sources, storages, layout));
    const forget = drop(table, key, found);
    for (const storage of storages) storage.onChange(forget);
  }
  return found.results.map((storage, i) => stored(l, storage, layout.results[i].shape, layout.results[i].dtype));
}

function drop(table: Map<string, PreparedLayout>, key: string, prepared: PreparedLayout): () => void {
  let dropped = false;
  return () => {
    if (dropped) return;
    dropped = true;
    if (table.get(key) === prepared) table.delete(key);
    for (const storage of prepared.results) storage.release();
  };
}

/** Bytes of an array of a layout. */
export function bytesOf({ shape, dtype }: Layout["results"][number]): number {
  return sizeOf(shape) * dtype.bytes;
}

/** Where the layout of arrays is: in host memory if they are all there. */
function kindOf(sources: readonly Storage[]): "host" | "device" {
  return sources.every(({ kind }) => kind === "host") ? "host" : "device";
}

/** Free bytes of a memory. */
interface Room {
  free: number;
}

/** Bytes that the layouts of a lowering leave free: asking the driver for each of hundreds takes long. */
const room = new WeakMap<Lowering, { readonly device: Room; readonly host: Room }>();

function roomOf({ backend }: Lowering): { readonly device: Room; readonly host: Room } {
  const { available, hostAvailable, hostTotal } = backend.memory();
  const device = { free: available };
  return { device, host: hostTotal > 0 ? { free: hostAvailable } : device };
}

function fits(l: Lowering, { results }: Layout, allBytes: number, kind: "host" | "device"): boolean {
  const bytes = results.map(bytesOf);
  const total = bytes.reduce((sum, b) => sum + b, 0);
  const rooms = room.get(l) ?? roomOf(l);
  room.set(l, rooms);
  const own = rooms[kind];
  const needed = 2 * Math.max(total, allBytes);
  if (kind === "host" && needed > own.free) {
    explain(`a layout of weights in host memory needs ${needed} bytes there, and ${Math.floor(own.free)} are free`);
  }
  const does = bytes.every((b) => b <= l.backend.limits.maxBufferBytes) && needed <= own.free;
  if (does) own.free -= total;
  return does;
}

function stored(l: Lowering, storage: Storage, shape: Shape, dtype: Dtype): Value {
  const strides = shape.map((_, i) => sizeOf(shape.slice(i + 1)));
  return { slot: l.storageSlot(storage), offset: 0, strides, shape, dtype };
}

/** Layouts that a lowering asked for and no Plan has made yet. */
interface Making {
  readonly own: Lowering;
  /** Words that the dispatches read. */
  readonly uploads: Map<Uint32Array, Storage>;
  /** Storages that the dispatches read and write, held until they run. */
  readonly held: Storage[];
}

const making = new WeakMap<Lowering, Making>();

/** Allocates the results and notes the dispatches that make them. */
function make(l: Lowering, sources: readonly Value[], storages: readonly Storage[], layout: Layout): PreparedLayout {
  const { backend } = l;
  let now = making.get(l);
  if (!now) making.set(l, now = { own: new Lowering(backend, () => false, false), uploads: new Map(), held: [] });
  const { own, uploads, held } = now;
  const inputs = sources.map((s, i) => ({ ...s, slot: own.storageSlot(storages[i]) }));
  const results: Storage[] = [];
  try {
    for (const result of layout.results) results.push(new Storage(backend, bytesOf(result), kindOf(storages)));
  } catch (error) {
    for (const storage of results) storage.release();
    throw error;
  }
  for (const storage of [...storages, ...results]) {
    storage.retain();
    held.push(storage);
  }
  const outputs = layout.results.map(({ shape, dtype }, i) => stored(own, results[i], shape, dtype));
  layout.emit(own, inputs, outputs, (words, dtype) => {
    const storage = uploads.get(words) ?? new Storage(backend, words.byteLength);
    if (!uploads.has(words)) {
      uploads.set(words, storage);
      backend.write(storage.buffer, 0, new Uint8Array(words.buffer, words.byteOffset, words.byteLength));
    }
    return stored(own, storage, [words.length], dtype);
  });
  return { sources: storages, results };
}

/** Runs the Plan that makes what a lowering asked for with {@link prepare}. Work that is submitted later sees it. */
export function runPrepared(l: Lowering): void {
  const now = making.get(l);
  if (!now) return;
  making.delete(l);
  const { own, uploads, held } = now;
  try {
    runOnce(own);
  } finally {
    for (const storage of [...held, ...uploads.values()]) storage.release();
  }
}

/** Runs the dispatches of a Lowering without intermediates once; the ticket of the submission. */
export function runOnce({ backend, builder, slots, sources }: Lowering): number {
  const plan = backend.compile(builder.finish(slots.length, (slot) => slot));
  try {
    const ticket = backend.run(plan, encodeSlots(slots.map(slotOf)));
    profiler.record(backend, plan, ticket, sources);
    return ticket;
  } finally {
    backend.release(plan);
  }
}

function slotOf(source: Lowering["slots"][number]): Slot {
  if (source.kind !== "storage") throw new Error("a prepared layout is made without intermediates");
  return { buffer: source.storage.buffer, byteOffset: 0 };
}
