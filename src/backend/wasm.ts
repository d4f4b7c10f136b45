/**
 * The CPU device: runs Plans with the WASM executor, in linear memory.
 *
 * Submitted work waits in a queue until a caller waits for it. `wait` and `read` run it to the end. `waitAsync` runs it in slices of a
 * few milliseconds, with turns of the event loop between them; several waits share one such loop. Frees and writes that touch queued
 * work are queued too, so the order is that of submission. If submissions outrun the waits, submitting does a part of the work itself.
 * This bounds the queue and the memory that waits there to be freed.
 *
 * The thread that waits computes; workers on shared memory help it with what can be cut. They are started once a device
 * holds so much that its work is worth sharing, and end with the device.
 *
 * @module
 */

import { environment, hostMemory } from "../../ffi/environment.ts";
import { closedError, RuntimeError } from "../../ffi/error.ts";
import { yieldToEventLoop } from "../../ffi/turn.ts";
import { instantiateWasm, RUN_WORDS, type WasmRuntime } from "../../ffi/wasm.ts";
import {
  type Backend,
  type BackendLimits,
  type BufferHandle,
  type MemoryInfo,
  type PlanHandle,
  type PlanRun,
  slotBuffer,
  slotCount,
  slotOffset,
  type SlotWords,
} from "./backend.ts";
import { ABI_HASH, type KernelName, KERNELS } from "./kernels.ts";

/** Milliseconds of work between two turns of the event loop. */
const SLICE_MS = 8;
/**
 * Least and most work between two looks at the clock, in units of some microseconds (`chunks` in kernels.zon). How much is done
 * at once follows what the last work took.
 */
const BUDGET = { least: 4, most: 512 } as const;
/** Workers are started when buffers hold this many bytes, since work is then worth sharing. A start takes about 30 ms of another core. */
const WORKER_BYTES = 6 << 20;
/** Submitting works beyond these: entries of the queue, and queued bytes to be freed, or their share of the active memory if larger. */
const QUEUE = { entries: 4096, bytes: 32 << 20, share: 1 / 4 } as const;
/** Plans count the bytes of a buffer in 32 bits. */
const MAX_OFFSET = 2 ** 32;
/** Words of released Plans that stay in memory for the next Plan of the same words: so many, each of at most so many bytes. */
const KEPT_WORDS = { most: 64, bytes: 4096 } as const;
const NO_TIMES = new Float64Array(0);
/** The progress of work that has not begun. */
const AT_BEGINNING: readonly number[] = Array<number>(RUN_WORDS).fill(0);
/** Most threads: all of them share the memory bandwidth. */
const MAX_THREADS = 16;

/** Kernels that round activations to integers; VKMX_EXACT=1 does without them. */
const INTEGER_KERNELS: ReadonlySet<KernelName> = new Set<KernelName>([
  "pack_quantized",
  "quantize_activations",
  "packed_matvec",
  "packed_matmul",
  "quantized_matvec",
]);

interface BufferRow {
  readonly bytes: number;
  /** Ticket of the last queued work that touches it. */
  lastUse: number;
}

interface PlanRow {
  /** The words as they were given, and the address of their copy in linear memory. */
  readonly given: Uint32Array;
  readonly words: number;
  readonly slots: number;
  readonly dispatches: number;
  nanoseconds: Float64Array;
  lastUse: number;
}

/** Queued work: a Plan with its slot addresses, or something short. */
type Work =
  | {
    readonly ticket: number;
    readonly plan: PlanRow;
    /** The addresses of the slots. */
    readonly addresses: readonly number[];
    /** How far it has come, as the module counts it: the next dispatch, and where in that. */
    progress: readonly number[];
    times: Float64Array | undefined;
  }
  | { readonly ticket: number; readonly plan: undefined; readonly act: () => void };

/** A caller that waits for a ticket while the event loop turns. */
interface Waiter {
  readonly ticket: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Opens the CPU device with VKMX_THREADS threads, as many as there are processors unless it is set; `quads` as
 * {@link instantiateWasm} takes it. Each has memory of its own. Throws a RuntimeError with code "unavailable" if the engine lacks relaxed SIMD.
 */
export function createWasmBackend(threads: number = threadCount(), quads?: boolean, name: string = "wasm"): Backend {
  const runtime = instantiateWasm(threads > 1, quads);
  if (runtime.abi !== ABI_HASH) {
    throw new RuntimeError(
      "abi",
      "createWasmBackend",
      "ffi/wasm_module.ts and src/backend/kernels.ts are of different builds: run `deno task gen`",
    );
  }
  return new WasmBackend(runtime, threads, name);
}

function threadCount(): number {
  const text = environment("VKMX_THREADS");
  return text === undefined ? Math.min(navigator.hardwareConcurrency, MAX_THREADS) : Number(text);
}

class WasmBackend implements Backend {
  readonly name: string;
  readonly description: string;
  readonly limits: BackendLimits;
  readonly shaders = undefined;
  readonly #runtime: WasmRuntime;
  /** Limits of linear memory: how far it can grow, and the machine's total and free memory. */
  readonly #most: { readonly total: number; readonly available: number };
  readonly #exact = environment("VKMX_EXACT") === "1";
  #workers: number; // still to be started
  readonly #buffers = new Map<BufferHandle, BufferRow>(); // a buffer's handle is its address
  readonly #plans = new Map<PlanHandle, PlanRow>();
  /** Addresses of checked words that no Plan uses now, by the words as they were given. */
  readonly #keptWords = new Map<Uint32Array, number>();
  readonly #queue: Work[] = [];
  #head = 0; // first entry of the queue that is not done
  #leaving = 0; // bytes of buffers whose free is in the queue
  #waiters: Waiter[] = [];
  #driven = false; // whether slices follow one another
  #submitted = 0;
  #nextPlan = 1;
  #slotBlock = 0; // linear memory that slot addresses are passed in
  #slotCapacity = 0;
  #budget: number = BUDGET.least; // between two looks at the clock
  #profiling = false;
  #cacheLimit = 0;
  #lost: unknown; // the trap that left the module in an unknown state
  #closed = false;

  constructor(runtime: WasmRuntime, threads: number, name: string) {
    this.name = name;
    this.#runtime = runtime;
    this.#workers = runtime.shared ? threads - 1 : 0;
    const limit = runtime.memory("limit");
    const { total, available } = hostMemory() ?? { total: limit, available: limit };
    this.#most = { total: Math.min(limit, total), available: Math.min(limit, available) };
    this.description = `CPU (WebAssembly SIMD, ${Math.round(limit / 2 ** 30)} GiB of memory at most)`;
    this.limits = {
      maxBufferBytes: Math.min(limit, MAX_OFFSET) - 256,
      maxGrid: 0x7fffffff,
      threads: 64,
      maxThreads: 64,
      sharedBytes: 0,
      barriers: false,
      concurrent: false,
      drops: true,
      type: "wasm",
      vendorId: 0,
      computeUnits: 0,
      subgroup: 1,
      float64: true,
    };
  }

  kernel(): never {
    throw new RuntimeError("unavailable", "kernel", "wasm runs no SPIR-V");
  }

  has(kernel: KernelName): boolean {
    return KERNELS[kernel].wasm && !(this.#exact && INTEGER_KERNELS.has(kernel));
  }

  alloc(bytes: number): BufferHandle {
    if (!Number.isSafeInteger(bytes) || bytes <= 0) {
      throw new RuntimeError("argument", "alloc", `${bytes} is not a number of bytes`);
    }
    const most = Math.max(QUEUE.bytes, this.#runtime.memory("active") * QUEUE.share);
    if (this.#leaving > most) this.#catchUp(() => this.#leaving <= most / 2);
    const address = this.#block(bytes, "buffer");
    this.#buffers.set(address, { bytes, lastUse: 0 });
    if (this.#workers > 0 && this.#runtime.memory("active") > WORKER_BYTES) {
      this.#runtime.startWorkers(this.#workers);
      this.#workers = 0;
    }
    return address;
  }

  free(buffer: BufferHandle): void {
    if (this.#gone) return; // all memory went with the device
    const row = this.#row(buffer, "free");
    this.#buffers.delete(buffer);
    if (row.lastUse <= this.#done) return this.#runtime.free(buffer);
    this.#leaving += row.bytes;
    this.#enqueue(() => {
      this.#leaving -= row.bytes;
      this.#runtime.free(buffer);
    });
  }

  write(buffer: BufferHandle, byteOffset: number, data: Uint8Array): void {
    const row = this.#range(buffer, byteOffset, data.byteLength, "write");
    const at = buffer + byteOffset;
    if (row.lastUse <= this.#done) return this.#runtime.bytes.set(data, at);
    const copy = data.slice(); // the caller may change its bytes before the queue comes to them
    row.lastUse = this.#enqueue(() => this.#runtime.bytes.set(copy, at));
  }

  read(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void {
    const row = this.#range(buffer, byteOffset, out.byteLength, "read");
    this.wait(row.lastUse);
    const at = buffer + byteOffset;
    out.set(this.#runtime.bytes.subarray(at, at + out.byteLength));
  }

  readMapped(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void {
    this.#range(buffer, byteOffset, out.byteLength, "readMapped");
    const at = buffer + byteOffset;
    out.set(this.#runtime.bytes.subarray(at, at + out.byteLength));
  }

  load(buffer: BufferHandle, byteOffset: number, path: string, fileOffset: number, bytes: number): void {
    const row = this.#range(buffer, byteOffset, bytes, "load");
    this.wait(row.lastUse);
    this.#runtime.readFile(buffer + byteOffset, path, fileOffset, bytes);
  }

  /** A Plan is words here: nothing takes time. */
  prepare(_words: Uint32Array): Promise<void> {
    return Promise.resolve();
  }

  compile(words: Uint32Array): PlanHandle {
    const address = this.#checkedWords(words);
    const plan = this.#nextPlan++;
    this.#plans.set(plan, {
      given: words,
      words: address,
      slots: words[1],
      dispatches: words[2],
      nanoseconds: NO_TIMES,
      lastUse: 0,
    });
    return plan;
  }

  /** The address of a checked copy of a Plan's words, which is the caller's. */
  #checkedWords(words: Uint32Array): number {
    const kept = this.#keptWords.get(words);
    if (kept !== undefined) {
      this.#checkAlive("compile");
      this.#keptWords.delete(words);
      return kept;
    }
    const address = this.#block(Math.max(4, words.byteLength), "internal");
    this.#runtime.words.set(words, address / 4);
    try {
      this.#runtime.checkPlan(address, words.length);
    } catch (e) {
      this.#runtime.free(address);
      throw e;
    }
    return address;
  }

  /** Keeps the words of a Plan that ended, in the place of those that were kept longest, or frees them. */
  #keepWords({ given, words }: PlanRow): void {
    const kept = this.#keptWords;
    if (given.byteLength > KEPT_WORDS.bytes || kept.has(given)) return this.#runtime.free(words);
    kept.set(given, words);
    if (kept.size <= KEPT_WORDS.most) return;
    const [oldest, address] = kept.entries().next().value!;
    kept.delete(oldest);
    this.#runtime.free(address);
  }

  run(plan: PlanHandle, words: SlotWords, times: number = 1): number {
    const row = this.#plan(plan, "run");
    const count = slotCount(words);
    if (count !== row.slots) {
      throw new RuntimeError("argument", "run", `the Plan has ${row.slots} slots, ${count} were bound`);
    }
    const addresses: number[] = [];
    const used: { lastUse: number }[] = [row];
    for (let i = 0; i < count; i++) {
      const buffer = slotBuffer(words, i), byteOffset = slotOffset(words, i);
      used.push(this.#range(buffer, byteOffset, 0, "run"));
      addresses.push(buffer + byteOffset);
    }
    this.#reserveSlots(count);
    if (this.#queued > QUEUE.entries) this.#catchUp(() => this.#queued <= QUEUE.entries / 2);
    let ticket = this.#submitted;
    for (let i = 0; i < times; i++) {
      ticket = ++this.#submitted;
      const nanoseconds = this.#profiling ? new Float64Array(row.dispatches) : undefined;
      this.#queue.push({ ticket, plan: row, addresses, progress: AT_BEGINNING, times: nanoseconds });
    }
    for (const entry of used) entry.lastUse = ticket;
    return ticket;
  }

  runPair(first: PlanRun, second: PlanRun): readonly [number, number] {
    return [this.run(first.plan, first.slots), this.run(second.plan, second.slots)];
  }

  release(plan: PlanHandle): void {
    if (this.#gone) return;
    const row = this.#plan(plan, "release");
    this.#plans.delete(plan);
    this.#ordered(row, () => this.#keepWords(row));
  }

  /** All streams are one queue here. */
  synchronize(): void {
    this.wait(this.#submitted);
  }

  wait(ticket: number): void {
    while (this.#done < ticket) this.#work(ticket, Infinity);
  }

  waitAsync(ticket: number): Promise<void> {
    if (this.#done >= ticket) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ ticket, resolve, reject });
      if (!this.#driven) this.#drive();
    });
  }

  progress(ticket: number): number {
    if (ticket <= this.#done) return 1;
    const work = this.#find(ticket);
    return work?.plan ? work.progress[0] / work.plan.dispatches : 0;
  }

  drop(ticket: number): boolean {
    const work = this.#find(ticket);
    if (!work?.plan) return false;
    work.progress = [work.plan.dispatches, 0, 0, 0];
    if (this.#queue[this.#head] === work) this.#work(ticket, Infinity); // at its end already
    return true;
  }

  memory(): MemoryInfo {
    const active = this.#runtime.memory("active");
    return {
      active,
      peak: this.#runtime.memory("peak"),
      cached: 0,
      cacheLimit: this.#cacheLimit,
      total: this.#most.total,
      available: Math.max(0, this.#most.available - active),
      hostActive: 0,
      hostAvailable: 0,
      hostTotal: 0,
    };
  }

  resetPeakMemory(): void {
    this.#runtime.resetPeakMemory();
  }

  /** Freed memory goes back to the allocator of the module at once: nothing is cached. */
  setCacheLimit(bytes: number): void {
    this.#cacheLimit = bytes;
  }

  profile(on: boolean): void {
    this.#profiling = on;
  }

  profileRead(plan: PlanHandle): Float64Array {
    return this.#plan(plan, "profileRead").nanoseconds;
  }

  barriers(): number {
    return 0;
  }

  code(): undefined {
    return undefined;
  }

  save(): void {}

  saveAsync(): Promise<void> {
    return Promise.resolve();
  }

  liveObjects(): { readonly buffers: number; readonly plans: number } {
    return { buffers: this.#buffers.size, plans: this.#plans.size };
  }

  /** Lets go of everything; work without a waiting caller is dropped. */
  [Symbol.dispose](): void {
    this.#queue.length = 0;
    this.#head = 0;
    this.#leaving = 0;
    this.#closed = true;
    this.#workers = 0;
    this.#runtime.stopWorkers();
    this.#buffers.clear();
    this.#plans.clear();
    this.#keptWords.clear();
  }

  /** Ticket up to which all work is done. */
  get #done(): number {
    return this.#head < this.#queue.length ? this.#queue[this.#head].ticket - 1 : this.#submitted;
  }

  /** The work with a ticket, if it is not done. */
  #find(ticket: number): Work | undefined {
    return this.#queue.find((entry, at) => at >= this.#head && entry.ticket === ticket);
  }

  /** Entries of the queue that are not done. */
  get #queued(): number {
    return this.#queue.length - this.#head;
  }

  /** Works, a slice at a turn of the event loop, while any caller waits. */
  async #drive(): Promise<void> {
    this.#driven = true;
    while (this.#waiters.length > 0) {
      try {
        const last = this.#waiters.reduce((most, { ticket }) => Math.max(most, ticket), 0);
        this.#work(last, performance.now() + SLICE_MS);
      } catch (error) {
        for (const { reject } of this.#waiters.splice(0)) reject(error);
      }
      await yieldToEventLoop();
      const done = this.#done;
      const over = this.#waiters.filter(({ ticket }) => ticket <= done);
      this.#waiters = this.#waiters.filter(({ ticket }) => ticket > done);
      for (const { resolve } of over) resolve();
    }
    this.#driven = false;
  }

  /** Works off the queue from its beginning until `enough`. */
  #catchUp(enough: () => boolean): void {
    while (this.#queued > 0 && !enough()) this.#work(this.#queue[this.#head].ticket, Infinity);
  }

  /** Runs queued work up to `ticket`, and the frees and writes after it, until the clock passes `deadline`. */
  #work(ticket: number, deadline: number): void {
    while (this.#head < this.#queue.length) {
      const work = this.#queue[this.#head];
      if (work.ticket > ticket && work.plan) return;
      this.#checkAlive("wait");
      try {
        if (work.plan) this.#advance(work, deadline);
        else work.act();
      } catch (cause) {
        this.#lost = cause;
        throw new RuntimeError("device-lost", "run", `the WASM executor failed: ${(cause as Error).message}`, {
          cause,
        });
      }
      if (work.plan && work.progress[0] < work.plan.dispatches) return; // the slice is over
      this.#head++;
      if (this.#head === this.#queue.length) this.#queue.length = this.#head = 0;
      else if (this.#head >= QUEUE.entries) this.#queue.splice(0, this.#head), this.#head = 0;
      if (deadline !== Infinity && performance.now() >= deadline) return;
    }
  }

  #advance(work: Work & { plan: PlanRow }, deadline: number): void {
    const { plan, addresses, progress, times } = work;
    const { words, doubles } = this.#runtime;
    const run = this.#slotBlock;
    for (let i = 0; i < RUN_WORDS; i++) words[run / 4 + i] = progress[i];
    for (let i = 0; i < addresses.length; i++) doubles[(run + 4 * RUN_WORDS) / 8 + i] = addresses[i];
    const sliced = !times && deadline !== Infinity;
    const clock = sliced || times ? () => performance.now() : () => 0; // the time is not used
    let start = clock();
    let next = progress[0];
    while (next < plan.dispatches) {
      const at = next;
      const budget = sliced ? this.#budget : 0xffffffff;
      next = this.#runtime.runPlan(plan.words, run, times ? at + 1 : plan.dispatches, budget);
      const now = clock();
      if (times) times[at] = (now - start) * 1e6;
      if (sliced) this.#budget = budgetAfter(this.#budget, now - start);
      if (now >= deadline) break;
      start = now;
    }
    const isDone = next === plan.dispatches;
    work.progress = isDone ? [next] : [...this.#runtime.words.subarray(run / 4, run / 4 + RUN_WORDS)];
    if (times && isDone) plan.nanoseconds = times;
  }

  /** Makes room for slot addresses; they are copied there when a run begins or goes on. */
  #reserveSlots(count: number): void {
    if (count <= this.#slotCapacity) return;
    const capacity = Math.max(128, count * 2);
    const block = this.#block(4 * RUN_WORDS + 8 * capacity, "internal");
    if (this.#slotBlock) this.#runtime.free(this.#slotBlock);
    this.#slotBlock = block;
    this.#slotCapacity = capacity;
  }

  #enqueue(act: () => void): number {
    const ticket = ++this.#submitted;
    this.#queue.push({ ticket, plan: undefined, act });
    return ticket;
  }

  /** Acts now, or in the queue when queued work still touches the row. */
  #ordered(row: { readonly lastUse: number }, act: () => void): void {
    if (row.lastUse <= this.#done) act();
    else this.#enqueue(act);
  }

  #block(bytes: number, kind: "buffer" | "internal"): number {
    this.#checkAlive("alloc");
    let address = this.#runtime.alloc(bytes, kind);
    if (!address && this.#done < this.#submitted) {
      this.wait(this.#submitted); // frees that wait in the queue
      address = this.#runtime.alloc(bytes, kind);
    }
    if (address) return address;
    const { active } = this.memory();
    const limit = this.#runtime.memory("limit");
    throw new RuntimeError(
      "out-of-memory",
      "alloc",
      `wasm cannot allocate ${megabytes(bytes)}: ${megabytes(active)} of at most ${megabytes(limit)} in use; ` +
        "use a smaller model or context, or a Vulkan device",
    );
  }

  #row(buffer: BufferHandle, call: string): BufferRow {
    this.#checkAlive(call);
    const row = this.#buffers.get(buffer);
    if (!row) throw new RuntimeError("handle", call, `${buffer} is not a live buffer of wasm`);
    return row;
  }

  #range(buffer: BufferHandle, byteOffset: number, bytes: number, call: string): BufferRow {
    const row = this.#row(buffer, call);
    if (byteOffset < 0 || byteOffset + bytes > row.bytes) {
      throw new RuntimeError(
        "argument",
        call,
        `bytes ${byteOffset} to ${byteOffset + bytes} are outside the buffer of ${row.bytes}`,
      );
    }
    return row;
  }

  #plan(plan: PlanHandle, call: string): PlanRow {
    this.#checkAlive(call);
    const row = this.#plans.get(plan);
    if (!row) throw new RuntimeError("handle", call, `${plan} is not a live Plan of wasm`);
    return row;
  }

  get #gone(): boolean {
    return this.#closed || this.#lost !== undefined;
  }

  #checkAlive(call: string): void {
    if (this.#closed) throw closedError(call);
    if (this.#lost === undefined) return;
    throw new RuntimeError(
      "device-lost",
      call,
      `the WASM device is gone: ${(this.#lost as Error).message ?? this.#lost}`,
    );
  }
}

/** Work to do at once after `budget` of it took some time: about a quarter of a slice. */
function budgetAfter(budget: number, milliseconds: number): number {
  if (milliseconds > SLICE_MS / 2) return Math.max(BUDGET.least, budget / 2);
  return milliseconds < SLICE_MS / 8 ? Math.min(BUDGET.most, budget * 2) : budget;
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
