/**
 * The engine and the machine: Deno, WebAssembly, threads, memory.
 *
 * @module
 */

import { setTimeout } from "node:timers/promises";
import { RuntimeError } from "../../../ffi/error.ts";
import { VERSION } from "../../../ffi/version.ts";
import { instantiateWasm, type WasmRuntime } from "../../../ffi/wasm.ts";
import { describeBytes } from "../table.ts";
import { type Check, fail, ok, reasonOf, warn } from "./check.ts";

/** The oldest Deno that is tested. */
const MIN_DENO = [2, 9] as const;
/** A thread that is not there by then does not come. */
const THREAD_MS = 3000;
/** Less than this is not enough for any model but the smallest. */
const MIN_MEMORY = 2e9;

/** Checks the engine and the machine. */
export async function checkEngine(): Promise<Check[]> {
  return [ok("vkmx", VERSION), checkDeno(), ...await checkWasm(), checkMemory()];
}

function checkDeno(found: string = Deno.version.deno): Check {
  const [major, minor] = found.split(".").map(Number);
  const least = MIN_DENO.join(".");
  const old = major < MIN_DENO[0] || (major === MIN_DENO[0] && minor < MIN_DENO[1]);
  const text = `${found} on ${Deno.build.os} ${Deno.build.arch}`;
  return old ? fail("Deno", `${text}, which is older than ${least}`, "deno upgrade") : ok("Deno", text);
}

async function checkWasm(): Promise<Check[]> {
  const advice = "deno upgrade";
  let runtime: WasmRuntime;
  try {
    instantiateWasm();
    runtime = instantiateWasm(true);
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
    return [fail("WebAssembly", reasonOf(error), advice)];
  }
  const features = ok("WebAssembly", "SIMD and relaxed SIMD");
  if (!runtime.shared) {
    return [features, warn("threads", "no shared 64-bit memory: one thread and 4 GiB on the CPU", advice)];
  }
  try {
    runtime.startWorkers(1);
    for (const end = performance.now() + THREAD_MS; runtime.workers === 0 && performance.now() < end;) {
      await setTimeout(5);
    }
    const count = navigator.hardwareConcurrency;
    return [
      features,
      runtime.workers > 0
        ? ok("threads", `shared 64-bit memory, workers start; ${count} processors`)
        : warn("threads", "a worker did not start: the CPU computes with one thread", advice),
    ];
  } finally {
    runtime.stopWorkers();
  }
}

function checkMemory(): Check {
  const { available, total } = Deno.systemMemoryInfo();
  const text = `${describeBytes(available)} of ${describeBytes(total)} free`;
  return available < MIN_MEMORY
    ? warn("memory", text, "end other programs, or take a smaller model")
    : ok("memory", text);
}
