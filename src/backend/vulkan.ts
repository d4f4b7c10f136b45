/**
 * A Vulkan device: runs Plans through the native library.
 *
 * @module
 */

import { cacheFolder, tellNotKept } from "../../ffi/cache_folder.ts";
import { hostMemory } from "../../ffi/environment.ts";
import { RuntimeError } from "../../ffi/error.ts";
import {
  VKRT_BUFFER_DEVICE,
  VKRT_BUFFER_HOST,
  VKRT_BUFFER_READBACK,
  VKRT_BUFFER_VISIBLE,
  VKRT_MEMORY_ACTIVE,
  VKRT_MEMORY_BUDGET,
  VKRT_MEMORY_CACHE,
  VKRT_MEMORY_CACHE_LIMIT,
  VKRT_MEMORY_HEAP,
  VKRT_MEMORY_HOST,
  VKRT_MEMORY_HOST_BUDGET,
  VKRT_MEMORY_HOST_HEAP,
  VKRT_MEMORY_PEAK,
} from "../../ffi/symbols.ts";
import { PATIENCE_MS, VulkanDevice, type VulkanDeviceInfo } from "../../ffi/vulkan.ts";
import {
  type Backend,
  type BackendLimits,
  type BufferHandle,
  type BufferKind,
  deviceStream,
  type MemoryInfo,
  type PlanHandle,
  type PlanRun,
  type ShaderFacts,
  type ShaderKernel,
  type SlotWords,
  streamOf,
} from "./backend.ts";
import { type KernelCode, readKernelCode } from "./kernel_code.ts";
import type { KernelName } from "./kernels.ts";
import { digestOf } from "./spirv.ts";

/** Milliseconds that one native wait lasts; between two of them other code may run. */
const WAIT_MS = 1000;
/**
 * Milliseconds of polling before the wait moves to another thread. Coming back from there takes some 0.4 ms. Polling is short, and
 * longer if that delay matters.
 */
const LOOK_MS = { later: 2, soon: 20 } as const;
/** Submissions that may be on their way; the host waits before it makes more. */
const MAX_SUBMITTED = 256;
/** Looks between two turns of the event loop: some microseconds. */
const LOOKS = 8;
/** The kinds of buffers of the native library. */
const KINDS = {
  device: VKRT_BUFFER_DEVICE,
  visible: VKRT_BUFFER_VISIBLE,
  host: VKRT_BUFFER_HOST,
  readback: VKRT_BUFFER_READBACK,
} as const satisfies Record<
  BufferKind,
  number
>;
/** Vendor id. */
const NVIDIA = 0x10de;
/** Grids are kept within what every device allows along every axis. */
const MAX_GRID = 65535;

/** Devices that were dropped without being disposed of. */
const registry = new FinalizationRegistry<VulkanDevice>((device) => device.close());

/** Opens physical device `index` under a name; `info` is its {@link VulkanDeviceInfo} with `mask` applied. */
export function createVulkanBackend(name: string, index: number, info: VulkanDeviceInfo, mask: string): Backend {
  return new VulkanBackend(name, describeVulkan(info, mask), new VulkanDevice(index, cacheFolder(), mask), info);
}

/** The same device without a mask, opened on another thread; undefined if that fails. */
export async function openVulkanAhead(
  name: string,
  index: number,
  info: VulkanDeviceInfo,
): Promise<Backend | undefined> {
  const device = await VulkanDevice.openAhead(index, cacheFolder());
  return device && new VulkanBackend(name, describeVulkan(info), device, info);
}

/** One line about a device, its driver and Vulkan version, and its hidden features. */
export function describeVulkan(info: VulkanDeviceInfo, mask: string = ""): string {
  const driver = [info.driver, info.driverInfo].filter((part) => part !== "").join(" ");
  return `${info.name} (${driver ? `${driver}, ` : ""}Vulkan ${info.apiVersion})${mask && ` without ${mask}`}`;
}

class VulkanBackend implements Backend {
  readonly name: string;
  readonly description: string;
  readonly limits: BackendLimits;
  readonly shaders: ShaderFacts;
  readonly #device: VulkanDevice;
  readonly #missing: VulkanDeviceInfo["missingKernels"];
  readonly #looks: boolean;
  readonly #dispatches = new Map<PlanHandle, number>();
  #buffers = 0;
  /** Ids of kernels made at run time, by all that they are. */
  readonly #kernels = new Map<string, number>();
  /** Of each stream: runs so far, the ticket of the last one and of half of {@link MAX_SUBMITTED} runs ago. */
  readonly #streams: { runs: number; last: number; before: number }[] = [];
  /** A wait on another thread, and its ticket. */
  #waiting: { readonly ticket: number; readonly done: Promise<boolean> } | undefined;

  constructor(name: string, description: string, device: VulkanDevice, info: VulkanDeviceInfo) {
    this.name = name;
    this.description = description;
    this.limits = {
      maxBufferBytes: info.maxAllocation - 1024,
      maxGrid: Math.min(...info.maxGrid, MAX_GRID),
      threads: Math.min(info.type === "cpu" ? 64 : 256, info.maxThreads),
      maxThreads: info.maxThreads,
      sharedBytes: info.sharedBytes,
      barriers: true,
      concurrent: info.type === "discrete" && info.vendorId === NVIDIA,
      drops: false,
      type: info.type,
      vendorId: info.vendorId,
      computeUnits: info.computeUnits,
      subgroup: info.lanes,
      float64: false,
    };
    this.shaders = info;
    this.#device = device;
    this.#missing = info.missingKernels;
    this.#looks = info.type !== "cpu"; // a CPU driver needs the time itself
    registry.register(this, device, this);
    if (cacheFolder() === "") tellNotKept();
  }

  kernel(kernel: ShaderKernel): number {
    const { name, spirv, buffers, writes, optional } = kernel;
    const key = [name, buffers, writes, optional, digestOf(new Uint8Array(spirv.buffer))].join();
    let id = this.#kernels.get(key);
    if (id === undefined) this.#kernels.set(key, id = this.#device.kernelNew(kernel));
    return id;
  }

  has(kernel: KernelName): boolean {
    return !(kernel in this.#missing);
  }

  alloc(bytes: number, kind: BufferKind = "device"): BufferHandle {
    const buffer = this.#device.bufferNew(bytes, KINDS[kind]);
    this.#buffers++;
    return buffer;
  }

  free(buffer: BufferHandle): void {
    if (!this.#device.isOpen) return; // everything went with the device
    this.#device.bufferFree(buffer);
    this.#buffers--;
  }

  write(buffer: BufferHandle, byteOffset: number, data: Uint8Array): void {
    this.#device.bufferWrite(buffer, byteOffset, plain(data, "write"));
  }

  read(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void {
    this.#device.bufferRead(buffer, byteOffset, plain(out, "read"));
  }

  readMapped(buffer: BufferHandle, byteOffset: number, out: Uint8Array): void {
    this.#device.bufferReadMapped(buffer, byteOffset, plain(out, "readMapped"));
  }

  load(buffer: BufferHandle, byteOffset: number, path: string, fileOffset: number, bytes: number): void {
    this.#device.bufferLoad(buffer, byteOffset, path, fileOffset, bytes);
  }

  compile(words: Uint32Array): PlanHandle {
    const plan = this.#device.planNew(words as Uint32Array<ArrayBuffer>);
    this.#dispatches.set(plan, words[2]);
    return plan;
  }

  prepare(words: Uint32Array): Promise<void> {
    return this.#device.planPrepare(words as Uint32Array<ArrayBuffer>);
  }

  run(plan: PlanHandle, slots: SlotWords, times: number = 1, stream: number = 0): number {
    const number = deviceStream(stream);
    const ticket = this.#device.planRun(plan, slots, times, number);
    this.#submitted(number, ticket);
    return ticket;
  }

  runPair(first: PlanRun, second: PlanRun): readonly [number, number] {
    const ticket = this.#device.planRunPair(first.plan, first.slots, second.plan, second.slots);
    this.#submitted(0, ticket + 1);
    return [ticket, ticket + 1];
  }

  /** Waits for earlier work if too much is on its way on a stream. */
  #submitted(number: number, ticket: number): void {
    const row = this.#streams[number] ??= { runs: 0, last: 0, before: 0 };
    row.last = ticket;
    if (++row.runs % (MAX_SUBMITTED / 2) === 0) {
      if (row.before > 0) this.wait(row.before);
      row.before = ticket;
    }
  }

  synchronize(stream?: number): void {
    if (stream === undefined) this.#streams.forEach(({ last }) => this.wait(last));
    else this.wait(this.#streams[deviceStream(stream)]?.last ?? 0);
  }

  /** Work that was submitted to a GPU runs to its end. */
  drop(_ticket: number): boolean {
    return false;
  }

  /** A GPU does not tell how far a submission has come. */
  progress(_ticket: number): undefined {
    return undefined;
  }

  release(plan: PlanHandle): void {
    this.#device.planFree(plan);
    this.#dispatches.delete(plan);
  }

  wait(ticket: number): void {
    const start = performance.now();
    while (!this.#device.wait(ticket, WAIT_MS)) this.#checkPatience(start);
  }

  async waitAsync(ticket: number, soon: boolean = false): Promise<void> {
    if (this.#device.wait(ticket, 0)) return;
    const start = performance.now();
    const looks = LOOK_MS[soon ? "soon" : "later"];
    while (this.#looks && performance.now() - start < looks) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      for (let look = 0; look < LOOKS; look++) if (this.#device.wait(ticket, 0)) return;
    }
    while (!await this.#waitElsewhere(ticket)) this.#checkPatience(start);
  }

  /** Whether a ticket is done after {@link WAIT_MS} at most; all waits share one thread. */
  async #waitElsewhere(ticket: number): Promise<boolean> {
    const before = (other: number): boolean => streamOf(other) === streamOf(ticket) && other <= ticket;
    while (this.#waiting && before(this.#waiting.ticket)) {
      await this.#waiting.done;
      if (this.#device.wait(ticket, 0)) return true;
    }
    const done = this.#device.waitAsync(ticket, WAIT_MS);
    const own = { ticket, done };
    this.#waiting ??= own;
    try {
      return await done;
    } finally {
      if (this.#waiting === own) this.#waiting = undefined;
    }
  }

  #checkPatience(start: number): void {
    const elapsed = performance.now() - start;
    if (elapsed < PATIENCE_MS) return;
    const seconds = Math.round(elapsed / 1000);
    throw new RuntimeError("timeout", "wait", `${this.name} has not finished after ${seconds} s; it may hang`);
  }

  memory(): MemoryInfo {
    const bytes = this.#device.memory();
    const hostTotal = bytes[VKRT_MEMORY_HOST_HEAP];
    // A driver's budget is a share of all memory, whatever other programs have taken of it.
    const free = hostTotal > 0 ? hostMemory()?.available ?? Infinity : 0;
    return {
      active: bytes[VKRT_MEMORY_ACTIVE],
      peak: bytes[VKRT_MEMORY_PEAK],
      cached: bytes[VKRT_MEMORY_CACHE],
      cacheLimit: bytes[VKRT_MEMORY_CACHE_LIMIT],
      total: bytes[VKRT_MEMORY_HEAP],
      available: bytes[VKRT_MEMORY_BUDGET],
      hostActive: bytes[VKRT_MEMORY_HOST],
      hostAvailable: Math.min(bytes[VKRT_MEMORY_HOST_BUDGET], free),
      hostTotal,
    };
  }

  resetPeakMemory(): void {
    this.#device.resetPeakMemory();
  }

  setCacheLimit(bytes: number): void {
    this.#device.setCacheLimit(bytes);
  }

  profile(on: boolean): void {
    this.#device.profile(on);
  }

  profileRead(plan: PlanHandle): Float64Array {
    return this.#device.profileRead(plan, this.#dispatches.get(plan) ?? 0);
  }

  barriers(plan: PlanHandle): number {
    return this.#device.planBarriers(plan);
  }

  code(plan: PlanHandle, dispatch: number): KernelCode | undefined {
    if (!this.shaders.features.includes("pipelineStatistics")) return undefined;
    return readKernelCode(this.#device.planStatistics(plan, dispatch));
  }

  save(): void {
    this.#device.savePipelines();
  }

  saveAsync(): Promise<void> {
    return this.#device.savePipelinesAsync();
  }

  liveObjects(): { readonly buffers: number; readonly plans: number } {
    return { buffers: this.#buffers, plans: this.#dispatches.size };
  }

  [Symbol.dispose](): void {
    registry.unregister(this);
    this.#device.close();
    this.#dispatches.clear();
    this.#kernels.clear();
    this.#buffers = 0;
  }
}

/** The native side takes no views of shared memory; `read` must fill the caller's own bytes, so these are refused. */
function plain(bytes: Uint8Array, call: string): Uint8Array<ArrayBuffer> {
  if (bytes.buffer instanceof ArrayBuffer) return bytes as Uint8Array<ArrayBuffer>;
  throw new RuntimeError("argument", call, "the bytes lie in a SharedArrayBuffer; copy them first");
}
