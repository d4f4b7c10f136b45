/**
 * The devices of this machine: the list, the default, and the open ones by name.
 *
 * Importing this opens nothing. The default is the best GPU, else WASM with one line that says why; software Vulkan drivers
 * run only when they are named. A device chosen by name, in a call or by VKMX_DEVICE, is used or refused, never replaced.
 *
 * `cpu` is another name of `wasm`, and `gpu` of the best GPU, which is refused if there is none.
 *
 * The name of a Vulkan device may end with features to do without: `vulkan:0-coopmat-maxThreads=128` has no cooperative matrices and
 * workgroups of at most 128 threads. It is the same device otherwise. Tests run the paths of lesser devices that way, and a feature
 * that a driver gets wrong can be switched off. `wasm-threads=2` is the CPU with two threads, and memory beside that of `wasm`.
 *
 * @module
 */

import { driverAdvice } from "../../ffi/driver_advice.ts";
import { environment } from "../../ffi/environment.ts";
import { onExit } from "../../ffi/exit.ts";
import { RuntimeError } from "../../ffi/error.ts";
import { provideLibrary } from "../../ffi/library.ts";
import { untilInterrupted } from "../../ffi/notebook.ts";
import { isFirstTime } from "../../ffi/told_once.ts";
import {
  driverFailures,
  listVulkanDevices,
  prepareVulkan,
  type VulkanDeviceInfo,
  vulkanDeviceInfo,
} from "../../ffi/vulkan.ts";
import { quoted } from "../graph/error.ts";
import type { Backend } from "./backend.ts";
import { explain } from "./explain.ts";
import { createVulkanBackend, describeVulkan, openVulkanAhead } from "./vulkan.ts";
import { createWasmBackend } from "./wasm.ts";

export { environment };
export { RuntimeError, type RuntimeErrorCode } from "../../ffi/error.ts";
export { recall, remember } from "../../ffi/device_probe_cache.ts";
export { onExit };

/** A device of this machine, usable or not. */
export interface DeviceInfo {
  /** The name that selects it: "vulkan:0", "wasm". */
  readonly name: string;
  /** Device, driver and version. */
  readonly description: string;
  /** Kind of device; "cpu" is a software Vulkan driver, "none" stands for Vulkan that is not there. */
  readonly type: "discrete" | "integrated" | "virtual" | "cpu" | "other" | "wasm" | "none";
  /** Whether it can be opened. */
  readonly usable: boolean;
  /** Why it is not usable, or why it is taken only by name. */
  readonly reason?: string;
  /** Kernels that it has to do without, so that others take their work. */
  readonly missing?: readonly MissingKernels[];
  /** Optional features that it has, as names of masked devices leave them out. */
  readonly features?: readonly string[];
}

/** Kernels that a device lacks for one reason. */
export interface MissingKernels {
  /** A feature that the device lacks. */
  readonly reason: string;
  /** Their names. */
  readonly kernels: readonly string[];
}

interface DeviceRow extends DeviceInfo {
  readonly open?: () => Backend;
  /** The same on another thread. */
  readonly openAhead?: () => Promise<Backend | undefined>;
  /** Order of the default choice; 0: only by name. */
  readonly rank: number;
}

/** Kinds of GPU from the best. */
const RANKS: Readonly<Record<VulkanDeviceInfo["type"], number>> = {
  discrete: 4,
  integrated: 3,
  virtual: 2,
  other: 0,
  cpu: 0,
};

const ONLY_BY_NAME = "a software driver: used only when named";

let rows: readonly DeviceRow[] | undefined;
let chosen: string | undefined;
let toldFallback = false;
let saves: Disposable | undefined;
const opened = new Map<string, Backend>();

function missingOf(info: VulkanDeviceInfo): MissingKernels[] {
  const groups = Object.entries(Object.groupBy(Object.entries(info.missingKernels), ([, reason]) => reason));
  return groups.map(([reason, list]) => ({ reason, kernels: list!.map(([kernel]) => kernel) }));
}

function vulkanRow(info: VulkanDeviceInfo, index: number, mask: string = ""): DeviceRow {
  const name = `vulkan:${index}${mask && `-${mask.replaceAll(",", "-")}`}`;
  const rank = RANKS[info.type];
  const base = { name, description: describeVulkan(info, mask), type: info.type };
  if (info.unusable) return { ...base, usable: false, reason: info.unusable, rank: 0 };
  const more = { missing: missingOf(info), features: info.features };
  const open = (): Backend => createVulkanBackend(name, index, info, mask);
  const openAhead = mask ? undefined : (): Promise<Backend | undefined> => openVulkanAhead(name, index, info);
  const row = { ...base, ...more, usable: true, rank, open, openAhead };
  return rank > 0 ? row : { ...row, reason: ONLY_BY_NAME };
}

function vulkanRows(): DeviceRow[] {
  const none = (reason: string): DeviceRow => {
    return { name: "vulkan:0", description: "Vulkan", type: "none", usable: false, reason, rank: 0 };
  };
  try {
    const list = listVulkanDevices().map((info, index) => vulkanRow(info, index));
    if (list.length > 0) return list;
    return [none(brokenDrivers().join("; ") || "Vulkan shows no device; install the driver of the GPU")];
  } catch (error) {
    if (error instanceof RuntimeError) return [none([error.detail, ...brokenDrivers()].join("; "))];
    throw error;
  }
}

/** Drivers that are installed and cannot be loaded, with the reason and what to do: Vulkan shows the others only. */
export function brokenDrivers(): string[] {
  try {
    return driverFailures().map((failure) => {
      const { manifest, library, reason } = failure;
      const driver = `the Vulkan driver ${quoted(library)} (${quoted(manifest)})`;
      return `${driver} cannot be loaded: ${quoted(reason)}; ${driverAdvice(failure)}`;
    });
  } catch (error) {
    if (error instanceof RuntimeError) return []; // there is no library, and its notice is already printed
    throw error;
  }
}

const WASM: DeviceRow & { readonly open: () => Backend } = {
  name: "wasm",
  description: "CPU (WebAssembly)",
  type: "wasm",
  usable: true,
  rank: 1,
  open: createWasmBackend,
};

function table(): readonly DeviceRow[] {
  return rows ??= [...vulkanRows(), WASM];
}

/**
 * All devices of this machine, with the reason if one is not usable.
 *
 * @example
 * ```ts
 * import { devices } from "./devices.ts";
 * for (const d of devices()) console.log(d.name, d.description, d.reason ?? "");
 * ```
 */
export function devices(): DeviceInfo[] {
  return table().map(infoOf);
}

function infoOf({ open: _open, openAhead: _openAhead, rank: _rank, ...info }: DeviceRow): DeviceInfo {
  return info;
}

/**
 * One device by name, which may have a mask of features. Throws a RuntimeError with code "device" or "unavailable" as opening it
 * would.
 *
 * @example
 * ```ts
 * import { deviceInfo } from "./devices.ts";
 * deviceInfo("wasm").description;
 * ```
 */
export function deviceInfo(name: string): DeviceInfo {
  return infoOf(deviceRow(name, "deviceInfo"));
}

/** The name of a device by one of its names; throws a RuntimeError if there is no GPU. */
function resolve(name: string, call: string): string {
  if (name === "cpu") return WASM.name;
  if (name !== "gpu") return name;
  const gpu = named() === name ? best().name : gpus()[0]?.name;
  if (gpu === undefined || gpu === WASM.name) {
    throw new RuntimeError("unavailable", call, `there is no GPU that vkmx can use: ${fallbackReason()}`);
  }
  return gpu;
}

/** The row of a name; throws a RuntimeError that lists the devices of this machine. */
function deviceRow(given: string, call: string): DeviceRow & { readonly open: () => Backend } {
  const name = resolve(given, call);
  if (name === WASM.name) return WASM; // asking for it opens no library
  const cpu = cpuRow(name);
  if (cpu) return cpu;
  const row = maskedRow(name, call) ?? table().find((r) => r.name === name);
  if (row?.open) return { ...row, open: row.open };
  const usable = table().filter((r) => r.usable).map((r) => `${r.name} (${r.description})`).join(", ");
  const from = chosen === undefined && name === environment("VKMX_DEVICE") ? " (VKMX_DEVICE)" : "";
  if (!row) throw new RuntimeError("device", call, `there is no device ${quoted(name)}${from}; there are ${usable}`);
  throw new RuntimeError("unavailable", call, `${name} is not usable: ${row.reason}; there are ${usable}`);
}

/** The row of a name like "wasm-threads=2", undefined for other names. */
function cpuRow(name: string): DeviceRow & { readonly open: () => Backend } | undefined {
  const [, count] = /^wasm-threads=([1-9]\d{0,2})$/.exec(name) ?? [];
  if (count === undefined) return undefined;
  const description = `${WASM.description} with ${count} ${count === "1" ? "thread" : "threads"}`;
  return { ...WASM, name, description, rank: 0, open: () => createWasmBackend(Number(count), undefined, name) };
}

/** The row of a name like "vulkan:0-coopmat-subgroup=8", undefined for other names. */
function maskedRow(name: string, call: string): DeviceRow | undefined {
  const [, index, mask] = /^vulkan:(\d+)-(.+)$/.exec(name) ?? [];
  if (mask === undefined || !table().some((r) => r.name === `vulkan:${index}` && r.usable)) return undefined;
  const words = mask.replaceAll("-", ",");
  try {
    return vulkanRow(vulkanDeviceInfo(Number(index), words), Number(index), words);
  } catch (error) {
    if (error instanceof RuntimeError) throw new RuntimeError("device", call, error.detail);
    throw error;
  }
}

/** The name that was chosen by {@link setDefaultDevice} or VKMX_DEVICE. */
function named(): string | undefined {
  return chosen ?? environment("VKMX_DEVICE");
}

/** Variables by which `mpirun` tells a process its number on this machine. */
const LOCAL_RANKS = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];

/** The best device by rank; of equal ones the first, or in turn where `mpirun` started several processes on this machine. */
function best(): DeviceRow {
  const top = Math.max(...table().map(({ rank }) => rank));
  const equal = table().filter(({ rank }) => rank === top);
  const local = LOCAL_RANKS.map(environment).find((value) => value !== undefined) ?? "0";
  return equal[(Number.parseInt(local) || 0) % equal.length];
}

/** Says why the CPU does the work: once in a process, and once on a machine for each reason. */
function tellFallback(reason: string): void {
  if (toldFallback) return;
  toldFallback = true;
  if (isFirstTime(reason)) console.error(`vkmx: running on the CPU (wasm): ${reason}`);
}

/** Leaves out the line that says why the CPU does the work. */
export function hushFallback(): void {
  toldFallback = true;
}

function fallbackReason(): string {
  const vulkan = table().filter((r) => r.type !== "wasm");
  const reasons = vulkan.map((r) => r.type === "none" ? r.reason : `${r.name} is ${r.reason}`);
  const broken = vulkan.some((r) => r.type === "none") ? [] : brokenDrivers(); // there they are the reason
  return [...broken, ...reasons].join("; ");
}

/** Name of the device that work goes to when none is given. */
export function defaultDevice(): string {
  const name = named();
  return name === undefined ? best().name : resolve(name, "defaultDevice");
}

/**
 * Chooses the device that work goes to from now on. Arrays stay where they are.
 *
 * Throws a RuntimeError with code "device" or "unavailable" when the device is not there or not usable.
 */
export function setDefaultDevice(name: string): void {
  chosen = deviceRow(name, "setDefaultDevice").name;
}

/** Runs `fn` with another default device; undefined keeps the default. It is the old one again when `fn` returns. */
export function withDevice<T>(name: string | undefined, fn: () => T): T {
  if (name === undefined) return fn();
  const { name: wanted } = deviceRow(name, "withDevice");
  const before = chosen;
  chosen = wanted;
  try {
    return fn();
  } finally {
    chosen = before;
  }
}

/** A device as {@link Device} and {@link Stream} of streams.ts name it: its kind, and its place among those of its kind. */
export interface DevicePlace {
  readonly type: "cpu" | "gpu";
  readonly index: number;
}

/** GPUs from the best on, as "gpu" counts them; software drivers do not count, unless the default device is one. */
function gpus(): DeviceRow[] {
  const chosenGpu = (row: DeviceRow): boolean => row.name === named();
  const usable = table().filter((row) => row.usable && row.type !== "wasm" && (row.rank > 0 || chosenGpu(row)));
  return usable.sort((a, b) => b.rank - a.rank);
}

/** How many devices there are of a kind. */
export function countDevices(type: "cpu" | "gpu"): number {
  return type === "cpu" ? 1 : gpus().length;
}

/** The name of the device at a place; throws a RuntimeError if there is none. */
export function deviceAt({ type, index }: DevicePlace, call: string): string {
  if (type === "cpu" && index === 0) return WASM.name;
  const row = type === "gpu" ? gpus()[index] : undefined;
  if (row) return row.name;
  if (type === "gpu" && index === 0) return resolve("gpu", call);
  throw new RuntimeError(
    "device",
    call,
    `there is no device ${type} ${index}; there are ${countDevices(type)} of that kind`,
  );
}

/** The place of a device, by one of its names; throws a RuntimeError if there is no such device. */
export function placeOfDevice(given: string, call: string): DevicePlace & { readonly name: string } {
  const { name } = deviceRow(given, call);
  if (name === WASM.name || cpuRow(name)) return { type: "cpu", index: 0, name };
  return { type: "gpu", index: Math.max(0, gpus().findIndex((row) => row.name === name)), name };
}

/** Sets the default device, or goes back to the automatic one; returns the previous one. */
export function exchangeDefault(name: string | undefined): string | undefined {
  const before = chosen;
  chosen = name;
  return before;
}

/** Limits of memory in bytes that hold for all devices, if they were set. */
export const limits: { cache: number | undefined; memory: number | undefined; wired: number } = {
  cache: undefined,
  memory: undefined,
  wired: 0,
};

/** Sets how many bytes of freed memory each device keeps for reuse, also those that are opened later. */
export function setCacheLimit(bytes: number): void {
  limits.cache = bytes;
  for (const backend of openBackends()) backend.setCacheLimit(bytes);
}

/** The devices in use. */
export function openBackends(): Backend[] {
  return [...opened.values()];
}

/** The device of a name, opened at its first use; without a name the default one. */
export function getBackend(name: string | undefined = named()): Backend {
  if (name !== undefined) return opened.get(name) ?? openNamed(name);
  const row = best();
  const there = opened.get(row.name);
  if (there) return there;
  if (row.type === "wasm") tellFallback(fallbackReason());
  try {
    return openRow(deviceRow(row.name, "getBackend"));
  } catch (error) {
    if (row.type === "wasm" || !(error instanceof RuntimeError)) throw error;
    tellFallback(`${row.name} did not open: ${error.detail}`);
    rows = table().map((r) => r === row ? { ...r, open: undefined, usable: false, reason: error.detail, rank: 0 } : r);
    return getBackend();
  }
}

/**
 * Opens a Vulkan device, the default one unless named, on another thread, so that other work goes on until it is used. Where that
 * cannot be done, nothing happens: its first use opens it, or tells why not. Loading a model does this by itself.
 * {@link prepareDevices} runs first.
 *
 * @example
 * ```ts
 * import { openAhead } from "./devices.ts";
 * const opening = openAhead(); // … something that takes time …
 * await opening;
 * ```
 */
export function openAhead(name: string | undefined = named()): Promise<void> {
  return untilInterrupted(openInBackground(name));
}

async function openInBackground(name: string | undefined): Promise<void> {
  const wanted = (row: DeviceRow | undefined): row is DeviceRow =>
    row?.openAhead !== undefined && !opened.has(row.name);
  if (name?.startsWith(WASM.name) || name === "cpu" || (name !== undefined && opened.has(name))) return;
  await provideVulkan(name);
  try {
    if (rows === undefined) await prepareVulkan();
    const row = name === undefined || name === "gpu" ? best() : table().find((r) => r.name === name);
    const backend = wanted(row) ? await row.openAhead!() : undefined;
    if (backend && wanted(row)) register(row, backend);
    else backend?.[Symbol.dispose](); // somebody could not wait
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
  }
}

function openNamed(name: string): Backend {
  const row = deviceRow(name, "getBackend");
  return opened.get(row.name) ?? openRow(row);
}

function openRow(row: DeviceRow & { readonly open: () => Backend }): Backend {
  return register(row, row.open());
}

function register(row: DeviceRow, backend: Backend): Backend {
  for (const { reason, kernels } of row.missing ?? []) {
    explain(`${row.name}: without ${kernels.join(", ")}, because ${reason}`);
  }
  // Programs end without closing.
  saves ??= onExit(() => openBackends().forEach((open) => open.save()));
  if (limits.cache !== undefined) backend.setCacheLimit(limits.cache);
  opened.set(row.name, backend);
  return backend;
}

/**
 * Closes every open device. Arrays on them are gone. A later call opens them anew, and the machine is looked at afresh; a
 * default that was chosen stays.
 */
export function closeDevices(): void {
  for (const [name, backend] of opened) {
    opened.delete(name);
    backend[Symbol.dispose]();
  }
  rows = undefined;
}

/**
 * Makes Vulkan ready if its library is missing, once on a machine: a package fetches it into the cache folder, a checkout builds it.
 * Without a GPU nothing happens, except for a named device such as "vulkan:0". Call it first in a program that computes without
 * loading a model; {@link openAhead} and loading a model do this by themselves. If it fails, work goes on with WASM, and one line on
 * stderr says why.
 */
export function prepareDevices(name: string | undefined = named()): Promise<void> {
  return untilInterrupted(provideVulkan(name));
}

async function provideVulkan(name: string | undefined): Promise<void> {
  if (name !== undefined && name !== "gpu" && !name.startsWith("vulkan")) return;
  if (!await provideLibrary(name?.startsWith("vulkan") ?? false)) return;
  rows = undefined;
  if (name === undefined && best().type === "wasm") tellFallback(fallbackReason());
}
