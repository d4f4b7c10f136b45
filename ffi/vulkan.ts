/**
 * The functions of libvk_runtime as typed methods: statuses become exceptions, out-parameters become results.
 *
 * A call costs tens of nanoseconds, so nothing is cached here. All numbers of 64 bits fit a JavaScript number.
 *
 * @module
 */

import { check, closedError, RuntimeError, statusError } from "./error.ts";
import { tellNotKept } from "./cache_folder.ts";
import { type Library, openLibrary } from "./library.ts";
import {
  VKRT_BUFFER_DEVICE,
  VKRT_ERROR_DEVICE_LOST,
  VKRT_ERROR_IO,
  VKRT_ERROR_TIMEOUT,
  VKRT_MEMORY_COUNT,
  VKRT_OK,
} from "./symbols.ts";

/** The facts of vkrt_device_info about a physical device. */
export interface VulkanDeviceInfo {
  readonly name: string;
  readonly type: "other" | "integrated" | "discrete" | "virtual" | "cpu";
  readonly driver: string;
  readonly driverInfo: string;
  readonly apiVersion: string;
  readonly vendorId: number;
  readonly deviceId: number;
  /** The host sees all memory of the device. */
  readonly unified: boolean;
  readonly subgroup: number;
  readonly subgroupMin: number;
  readonly subgroupMax: number;
  /** Threads of a subgroup in kernels that ask for 32; if those cannot be had, of the smallest one. */
  readonly lanes: number;
  readonly heapBytes: number;
  readonly maxAllocation: number;
  readonly maxGrid: readonly [number, number, number];
  readonly maxWorkgroup: readonly [number, number, number];
  /** VkSubgroupFeatureFlagBits. */
  readonly subgroupOperations: number;
  /** Streaming multiprocessors of NVIDIA, compute units of AMD; 0 if the driver does not tell. */
  readonly computeUnits: number;
  readonly maxThreads: number;
  readonly sharedBytes: number;
  readonly pushBytes: number;
  /** Nanoseconds a tick; 0 if there are no timestamps. */
  readonly timestampPeriod: number;
  readonly features: readonly string[];
  /** Kernels of the table that cannot run here, and why. */
  readonly missingKernels: Readonly<Record<string, string>>;
  /** Why the device cannot be opened; absent when it can. */
  readonly unusable?: string;
}

const INFO_BYTES = 16384;
const ERROR_BYTES = 8192;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Bytes up to the first NUL as text. */
function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return decoder.decode(end < 0 ? bytes : bytes.subarray(0, end));
}

/** NUL-terminated UTF-8. Throws if the text itself holds a NUL. */
function cString(value: string, call: string): Uint8Array<ArrayBuffer> {
  if (value.includes("\0")) {
    throw new RuntimeError("argument", call, `${JSON.stringify(value)} contains a NUL character`);
  }
  return encoder.encode(`${value}\0`);
}

function lastError(library: Library, device: number): string {
  const bytes = new Uint8Array(ERROR_BYTES);
  library.symbols.vkrt_last_error(device, bytes, bytes.length);
  return text(bytes);
}

/** The physical devices that Vulkan shows. Throws a RuntimeError with code "unavailable" if there is no Vulkan. */
export function listVulkanDevices(): VulkanDeviceInfo[] {
  const library = openLibrary();
  const count = new Uint32Array(1);
  check(library.symbols.vkrt_device_count(count), "vkrt_device_count", () => lastError(library, 0));
  return Array.from({ length: count[0] }, (_, index) => vulkanDeviceInfo(index));
}

/** A driver that is installed and cannot be loaded. */
export interface DriverFailure {
  /** The file that names it. */
  readonly manifest: string;
  /** Its library. */
  readonly library: string;
  /** The system's message. */
  readonly reason: string;
}

/** Drivers that Vulkan leaves out in silence because they cannot be loaded. */
export function driverFailures(): DriverFailure[] {
  const library = openLibrary();
  const bytes = new Uint8Array(INFO_BYTES);
  const status = library.symbols.vkrt_driver_failures(bytes, bytes.length);
  check(status, "vkrt_driver_failures", () => lastError(library, 0));
  const lines = text(bytes).split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    const [manifest, library, reason] = line.split("\t");
    return { manifest, library, reason };
  });
}

/** Has the driver loaded on another thread, so that {@link listVulkanDevices} takes little time. A failure happens again there. */
export async function prepareVulkan(): Promise<void> {
  await openLibrary().symbols.count_async(new Uint32Array(1));
}

/** The properties of physical device `index`, with a mask as {@link VulkanDevice} takes it applied. */
export function vulkanDeviceInfo(index: number, mask: string = ""): VulkanDeviceInfo {
  const library = openLibrary();
  const call = "vkrt_device_info";
  const bytes = new Uint8Array(INFO_BYTES);
  const status = library.symbols.vkrt_device_info(index, cString(mask, call), bytes, bytes.length);
  check(status, call, () => lastError(library, 0));
  return JSON.parse(text(bytes)) as VulkanDeviceInfo;
}

/** Number of validation messages since the library was loaded, and the texts that are kept. */
export function validationMessages(): { readonly count: number; readonly text: string } {
  const library = openLibrary();
  const count = new Uint32Array(1);
  check(library.symbols.vkrt_validation_messages(count), "vkrt_validation_messages", () => lastError(library, 0));
  return { count: count[0], text: count[0] > 0 ? lastError(library, 0).replaceAll(/^vkrt_\w+\(\): .*\n/gm, "") : "" };
}

/** Native objects alive in the whole library. */
export function liveObjects(): Record<"devices" | "buffers" | "plans" | "kernels", number> {
  const library = openLibrary();
  const out = new Uint32Array(4);
  check(library.symbols.vkrt_live_objects(out), "vkrt_live_objects", () => lastError(library, 0));
  return { devices: out[0], buffers: out[1], plans: out[2], kernels: out[3] };
}

/** An open device of the library. Every method throws a {@link RuntimeError} when the native call fails. */
export class VulkanDevice implements Disposable {
  readonly #library: Library;
  #handle: number;
  readonly #out = new Uint32Array(1);
  readonly #ticket = new BigUint64Array(1);

  /**
   * Opens physical device `index`; `cacheFolder` ("" for none) keeps compiled pipelines. `mask` hides what the device has:
   * features by the names in {@link VulkanDeviceInfo} and lower limits such as "maxThreads=128", separated by commas. With `handle`
   * it was opened already.
   */
  constructor(index: number, cacheFolder: string, mask: string = "", handle?: number) {
    this.#library = openLibrary();
    this.#handle = handle ?? this.#open(index, cacheFolder, mask);
  }

  #open(index: number, cacheFolder: string, mask: string): number {
    const call = "vkrt_device_open";
    const texts = [mask, cacheFolder].map((text) => cString(text, call));
    const status = this.#library.symbols.vkrt_device_open(index, texts[0], texts[1], this.#out);
    check(status, call, () => lastError(this.#library, 0));
    return this.#out[0];
  }

  /** The same on another thread; undefined if it fails, as the constructor then will. */
  static async openAhead(index: number, cacheFolder: string): Promise<VulkanDevice | undefined> {
    const call = "vkrt_device_open";
    const handle = new Uint32Array(1);
    const { open_async } = openLibrary().symbols;
    const status = await open_async(index, cString("", call), cString(cacheFolder, call), handle);
    return status === VKRT_OK ? new VulkanDevice(index, cacheFolder, "", handle[0]) : undefined;
  }

  /** Whether {@link close} has not been called. */
  get isOpen(): boolean {
    return this.#handle !== 0;
  }

  get #symbols(): Library["symbols"] {
    if (this.#handle === 0) throw closedError("VulkanDevice");
    return this.#library.symbols;
  }

  #check(status: number, call: string): void {
    if (status !== VKRT_OK) throw statusError(status, call, lastError(this.#library, this.#handle));
  }

  /** Bytes by VKRT_MEMORY_* slot. */
  memory(): Float64Array {
    const out = new BigUint64Array(VKRT_MEMORY_COUNT);
    this.#check(this.#symbols.vkrt_memory(this.#handle, out), "vkrt_memory");
    return Float64Array.from(out, Number);
  }

  /** Makes the present use the peak. */
  resetPeakMemory(): void {
    this.#check(this.#symbols.vkrt_reset_peak_memory(this.#handle), "vkrt_reset_peak_memory");
  }

  /** Most bytes of freed memory that stay cached; more is given back once the work on it is done. */
  setCacheLimit(bytes: number): void {
    this.#check(this.#symbols.vkrt_cache_limit(this.#handle, BigInt(bytes)), "vkrt_cache_limit");
  }

  /** A new buffer's handle. */
  bufferNew(bytes: number, kind: number = VKRT_BUFFER_DEVICE): number {
    const size = Number.isSafeInteger(bytes) && bytes > 0 ? BigInt(bytes) : 0n;
    this.#check(this.#symbols.vkrt_buffer_new(this.#handle, size, kind, this.#out), "vkrt_buffer_new");
    return this.#out[0];
  }

  /** Frees a buffer. Tolerates a closed or lost device, where everything goes with the device. */
  bufferFree(buffer: number): void {
    if (this.#handle === 0) return;
    const status = this.#symbols.vkrt_buffer_free(this.#handle, buffer);
    if (status !== VKRT_ERROR_DEVICE_LOST) this.#check(status, "vkrt_buffer_free");
  }

  /** Copies bytes in. */
  bufferWrite(buffer: number, offset: number, data: Uint8Array<ArrayBuffer>): void {
    const length = BigInt(data.length);
    const symbols = this.#symbols;
    this.#patiently(
      "vkrt_buffer_write",
      () => symbols.vkrt_buffer_write(this.#handle, buffer, BigInt(offset), data, length),
    );
  }

  /** Copies bytes out, after all earlier work. */
  bufferRead(buffer: number, offset: number, out: Uint8Array<ArrayBuffer>): void {
    const length = BigInt(out.length);
    const symbols = this.#symbols;
    this.#patiently(
      "vkrt_buffer_read",
      () => symbols.vkrt_buffer_read(this.#handle, buffer, BigInt(offset), out, length),
    );
  }

  /** Reads a buffer of the visible kind as it is, without waiting. */
  bufferReadMapped(buffer: number, offset: number, out: Uint8Array<ArrayBuffer>): void {
    const status = this.#symbols.vkrt_buffer_read_mapped(this.#handle, buffer, BigInt(offset), out, BigInt(out.length));
    this.#check(status, "vkrt_buffer_read_mapped");
  }

  /** Reads a range of a file into a buffer. */
  bufferLoad(buffer: number, offset: number, path: string, fileOffset: number, bytes: number): void {
    const call = "vkrt_buffer_load";
    const name = cString(path, call);
    const symbols = this.#symbols;
    this.#patiently(
      call,
      () => symbols.vkrt_buffer_load(this.#handle, buffer, BigInt(offset), name, BigInt(fileOffset), BigInt(bytes)),
    );
  }

  /** The id in Plans of a kernel of SPIR-V; see vkrt_kernel_new. */
  kernelNew(
    { name, spirv, buffers, writes, optional }: {
      readonly name: string;
      readonly spirv: Uint32Array<ArrayBuffer>;
      readonly buffers: number;
      readonly writes: number;
      readonly optional: number;
    },
  ): number {
    const call = "vkrt_kernel_new";
    const text = cString(name, call);
    const { vkrt_kernel_new } = this.#symbols;
    const status = vkrt_kernel_new(this.#handle, text, spirv, spirv.length, buffers, writes, optional, this.#out);
    this.#check(status, call);
    return this.#out[0];
  }

  /** A Plan's handle. */
  planNew(words: Uint32Array<ArrayBuffer>): number {
    this.#check(this.#symbols.vkrt_plan_new(this.#handle, words, words.length, this.#out), "vkrt_plan_new");
    return this.#out[0];
  }

  /** Makes the pipelines of a Plan on another thread, so that {@link planNew} of the same words takes no time. */
  async planPrepare(words: Uint32Array<ArrayBuffer>): Promise<void> {
    const symbols = this.#symbols;
    this.#check(await symbols.prepare_async(this.#handle, words, words.length), "vkrt_plan_prepare");
  }

  /** Submits a Plan on a stream, `times` times in a row; `slots` holds 4 words a slot. Returns its ticket. */
  planRun(plan: number, slots: Uint32Array<ArrayBuffer>, times: number = 1, stream: number = 0): number {
    const symbols = this.#symbols;
    this.#patiently(
      "vkrt_plan_run",
      () => symbols.vkrt_plan_run(this.#handle, plan, slots, slots.length, times, stream, this.#ticket),
    );
    return Number(this.#ticket[0]);
  }

  /** Submits two Plans once each, see `vkrt_plan_run_pair`. Returns the ticket of the first; that of the second is 1 more. */
  planRunPair(
    first: number,
    firstSlots: Uint32Array<ArrayBuffer>,
    second: number,
    secondSlots: Uint32Array<ArrayBuffer>,
  ): number {
    const run = this.#symbols.vkrt_plan_run_pair;
    this.#patiently(
      "vkrt_plan_run_pair",
      () =>
        run(this.#handle, first, firstSlots, firstSlots.length, second, secondSlots, secondSlots.length, this.#ticket),
    );
    return Number(this.#ticket[0]);
  }

  /** Frees a Plan. Tolerates a closed or lost device. */
  planFree(plan: number): void {
    if (this.#handle === 0) return;
    const status = this.#symbols.vkrt_plan_free(this.#handle, plan);
    if (status !== VKRT_ERROR_DEVICE_LOST) this.#check(status, "vkrt_plan_free");
  }

  /** Whether the ticket is done after at most `timeout` milliseconds; this thread sleeps meanwhile. */
  wait(ticket: number, timeout: number): boolean {
    return this.#done(this.#symbols.vkrt_wait(this.#handle, BigInt(ticket), timeout));
  }

  /** The same on another thread. */
  async waitAsync(ticket: number, timeout: number): Promise<boolean> {
    const symbols = this.#symbols;
    return this.#done(await symbols.wait_async(this.#handle, BigInt(ticket), timeout));
  }

  #done(status: number): boolean {
    if (status === VKRT_ERROR_TIMEOUT) return false;
    this.#check(status, "vkrt_wait");
    return true;
  }

  /** Switches timestamps. */
  profile(on: boolean): void {
    this.#check(this.#symbols.vkrt_profile(this.#handle, on ? 1 : 0), "vkrt_profile");
  }

  /** Nanoseconds of each of the `dispatches` of a Plan's last run; empty when it was not profiled. */
  profileRead(plan: number, dispatches: number): Float64Array {
    const out = new Float64Array(dispatches);
    const symbols = this.#symbols;
    this.#patiently(
      "vkrt_profile_read",
      () => symbols.vkrt_profile_read(this.#handle, plan, out, out.length, this.#out),
    );
    return out.subarray(0, this.#out[0]);
  }

  /** Barriers in the newest recording of a Plan. */
  planBarriers(plan: number): number {
    this.#check(this.#symbols.vkrt_plan_barriers(this.#handle, plan, this.#out), "vkrt_plan_barriers");
    return this.#out[0];
  }

  /**
   * The driver's statistics of the pipeline of a Plan's dispatch, which is compiled once more for this: "name<TAB>value" a line. Fails with
   * code "unavailable" if the device lacks "pipelineStatistics".
   */
  planStatistics(plan: number, dispatch: number): string {
    const bytes = new Uint8Array(INFO_BYTES);
    this.#check(
      this.#symbols.vkrt_plan_statistics(this.#handle, plan, dispatch, bytes, bytes.length),
      "vkrt_plan_statistics",
    );
    return text(bytes);
  }

  /**
   * Writes compiled pipelines to the cache folder if there are new ones, and waits for those that are being made. A failure to write is
   * reported once and throws nothing.
   */
  savePipelines(): void {
    this.#saved(this.#symbols.vkrt_pipelines_save(this.#handle));
  }

  /** The same on another thread. */
  async savePipelinesAsync(): Promise<void> {
    this.#saved(await this.#symbols.save_async(this.#handle));
  }

  #saved(status: number): void {
    const call = "vkrt_pipelines_save";
    if (status !== VKRT_ERROR_IO) this.#check(status, call);
    else tellNotKept(statusError(status, call, lastError(this.#library, this.#handle)).detail);
  }

  /** Saves pipelines as {@link savePipelines} does, waits for the device and frees everything it owns. A second call does nothing. */
  close(): void {
    if (this.#handle === 0) return;
    this.savePipelines();
    const symbols = this.#symbols;
    this.#patiently("vkrt_device_close", () => symbols.vkrt_device_close(this.#handle));
    this.#handle = 0;
  }

  /** The same as {@link close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** Native calls wait for the device a few seconds at most; they are repeated for as long as the device may take. */
  #patiently(call: string, run: () => number): void {
    const start = performance.now();
    let status = run();
    while (status === VKRT_ERROR_TIMEOUT && performance.now() - start < PATIENCE_MS) status = run();
    this.#check(status, call);
  }
}

/** Longest time that a device may take before a call gives up with code "timeout". */
export const PATIENCE_MS = 600_000;
