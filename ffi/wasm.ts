/**
 * The WASM executor as an object: instantiates the committed module, types its exports, keeps views of linear memory.
 *
 * There are two modules of the same kernels. One has its own memory, of 4 GiB at most. The other works on shared memory of up to 16 GiB,
 * together with workers that each instantiate it again. Memory grows, so views of it are made anew for each use.
 *
 * @module
 */

import { RuntimeError } from "./error.ts";
import process from "node:process";
import { WASM_BASE64 } from "./wasm_module.ts";
import { WASM_THREADS_BASE64 } from "./wasm_threads_module.ts";

/** Exports of runtime-c/wasm (main.c, memory.c). */
interface WasmExports {
  readonly memory: WebAssembly.Memory;
  vk_abi(): number;
  vk_probe(): number;
  vk_products(quads: number): void;
  vk_alloc(bytes: number, kind: number): number;
  vk_free(address: number): number;
  vk_memory(figure: number): number;
  vk_memory_reset_peak(): void;
  vk_plan_check(words: number, count: number): number;
  vk_plan_run(words: number, run: number, last: number, budget: number): number;
}

/** The further exports of the module for several threads. */
interface WasmThreads extends WasmExports {
  vk_worker(stack: number): void;
  vk_pool_workers(): number;
  vk_pool_stop(): void;
}

/** Words before the slot addresses of a run, which are f64: struct Run of main.c. */
export const RUN_WORDS = 4;

/** Stack of a worker. */
const STACK_BYTES = 1 << 20;
/** Most shared memory, in pages of 64 KiB: 16 GiB. */
const MAX_PAGES = 1n << 18n;

/** Memory and module that workers share with the thread that drives them. */
interface Shared {
  readonly exports: WasmThreads;
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
}

/** The purpose of a block of linear memory: buffers count in the memory figures, internal blocks do not. */
const WASM_MEMORY = { buffer: 0, internal: 1 } as const;

const FIGURES = { active: 0, peak: 1, limit: 2 } as const;

// Texts of the codes in runtime-c/wasm/main.c.
const PLAN_STATUSES = 8;
const PLAN_PROBLEMS: readonly string[] = [
  "",
  "its header does not fit",
  "its words end early or are left over",
  "a kernel is not in this module",
  "a flag is unknown",
  "the counts differ from the kernel table",
  "a slot is out of range or missing",
];

/** The instantiated module. */
export class WasmRuntime {
  readonly #exports: WasmExports;
  readonly #memory: WebAssembly.Memory;
  readonly #shared: Shared | undefined;
  #bytes: Uint8Array<ArrayBuffer>;
  #words: Uint32Array<ArrayBuffer>;
  #doubles: Float64Array<ArrayBuffer>;

  constructor(exports: WasmExports, shared?: Shared) {
    this.#exports = exports;
    this.#shared = shared;
    this.#memory = shared?.memory ?? exports.memory;
    const buffer = this.#memory.buffer as ArrayBuffer;
    this.#bytes = new Uint8Array(buffer);
    this.#words = new Uint32Array(buffer);
    this.#doubles = new Float64Array(buffer);
  }

  /** Whether {@link startWorkers} gives more threads. */
  get shared(): boolean {
    return this.#shared !== undefined;
  }

  /** Workers that have come up. */
  get workers(): number {
    return this.#shared ? this.#shared.exports.vk_pool_workers() : 0;
  }

  /**
   * Starts `count` workers that take part in every later run as soon as each is up. They keep no process alive. Where the
   * engine refuses them, the calling thread goes on alone.
   */
  startWorkers(count: number): void {
    if (!this.#shared) return;
    const { module, memory } = this.#shared;
    for (let i = 0; i < count; i++) {
      const stack = this.alloc(STACK_BYTES, "internal");
      if (stack === 0 || !startWorker({ kernels: module, memory, stack: stack + STACK_BYTES })) return;
    }
  }

  /** Lets the workers end. */
  stopWorkers(): void {
    this.#shared?.exports.vk_pool_stop();
  }

  /** Hash of the tables that the module was built from. */
  get abi(): number {
    return this.#exports.vk_abi() >>> 0;
  }

  /** Linear memory as it is now; do not keep it over a call that may allocate. */
  get bytes(): Uint8Array<ArrayBuffer> {
    this.#view();
    return this.#bytes;
  }

  /** Linear memory in words of 32 bits. As {@link bytes}. */
  get words(): Uint32Array<ArrayBuffer> {
    this.#view();
    return this.#words;
  }

  /** Linear memory as float64. As {@link bytes}. */
  get doubles(): Float64Array<ArrayBuffer> {
    this.#view();
    return this.#doubles;
  }

  /** Makes the views anew where memory has grown. */
  #view(): void {
    const buffer = this.#memory.buffer as ArrayBuffer;
    if (this.#bytes.byteLength === buffer.byteLength) return;
    this.#bytes = new Uint8Array(buffer);
    this.#words = new Uint32Array(buffer);
    this.#doubles = new Float64Array(buffer);
  }

  /** Address of a block aligned to 64 bytes, or 0 when memory cannot grow enough. */
  alloc(bytes: number, kind: keyof typeof WASM_MEMORY): number {
    return this.#exports.vk_alloc(bytes, WASM_MEMORY[kind]);
  }

  /** Frees a block that {@link alloc} gave. */
  free(address: number): void {
    if (this.#exports.vk_free(address) !== 0) {
      throw new RuntimeError("handle", "free", `${address} is not the address of a live block of WASM memory`);
    }
  }

  /** A memory figure in bytes. */
  memory(figure: keyof typeof FIGURES): number {
    return this.#exports.vk_memory(FIGURES[figure]);
  }

  resetPeakMemory(): void {
    this.#exports.vk_memory_reset_peak();
  }

  /** Checks the Plan of `count` words at an address; throws a RuntimeError with code "plan" that says what is wrong. */
  checkPlan(words: number, count: number): void {
    const status = -this.#exports.vk_plan_check(words, count);
    if (status === 0) return;
    const what = PLAN_PROBLEMS[status % PLAN_STATUSES] ?? "it is malformed";
    throw new RuntimeError(
      "plan",
      "compile",
      `Plan refused at dispatch ${Math.floor(status / PLAN_STATUSES)}: ${what}`,
    );
  }

  /**
   * Runs a checked Plan up to dispatch `last` - 1, or until about `budget` chunks of work are done; returns the next
   * dispatch. At `run` lie the {@link RUN_WORDS} words that say where to go on, 0 in the beginning, and then the addresses
   * of the slots.
   */
  runPlan(words: number, run: number, last: number, budget: number): number {
    return this.#exports.vk_plan_run(words, run, last, budget) >>> 0;
  }

  /** Reads a file range straight into linear memory. Throws a RuntimeError with code "io". */
  readFile(address: number, path: string, fileOffset: number, bytes: number): void {
    let file: Deno.FsFile;
    try {
      file = Deno.openSync(path, { read: true });
    } catch (cause) {
      throw new RuntimeError(
        "io",
        "load",
        `cannot open ${path}: ${(cause as Error).message.replace(/: \w+ '.*'$/, "")}`,
        { cause },
      );
    }
    using _ = file;
    file.seekSync(fileOffset, Deno.SeekMode.Start);
    const target = this.bytes.subarray(address, address + bytes);
    for (let done = 0; done < bytes;) {
      const got = file.readSync(target.subarray(done, Math.min(bytes, done + READ_BYTES)));
      if (got === null) {
        throw new RuntimeError(
          "io",
          "load",
          `${path} ends at byte ${fileOffset + done}, ${bytes - done} short of what was asked for`,
        );
      }
      done += got;
    }
  }
}

const READ_BYTES = 64 << 20; // one read call
const INITIAL_PAGES = 32n; // enough for the module's data and stack, and a little more

const compiled: { alone?: WebAssembly.Module; threads?: WebAssembly.Module } = {};

/** A module, compiled at its first use. */
function compile(name: keyof typeof compiled): WebAssembly.Module {
  let module = compiled[name];
  if (!module) {
    for (const [feature, body] of FEATURES) {
      if (!WebAssembly.validate(featureModule(body))) {
        throw new RuntimeError(
          "unavailable",
          "instantiateWasm",
          `this engine's WebAssembly lacks ${feature}; use Deno 2.9 or later`,
        );
      }
    }
    const base64 = name === "threads" ? WASM_THREADS_BASE64 : WASM_BASE64;
    module = compiled[name] = new WebAssembly.Module(Uint8Array.fromBase64(base64));
  }
  return module;
}

/**
 * Instantiates the kernels with their own memory; with `shared` it serves several threads, if the engine can. `quads` is how packed
 * products add up (runtime-c/wasm/quantized/packed.h); the default suits the processor, and results are the same. Throws a RuntimeError
 * with code "unavailable" on an engine without WebAssembly SIMD or relaxed SIMD.
 */
export function instantiateWasm(shared = false, quads?: boolean): WasmRuntime {
  const threads = shared ? instantiateShared() : undefined;
  const exports = threads?.exports ?? new WebAssembly.Instance(compile("alone")).exports as unknown as WasmExports;
  const probed = exports.vk_probe();
  if (probed === 0) {
    throw new RuntimeError(
      "unavailable",
      "instantiateWasm",
      "this engine computes WebAssembly relaxed SIMD wrongly; use Deno 2.9 or later",
    );
  }
  exports.vk_products(quads ?? probed === 2 ? 1 : 0);
  return new WasmRuntime(exports, threads);
}

/** The module for several threads; undefined if the engine has no shared memory or no addresses of 64 bits. */
function instantiateShared(): Shared | undefined {
  try {
    const module = compile("threads");
    const size = { initial: INITIAL_PAGES, maximum: MAX_PAGES, shared: true, address: "i64" };
    const memory = new WebAssembly.Memory(size as unknown as WebAssembly.MemoryDescriptor); // the type knows 32 bits only
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    return { exports: exports as unknown as WasmThreads, module, memory };
  } catch (error) {
    if (error instanceof RuntimeError) throw error;
    return undefined;
  }
}

// A worker's program: an instance on the same memory that serves the pool until it is stopped.
const WORKER = `
  const { kernels, memory, stack } = require("node:worker_threads").workerData;
  new WebAssembly.Instance(kernels, { env: { memory } }).exports.vk_worker(stack);
`;

/** Node's workers, because those may be left out of what keeps the process alive. */
function startWorker(data: { kernels: WebAssembly.Module; memory: WebAssembly.Memory; stack: number }): boolean {
  try {
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    new Worker(WORKER, { eval: true, workerData: data }).unref();
    return true;
  } catch {
    return false;
  }
}

// Instructions that leave one v128 on the stack: i8x16.splat of 1, then the tested one.
const SPLAT = [0x41, 1, 0xfd, 0x0f];
const FEATURES: readonly [string, readonly number[]][] = [
  ["SIMD (simd128)", [...SPLAT, 0xfd, 0x62]], // i8x16.popcnt
  ["relaxed SIMD", [...SPLAT, ...SPLAT, ...SPLAT, 0xfd, 0x93, 0x02]], // i32x4.relaxed_dot_i8x16_i7x16_add_s
];

// A module with one function () -> v128.
function featureModule(instructions: readonly number[]): Uint8Array<ArrayBuffer> {
  const code = [0, ...instructions, 0x0b]; // no locals, end
  return new Uint8Array([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0], // magic and version
    ...[1, 5, 1, 0x60, 0, 1, 0x7b], // type section
    ...[3, 2, 1, 0], // function section
    ...[10, code.length + 2, 1, code.length, ...code], // code section
  ]);
}
