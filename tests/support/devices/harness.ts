/**
 * Runs one kernel on a device over typed arrays: the level of a Plan with a single dispatch.
 *
 * Push blocks are encoded by the generated layouts, so a test names fields and not words. Every buffer lies between guard
 * bytes that must survive the run (guards.ts).
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type Backend, encodeSlots, type Slot } from "../../../src/backend/backend.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import {
  bufferOf,
  type KernelName,
  type KernelRow,
  KERNELS,
  PLAN_HEADER_WORDS,
  PLAN_MAGIC,
  PLAN_NO_SLOT,
  PUSH,
  type PushField,
} from "../../../src/backend/kernels.ts";
import { profile } from "../../../src/schedule/plan/profile.ts";
import { testDevices } from "./devices.ts";
import { BACK, changes, FRONT, pattern } from "./guards.ts";

/** The inputs of one dispatch. */
export interface KernelRun {
  /** Specialisation constants by name; default 0, THREADS 64. */
  readonly spec?: Readonly<Record<string, number>>;
  /** Fields of the push block by name; missing fields are 0, short arrays are filled with 0. */
  readonly push: Readonly<Record<string, number | readonly number[]>>;
  /** Contents by buffer name; optional buffers may be left out. Written ones are overwritten with the result. */
  readonly buffers: Readonly<Record<string, ArrayBufferView>>;
  /** Byte offset of a slot's first element in its array, for views that run backwards. */
  readonly offsets?: Readonly<Record<string, number>>;
  /** Workgroups: a count along x or all three. */
  readonly grid?: number | readonly [number, number, number];
  /** Instead of `grid`: threads in all, one an item. */
  readonly items?: number;
}

/** One dispatch of a Plan in numbers. */
export interface Dispatch {
  readonly kernel: KernelName;
  readonly spec: readonly number[];
  readonly push: Uint32Array;
  readonly grid: readonly [number, number, number];
  /** Slot and byte offset of each buffer, undefined if absent. */
  readonly buffers: readonly (readonly [slot: number, byteOffset: number] | undefined)[];
}

/** Encodes a push block by the generated layout. */
export function encodePush(struct: keyof typeof PUSH, values: KernelRun["push"]): Uint32Array {
  const fields: readonly PushField[] = PUSH[struct];
  const words = new Uint32Array(fields.reduce((n, f) => n + f.count, 0));
  const floats = new Float32Array(words.buffer);
  const left = new Set(Object.keys(values));
  let at = 0;
  for (const { name, type, count } of fields) {
    const value = values[name] ?? 0;
    left.delete(name);
    const list = typeof value === "number" ? [value] : value;
    if (list.length > count) throw new RangeError(`${struct}.${name} holds ${count} words, not ${list.length}`);
    list.forEach((v, i) => type === "f32" ? floats[at + i] = v : words[at + i] = v);
    at += count;
  }
  if (left.size > 0) throw new RangeError(`${struct} has no field ${[...left].join(", ")}`);
  return words;
}

/** Words of a Plan (shaders/include/plan.h). */
export function encodePlan(slots: number, dispatches: readonly Dispatch[]): Uint32Array {
  const words: number[] = [PLAN_MAGIC, slots, dispatches.length, 0];
  if (words.length !== PLAN_HEADER_WORDS) throw new Error("shaders/include/plan.h has another header");
  for (const d of dispatches) {
    const counts = d.buffers.length | d.spec.length << 8 | d.push.length << 16;
    words.push(KERNELS[d.kernel].id, counts, ...d.grid);
    for (const buffer of d.buffers) words.push(...(buffer ?? [PLAN_NO_SLOT, 0]));
    words.push(...d.spec, ...d.push);
  }
  words[3] = words.length;
  return Uint32Array.from(words);
}

/** Runs `kernel` once; the arrays of written buffers then hold its output. */
export function runKernel(backend: Backend, kernel: KernelName, run: KernelRun): void {
  const row: KernelRow = KERNELS[kernel];
  const names = row.buffers.map((text) => bufferOf(text).name);
  for (const name of Object.keys(run.buffers)) {
    if (!names.includes(name)) throw new RangeError(`${kernel} has no buffer ${name}`);
  }
  for (const name of Object.keys(run.spec ?? {})) {
    if (!row.spec.includes(name)) throw new RangeError(`${kernel} has no spec constant ${name}`);
  }
  const threads = run.spec?.THREADS ?? 64;
  const spec = row.spec.map((name) => name === "THREADS" ? threads : run.spec?.[name] ?? 0);
  const groups = run.grid ?? Math.max(1, Math.ceil((run.items ?? 1) / threads));

  const bound: { name: string; bytes: Uint8Array; slot: Slot }[] = [];
  const buffers = row.buffers.map(bufferOf).map(({ name }): readonly [number, number] | undefined => {
    const array = run.buffers[name];
    if (!array) return undefined;
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    const guarded = new Uint8Array(FRONT + bytes.length + BACK);
    guarded.set(pattern(FRONT));
    guarded.set(bytes, FRONT);
    guarded.set(pattern(BACK), FRONT + bytes.length);
    const buffer = backend.alloc(guarded.length);
    backend.write(buffer, 0, guarded);
    bound.push({ name, bytes, slot: { buffer, byteOffset: FRONT } });
    return [bound.length - 1, run.offsets?.[name] ?? 0];
  });
  const grid: readonly [number, number, number] = typeof groups === "number" ? [groups, 1, 1] : groups;
  const push = encodePush(row.push as keyof typeof PUSH, run.push);
  const plan = backend.compile(encodePlan(bound.length, [{ kernel, spec, push, grid, buffers }]));
  try {
    backend.wait(backend.run(plan, encodeSlots(bound.map((b) => b.slot))));
    for (const { name, bytes, slot } of bound) {
      const after = new Uint8Array(FRONT + bytes.length + BACK);
      backend.read(slot.buffer, 0, after);
      const end = FRONT + bytes.length;
      const written = [changes(after.subarray(0, FRONT), -FRONT), changes(after.subarray(end), bytes.length)];
      assertEquals(
        written.filter((text) => text !== ""),
        [],
        `${kernel} wrote outside of ${name}, ${bytes.length} bytes, on ${backend.name}`,
      );
      if (row.buffers.map(bufferOf).find((b) => b.name === name)?.write) bytes.set(after.subarray(FRONT, end));
    }
  } finally {
    backend.release(plan);
    for (const { slot } of bound) backend.free(slot.buffer);
  }
}

/**
 * Registers a test of kernels that runs on every device present. Devices stay open from test to test. Where a device lacks one
 * of `kernels`, its test is reported as ignored.
 */
export function kernelTest(name: string, body: (backend: Backend) => void, kernels: readonly KernelName[] = []): void {
  for (const device of testDevices()) {
    if (device === "wasm" && !kernels.every((kernel) => KERNELS[kernel].wasm)) continue; // not meant for it
    const ignore = kernels.length > 0 && !kernels.every((kernel) => getBackend(device).has(kernel));
    Deno.test({
      name: `${name} on ${device}`,
      ignore,
      fn: () => {
        const backend = getBackend(device);
        const before = backend.liveObjects();
        body(backend);
        assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
      },
    });
  }
}

/** Names of the kernels that `body` runs on a device, each once. */
export async function kernelsOf(device: string, body: () => Promise<void>): Promise<Set<string>> {
  const { kernels } = await profile(body, { device, timed: false });
  return new Set(kernels.map(({ kernel }) => kernel));
}
