/**
 * The WASM executor as an object: instantiates the committed module, types its exports, keeps views of linear memory.
 *
 * The module has no imports; its memory grows, which detaches earlier views, so views are asked for at each use.
 *
 * @module
 */

import { RuntimeError } from "./error.ts";
import { WASM_BASE64 } from "./wasm_module.ts";

/** Exports of runtime-c/wasm (main.c, memory.c). */
interface WasmExports {
  readonly memory: WebAssembly.Memory;
  vk_abi(): number;
  vk_probe(): number;
  vk_alloc(bytes: number, kind: number): number;
  vk_free(address: number): number;
  vk_memory(figure: number): number;
  vk_memory_reset_peak(): void;
  vk_plan_check(words: number, count: number): number;
  vk_plan_run(words: number, slots: number, first: number, last: number): void;
}

/** What a block of linear memory is for: buffers count in the memory figures, internal blocks do not. */
export const WASM_MEMORY = { buffer: 0, internal: 1 } as const;

const FIGURES = { active: 0, peak: 1, limit: 2, available: 3 } as const;

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
  #bytes: Uint8Array<ArrayBuffer>;

  constructor(exports: WasmExports) {
    this.#exports = exports;
    this.#bytes = new Uint8Array(exports.memory.buffer as ArrayBuffer);
  }

  /** Hash of the tables that the module was built from. */
  get abi(): number {
    return this.#exports.vk_abi() >>> 0;
  }

  /** Linear memory as it is now; do not keep it over a call that may allocate. */
  get bytes(): Uint8Array<ArrayBuffer> {
    if (this.#bytes.byteLength === 0) this.#bytes = new Uint8Array(this.#exports.memory.buffer as ArrayBuffer);
    return this.#bytes;
  }

  /** Address of a block aligned to 64 bytes, or 0 when memory cannot grow enough. */
  alloc(bytes: number, kind: keyof typeof WASM_MEMORY): number {
    if (bytes > 0xffffffff) return 0;
    return this.#exports.vk_alloc(bytes, WASM_MEMORY[kind]) >>> 0;
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

  /** Runs dispatches first to last - 1 of a checked Plan; `slots` is the address of one u32 address a slot. */
  runPlan(words: number, slots: number, first: number, last: number): void {
    this.#exports.vk_plan_run(words, slots, first, last);
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

let compiled: WebAssembly.Module | undefined;

/**
 * Instantiates the module with a memory of its own. Throws a RuntimeError with code "unavailable" on an engine without
 * WebAssembly SIMD or relaxed SIMD.
 */
export function instantiateWasm(): WasmRuntime {
  if (!compiled) {
    for (const [feature, body] of FEATURES) {
      if (!WebAssembly.validate(featureModule(body))) {
        throw new RuntimeError(
          "unavailable",
          "instantiateWasm",
          `this engine's WebAssembly lacks ${feature}; use Deno 2.9 or later`,
        );
      }
    }
    compiled = new WebAssembly.Module(Uint8Array.from(atob(WASM_BASE64), (c) => c.charCodeAt(0)));
  }
  const exports = new WebAssembly.Instance(compiled).exports as unknown as WasmExports;
  if (exports.vk_probe() !== 1) {
    throw new RuntimeError(
      "unavailable",
      "instantiateWasm",
      "this engine computes WebAssembly relaxed SIMD wrongly; use Deno 2.9 or later",
    );
  }
  return new WasmRuntime(exports);
}

// Instructions that leave one v128 on the stack: i8x16.splat of 1, then what is asked for.
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
