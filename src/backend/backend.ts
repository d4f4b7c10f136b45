/**
 * The interface of a device for the layers above: bytes, Plans and tickets.
 *
 * A {@link Backend} executes Plans (shaders/include/plan.h) over buffers that it hands out. It knows neither ops nor dtypes; the
 * scheduler above it knows neither Vulkan nor WebAssembly. Two implementations exist, `vulkan.ts` and `wasm.ts`.
 *
 * @module
 */

import { VKRT_STREAM_SHIFT, VKRT_STREAMS } from "../../ffi/symbols.ts";
import type { KernelCode } from "./kernel_code.ts";
import type { KernelName } from "./kernels.ts";

/** A buffer of a backend; 0 is none. */
export type BufferHandle = number;

/** A compiled Plan of a backend. */
export type PlanHandle = number;

/** Most runs of a Plan in one submission. */
export const MAX_TIMES = 64;

/** The stream of a device for number `index` of a program. A device has a few, and only index 0 uses the first. */
export function deviceStream(index: number): number {
  return index === 0 ? 0 : 1 + (index - 1) % (VKRT_STREAMS - 1);
}

/** The stream of the device that a ticket is of. */
export function streamOf(ticket: number): number {
  return Math.floor(ticket / 2 ** VKRT_STREAM_SHIFT);
}

/** One slot of a Plan run: a buffer and where in it the slot begins. */
export interface Slot {
  readonly buffer: BufferHandle;
  readonly byteOffset: number;
}

/** Words of a slot in {@link SlotWords}: low halves of buffer and byte offset, high halves of byte offset and buffer. */
const SLOT_WORDS = 4;

/** The slots of a Plan run, see {@link encodeSlots}. */
export type SlotWords = Uint32Array<ArrayBuffer>;

/** Room for so many slots, which {@link setSlot} fills. */
export function newSlots(count: number): SlotWords {
  return new Uint32Array(SLOT_WORDS * count);
}

/** How many slots words stand for. */
export function slotCount(words: SlotWords): number {
  return words.length / SLOT_WORDS;
}

/** Slots as a {@link Backend} takes them: made once for all runs over the same buffers. */
export function encodeSlots(slots: readonly Slot[]): SlotWords {
  const words = newSlots(slots.length);
  slots.forEach(({ buffer, byteOffset }, i) => setSlot(words, i, buffer, byteOffset));
  return words;
}

/** Replaces slot `i`. */
export function setSlot(words: SlotWords, i: number, buffer: BufferHandle, byteOffset: number): void {
  const at = SLOT_WORDS * i;
  words[at] = buffer;
  words[at + 1] = byteOffset;
  words[at + 2] = byteOffset / 2 ** 32;
  words[at + 3] = buffer / 2 ** 32;
}

/** The buffer of slot `i`. */
export function slotBuffer(words: SlotWords, i: number): BufferHandle {
  return words[SLOT_WORDS * i] + words[SLOT_WORDS * i + 3] * 2 ** 32;
}

/** Where in its buffer slot `i` begins. */
export function slotOffset(words: SlotWords, i: number): number {
  return words[SLOT_WORDS * i + 1] + words[SLOT_WORDS * i + 2] * 2 ** 32;
}

/** Some of the slots, by their numbers. */
export function pickSlots(words: SlotWords, numbers: readonly number[]): SlotWords {
  const picked = new Uint32Array(numbers.length * SLOT_WORDS);
  numbers.forEach((n, i) => picked.set(words.subarray(n * SLOT_WORDS, (n + 1) * SLOT_WORDS), i * SLOT_WORDS));
  return picked;
}

/** A Plan and the slots that it runs with. */
export interface PlanRun {
  readonly plan: PlanHandle;
  readonly slots: SlotWords;
}

/**
 * Where a buffer is: in memory of the device, where the host can look in at any time, or in memory of the host. Kernels read "host" over
 * the bus, and write over it into "readback", which the host reads fast. Where host and device have one memory, all are there.
 */
export type BufferKind = "device" | "visible" | "host" | "readback";

/** Byte counters of a device. */
export interface MemoryInfo {
  /** Bytes in live buffers, those in host memory among them. */
  readonly active: number;
  /** Highest `active` since the last reset. */
  readonly peak: number;
  /** Bytes of freed memory that are kept for reuse, and the most of them. */
  readonly cached: number;
  readonly cacheLimit: number;
  /** Bytes the device offers, or the most that WASM memory may grow to. */
  readonly total: number;
  /** Bytes free for allocation now, as far as the device tells. */
  readonly available: number;
  /** Bytes in live buffers of kind "host". */
  readonly hostActive: number;
  /** Bytes free for more of them; 0 without memory of the host besides. */
  readonly hostAvailable: number;
  /** Bytes of that memory; 0 if the device's own memory is all there is. */
  readonly hostTotal: number;
}

/** Limits and facts by which lowering chooses kernels. */
export interface BackendLimits {
  /** Largest single buffer in bytes. */
  readonly maxBufferBytes: number;
  /** Largest grid along one axis. */
  readonly maxGrid: number;
  /** Threads that a workgroup of a row-wise kernel should use. */
  readonly threads: number;
  /** Most threads of a workgroup. */
  readonly maxThreads: number;
  /** Bytes that the threads of a workgroup share at most. */
  readonly sharedBytes: number;
  /** Whether dispatches run at the same time where no barrier is between them. */
  readonly barriers: boolean;
  /** Whether many workgroups of a dispatch are likely to run at the same time. */
  readonly concurrent: boolean;
  /** Whether {@link Backend.drop} leaves out work. */
  readonly drops: boolean;
  /** Whether kernels compute in float64. */
  readonly float64: boolean;
  /** The kind of device: "cpu" is software Vulkan. */
  readonly type: "wasm" | "cpu" | "integrated" | "discrete" | "virtual" | "other";
  /** PCI vendor id; 0 if there is none. */
  readonly vendorId: number;
  /** Compute units, streaming multiprocessors of NVIDIA; 0 if the driver does not tell. */
  readonly computeUnits: number;
  /** Threads of a subgroup that a kernel which asks for at least 32 gets; if that cannot be, of the smallest one. */
  readonly subgroup: number;
}

/** Limits of a device for kernels that are made at run time. */
export interface ShaderFacts {
  /** Optional features, as names of masked devices leave them out. */
  readonly features: readonly string[];
  /** VkSubgroupFeatureFlagBits. */
  readonly subgroupOperations: number;
  /** Largest grid of workgroups along each axis. */
  readonly maxGrid: readonly [number, number, number];
  /** Largest workgroup along each axis, and in all. */
  readonly maxWorkgroup: readonly [number, number, number];
  readonly maxThreads: number;
}

/** A kernel that is made at run time. Its push constants: addresses of `buffers`, then the grid in threads. */
export interface ShaderKernel {
  readonly name: string;
  /** Checked by spirv.ts. */
  readonly spirv: Uint32Array<ArrayBuffer>;
  readonly buffers: number;
  /** Bit i: it writes buffer i, or that may be absent. */
  readonly writes: number;
  readonly optional: number;
}

/** A device that runs Plans. All calls return at once, with exceptions noted; the work of a stream runs in the order of submission. */
export interface Backend extends Disposable {
  /** The name a user selects it by, such as "vulkan:0" or "wasm". */
  readonly name: string;
  /** Human-readable device, driver and version. */
  readonly description: string;
  readonly limits: BackendLimits;
  /** The properties of the device for kernels made at run time; undefined if it takes none. */
  readonly shaders: ShaderFacts | undefined;
  /** The id in Plans of a kernel made at run time: one for all that are the same. Throws a RuntimeError if it cannot be made. */
  kernel(kernel: ShaderKernel): number;
  /** Whether the kernel exists here; if it does not, lowering takes the composite. */
  has(kernel: KernelName): boolean;
  /**
   * Allocates `bytes` > 0; the host can {@link Backend.readMapped} kind "visible". Default "device". Throws a RuntimeError with code
   * "out-of-memory" and numbers.
   */
  alloc(bytes: number, kind?: BufferKind): BufferHandle;
  /** Frees once the work submitted so far is done. */
  free(buffer: BufferHandle): void;
  /** Copies host bytes in; ordered before later runs. */
  write(buffer: BufferHandle, byteOffset: number, data: Uint8Array): void;
  /** Reads back; waits for earlier work. */
  read(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void;
  /** Reads a visible buffer without waiting: what finished tickets wrote is there. */
  readMapped(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void;
  /** Reads a file range straight into the buffer. */
  load(buffer: BufferHandle, byteOffset: number, path: string, fileOffset: number, bytes: number): void;
  /** Checks and prepares a Plan. Its words must not change: equal words that are one array may be checked once. */
  compile(words: Uint32Array): PlanHandle;
  /** Does what takes time in {@link Backend.compile} of the same words ahead, while other code runs. */
  prepare(words: Uint32Array): Promise<void>;
  /**
   * Submits a Plan on a stream (default the first one), `times` times in a row (default once, at most {@link MAX_TIMES}); returns its
   * ticket. Streams that read or write the same memory do so in the order of submission.
   */
  run(plan: PlanHandle, slots: SlotWords, times?: number, stream?: number): number;
  /**
   * Submits two Plans once each on the first stream, the second after the first; returns their tickets. A GPU idles less between them
   * than between two runs.
   */
  runPair(first: PlanRun, second: PlanRun): readonly [number, number];
  release(plan: PlanHandle): void;
  /** Blocks until all submitted work of a stream, or of all streams, is done. */
  synchronize(stream?: number): void;
  /** Blocks until the ticket is done. */
  wait(ticket: number): void;
  /** Resolves when the ticket is done; the event loop stays alive. `soon`: every tenth of a millisecond counts. */
  waitAsync(ticket: number, soon?: boolean): Promise<void>;
  /** Cancels the rest of the run with a ticket, if the device can and it is not done; returns whether it did. Its output is then void. */
  drop(ticket: number): boolean;
  /** Share of the run with a ticket that is done, from 0 to 1; undefined if the device does not tell. */
  progress(ticket: number): number | undefined;
  memory(): MemoryInfo;
  resetPeakMemory(): void;
  /** Sets how many bytes of freed memory stay cached for reuse. */
  setCacheLimit(bytes: number): void;
  /** Switches timing of single dispatches. */
  profile(on: boolean): void;
  /** Nanoseconds per dispatch of the last finished run of a Plan, in dispatch order; empty when not profiled. */
  profileRead(plan: PlanHandle): Float64Array;
  /** Barriers that the newest run of a Plan waited at, those at its ends included; 0 if runs have none. */
  barriers(plan: PlanHandle): number;
  /**
   * The machine code of a dispatch's kernel. The kernel is compiled once more for this, so running Plans are not affected. Undefined
   * if the device does not give its code.
   */
  code(plan: PlanHandle, dispatch: number): KernelCode | undefined;
  /** Keeps data for the next start on disk, such as compiled pipelines. */
  save(): void;
  /** The same while other code runs. */
  saveAsync(): Promise<void>;
  /** Buffers and Plans alive, for leak tests. */
  liveObjects(): { readonly buffers: number; readonly plans: number };
}
