/**
 * Calls of the native library as no program should make them: forged and stale handles, NULL, wild offsets and counts, damaged Plans.
 * Each must answer a status, and the library must work as before.
 *
 * The test keeps what the library cannot know right. A buffer of the caller is at least as long as stated. Only sound
 * Plans run, because the author of a kernel decides what it does with its parameters.
 *
 *     deno run -A tests/support/planted/forged_calls.ts CALLS SEED
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { openLibrary } from "../../../ffi/library.ts";
import { STATUS, SYMBOLS } from "../../../ffi/symbols.ts";
import { liveObjects, VulkanDevice } from "../../../ffi/vulkan.ts";
import {
  arange,
  bufferOf,
  bytesOf,
  copy,
  EMPTY_KERNEL,
  INDICES,
  pattern,
  plan,
  slotsOf,
} from "../devices/vulkan_device.ts";

/** Bytes of all arguments, and most bytes of a buffer. */
const SIZE = 65536;

/** Deterministic draws: mulberry32. */
class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number from 0 to n - 1. */
  below(n: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor(((t ^ (t >>> 14)) >>> 0) / 2 ** 32 * n);
  }

  /** Whether one of `n` times. */
  rarely(n: number): boolean {
    return this.below(n) === 0;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }
}

/** Handles of one kind: those alive with the device that they belong to, and some that were. */
class Handles {
  readonly live = new Map<number, number>();
  readonly stale: number[] = [0];

  add(handle: number, device: number): void {
    this.live.set(handle, device);
  }

  remove(handle: number): void {
    if (!this.live.delete(handle)) return;
    this.stale.push(handle);
    if (this.stale.length > 200) this.stale.splice(1, 1);
  }
}

type Value = number | bigint | Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer> | null;

const SOUND = [plan(1, arange(0, 16, 0, 1)), plan(2, copy(0, 1, 16)), plan(2, arange(0, 16, 1, 2), copy(0, 1, 16))];
const BIG = [2n ** 32n, 2n ** 50n, 2n ** 63n, 2n ** 64n - 1n, 2n ** 64n - 8n] as const;

/** Draws what parameters are given. */
class Forger {
  readonly devices = new Handles();
  readonly buffers = new Handles();
  readonly plans = new Handles();
  readonly slots = new Map<number, number>();
  readonly bytes = new Uint8Array(SIZE);
  readonly words = new Uint32Array(SIZE / 4);
  readonly out = new Uint32Array(64);
  readonly random: Random;
  /** The device and the sound Plan of this call. */
  device = 0;
  plan = 0;
  sound: number | undefined;
  count = 0;

  constructor(seed: number) {
    this.random = new Random(seed);
  }

  #handle(handles: Handles, device: number | undefined): number {
    const { random } = this;
    const own = [...handles.live].filter(([, of]) => device === undefined || of === device || random.rarely(10));
    if (own.length > 0 && !random.rarely(6)) return random.pick(own)[0];
    const any = [this.devices, this.buffers, this.plans].flatMap(({ live, stale }) => [...live.keys(), ...stale]);
    const base = random.pick(any);
    return random.pick([base, base, base ^ (1 << random.below(31)), random.below(2 ** 32), 0, 0xffffffff]) >>> 0;
  }

  #text(texts: readonly string[]): Value {
    if (this.random.rarely(8)) return null;
    return new TextEncoder().encode(`${this.random.pick(texts)}\0`);
  }

  #number(small: number): number {
    return this.random.rarely(6) ? this.random.pick([0, 1, 2 ** 31, 2 ** 32 - 1]) : this.random.below(small);
  }

  #long(small: number): bigint {
    return this.random.rarely(6) ? this.random.pick(BIG) : BigInt(this.random.below(small));
  }

  /** The values from which each kind of parameter is drawn. */
  readonly kinds = {
    device: () => this.device = this.#handle(this.devices, undefined),
    buffer: () => this.#handle(this.buffers, this.device),
    plan: () => this.plan = this.#handle(this.plans, this.device),
    index: () => this.random.pick([...INDICES, ...INDICES, INDICES.length + 9, 2 ** 32 - 1]),
    mask: () =>
      this.#text([
        "",
        "",
        "coopmat",
        "maxGrid=1000",
        "chunkBytes=4096",
        "nothing",
        "=,=,",
        "maxThreads=",
        "x".repeat(5000),
      ]),
    folder: () => this.#text(["", "", "/dev/null/none", "\xff".repeat(5000)]),
    path: () => this.#text([import.meta.filename!, "/dev/null", "/dev/zero", "/", "", "none", "x".repeat(10_000)]),
    out: () => this.random.rarely(10) ? null : this.out,
    data: () => this.random.rarely(10) ? null : this.bytes,
    capacity: () => this.#clamped(SIZE),
    doubles: () => this.#clamped(SIZE / 8),
    bytes: () => this.#long(this.random.pick([2, 64, SIZE])),
    size: () => this.random.rarely(6) ? this.random.pick(BIG.slice(1)) : BigInt(this.random.below(SIZE)),
    kind: () => this.#number(3),
    flag: () => this.#number(2),
    times: () => this.random.rarely(10) ? this.#number(100) : 1 + this.random.below(64),
    stream: () => this.random.rarely(10) ? this.#number(100) : this.random.below(4),
    ticket: () => this.#long(this.random.pick([3, 50, 1000])),
    timeout: () => this.random.below(3),
    name: () => this.#text(["kernel", "", "x".repeat(5000)]),
    spirv: () => this.#spirv(),
    spirv_count: () => this.count,
    buffer_count: () => this.#number(16),
    buffer_bits: () => this.#number(64),
    plan_words: () => this.#plan(),
    plan_count: () => this.count,
    slot_words: () => this.#slots(),
    slot_count: () => this.count,
  } as const satisfies Record<string, () => Value>;

  /** Never more than is there. */
  #clamped(most: number): number {
    return this.random.rarely(6) ? this.random.pick([0, 1, 2, most]) : this.random.below(most + 1);
  }

  /** A module that a driver may see, or what must not come so far. */
  #spirv(): Value {
    const words = EMPTY_KERNEL.slice();
    this.count = words.length;
    if (this.random.rarely(12)) return null;
    const wrong = this.random.below(8);
    if (wrong === 0) words[0] ^= 1 << this.random.below(31);
    if (wrong === 1) this.count = this.random.below(6);
    return words;
  }

  #plan(): Value {
    const { random } = this;
    this.sound = undefined;
    const which = random.below(SOUND.length);
    const words = SOUND[which].slice();
    this.count = words.length;
    if (random.rarely(12)) {
      this.count = random.below(100);
      return null;
    }
    if (random.rarely(3)) {
      this.sound = which;
      return words;
    }
    for (let i = random.below(4); i >= 0; i--) {
      const wild = [0, 1, 0xffffffff, 0x10000, random.below(2 ** 32), random.below(300)];
      words[random.below(words.length)] = random.pick(wild);
    }
    if (random.rarely(6)) this.count = random.below(words.length + 1);
    return words;
  }

  #slots(): Value {
    const { random } = this;
    const slots = this.slots.get(this.plan) ?? random.below(4);
    this.count = 4 * slots;
    if (random.rarely(10)) this.count = random.below(16);
    if (random.rarely(12)) return null;
    for (let i = 0; i < slots; i++) {
      const offset = random.rarely(3) ? random.below(random.pick([2, 64, SIZE])) : 0;
      const high = random.rarely(30) ? random.below(2 ** 32) : 0;
      this.words.set([this.#handle(this.buffers, this.device), offset, high, random.below(2)], 4 * i);
    }
    return this.words;
  }
}

/** How often a function is called, its parameters, and what a success changes. */
interface ForgedRow {
  readonly weight: number;
  readonly parameters: readonly (keyof Forger["kinds"])[];
  readonly done?: (forger: Forger, values: readonly Value[]) => void;
}

/** One row for each function of the library. */
const ROWS: Readonly<Record<keyof typeof SYMBOLS, ForgedRow>> = {
  vkrt_abi: { weight: 1, parameters: [] },
  vkrt_device_count: { weight: 1, parameters: ["out"] },
  vkrt_driver_failures: { weight: 0.02, parameters: ["data", "capacity"] },
  vkrt_device_info: { weight: 1, parameters: ["index", "mask", "data", "capacity"] },
  vkrt_device_open: {
    weight: 0.1,
    parameters: ["index", "mask", "folder", "out"],
    done: ({ devices, out }) => devices.add(out[0], 0),
  },
  vkrt_device_close: {
    weight: 0.05,
    parameters: ["device"],
    done: ({ devices, buffers, plans }, [device]) => {
      devices.remove(device as number);
      for (const handles of [buffers, plans]) {
        for (const [handle, of] of handles.live) if (of === device) handles.remove(handle);
      }
    },
  },
  vkrt_pipelines_save: { weight: 1, parameters: ["device"] },
  vkrt_last_error: { weight: 5, parameters: ["device", "data", "capacity"] },
  vkrt_memory: { weight: 5, parameters: ["device", "out"] },
  vkrt_reset_peak_memory: { weight: 5, parameters: ["device"] },
  vkrt_cache_limit: { weight: 2, parameters: ["device", "size"] },
  vkrt_buffer_new: {
    weight: 12,
    parameters: ["device", "size", "kind", "out"],
    done: ({ buffers, out }, [device]) => buffers.add(out[0], device as number),
  },
  vkrt_buffer_free: {
    weight: 8,
    parameters: ["device", "buffer"],
    done: ({ buffers }, [, buffer]) => buffers.remove(buffer as number),
  },
  vkrt_buffer_write: { weight: 10, parameters: ["device", "buffer", "bytes", "data", "bytes"] },
  vkrt_buffer_read: { weight: 10, parameters: ["device", "buffer", "bytes", "data", "bytes"] },
  vkrt_buffer_read_mapped: { weight: 10, parameters: ["device", "buffer", "bytes", "data", "bytes"] },
  vkrt_buffer_load: { weight: 5, parameters: ["device", "buffer", "bytes", "path", "bytes", "bytes"] },
  vkrt_kernel_new: {
    weight: 3,
    parameters: ["device", "name", "spirv", "spirv_count", "buffer_count", "buffer_bits", "buffer_bits", "out"],
  },
  vkrt_plan_new: {
    weight: 5,
    parameters: ["device", "plan_words", "plan_count", "out"],
    done: (forger, [device]) => {
      const [handle] = forger.out;
      if (forger.sound === undefined) assertEquals(openLibrary().symbols.vkrt_plan_free(device as number, handle), 0);
      else {
        forger.plans.add(handle, device as number);
        forger.slots.set(handle, SOUND[forger.sound][1]);
      }
    },
  },
  vkrt_plan_prepare: { weight: 3, parameters: ["device", "plan_words", "plan_count"] },
  vkrt_plan_run: { weight: 15, parameters: ["device", "plan", "slot_words", "slot_count", "times", "stream", "out"] },
  vkrt_plan_run_pair: {
    weight: 10,
    parameters: ["device", "plan", "slot_words", "slot_count", "plan", "slot_words", "slot_count", "out"],
  },
  vkrt_plan_free: {
    weight: 2,
    parameters: ["device", "plan"],
    done: ({ plans }, [, plan]) => plans.remove(plan as number),
  },
  vkrt_wait: { weight: 8, parameters: ["device", "ticket", "timeout"] },
  vkrt_profile: { weight: 0.5, parameters: ["device", "flag"] },
  vkrt_profile_read: { weight: 3, parameters: ["device", "plan", "data", "doubles", "out"] },
  vkrt_plan_barriers: { weight: 3, parameters: ["device", "plan", "out"] },
  vkrt_plan_statistics: { weight: 0.5, parameters: ["device", "plan", "flag", "data", "capacity"] },
  vkrt_validation_messages: { weight: 1, parameters: ["out"] },
  vkrt_live_objects: { weight: 1, parameters: ["out"] },
};

/** How many calls of each function there were, and how many of them succeeded. */
export type Tally = Readonly<Record<string, { readonly calls: number; readonly succeeded: number }>>;

/** Makes `count` calls. Throws where one answers no status, or where the library does not work as before afterwards. */
export function forgeCalls(count: number, seed: number): Tally {
  const { symbols } = openLibrary();
  const before = liveObjects();
  const forger = new Forger(seed);
  const { random, devices } = forger;
  const names = Object.keys(ROWS) as (keyof typeof ROWS)[];
  const urn = names.flatMap((name) => Array<keyof typeof ROWS>(Math.round(ROWS[name].weight * 100)).fill(name));
  const statuses = new Set<unknown>(Object.values(STATUS));
  const tally: Record<string, { calls: number; succeeded: number }> = {};
  const call = (name: keyof typeof ROWS, values: readonly Value[]): unknown =>
    (symbols[name] as unknown as (...values: readonly Value[]) => unknown)(...values);
  for (let i = 0; i < count; i++) {
    const name = devices.live.size === 0 ? "vkrt_device_open" : random.pick(urn);
    const { parameters, done } = ROWS[name];
    assertEquals(parameters.length, SYMBOLS[name].parameters.length, name);
    const values = parameters.map((kind) => forger.kinds[kind]());
    const status = call(name, values);
    const entry = tally[name] ??= { calls: 0, succeeded: 0 };
    entry.calls++;
    if (name === "vkrt_abi") continue;
    assert(statuses.has(status), `${name}(${values}) answered ${status}`);
    if (status !== 0) continue;
    entry.succeeded++;
    done?.(forger, values);
  }
  for (const device of devices.live.keys()) assertEquals(symbols.vkrt_device_close(device), 0);
  assertEquals(liveObjects(), before);
  using again = new VulkanDevice(INDICES[0], "");
  const [from, to] = [bufferOf(again, pattern(64)), again.bufferNew(64)];
  again.planRun(again.planNew(plan(2, copy(0, 1, 16))), slotsOf(from, to));
  assertEquals(bytesOf(again, to, 64), pattern(64));
  return tally;
}

if (import.meta.main) {
  const [count, seed] = Deno.args.map(Number);
  const tally = forgeCalls(count, seed);
  const width = Math.max(...Object.keys(tally).map((name) => name.length));
  for (const [name, { calls, succeeded }] of Object.entries(tally).sort()) {
    console.log(`${name.padEnd(width)} ${String(calls).padStart(7)} calls, ${String(succeeded).padStart(7)} succeeded`);
  }
}
