/** A backend that says it has every kernel of a GPU with matrix units and runs none, and what Plans dispatch. */

import { assert, assertEquals } from "@std/assert";
import type { Backend, BackendLimits } from "../../../src/backend/backend.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import {
  bufferOf,
  type KernelName,
  type KernelRow,
  KERNELS,
  PLAN_DISPATCH_WORDS,
  PLAN_HEADER_WORDS,
  PLAN_NO_SLOT,
  PUSH,
  type PushField,
} from "../../../src/backend/kernels.ts";
import { matrixMap, PAIRS } from "../../../src/schedule/ops/matmul/coopmat.ts";

/** Kernels that only the CPU has: without them weights stay as they are. */
const OF_CPU = new Set(["pack_quantized", "packed_rows", "quantize_activations", "packed_matvec", "packed_matmul"]);

/** The facts of an H200 under NVIDIA's driver. */
export const H200_LIMITS: BackendLimits = {
  maxBufferBytes: 2 ** 32 - 1024,
  maxGrid: 65535,
  threads: 256,
  maxThreads: 1024,
  sharedBytes: 49152,
  barriers: true,
  concurrent: true,
  drops: false,
  float64: false,
  subgroup: 32,
  type: "discrete",
  vendorId: 0x10de,
  computeUnits: 132,
};

/** A dispatch of a Plan by the names of its kernel's row. */
export interface Dispatched {
  readonly kernel: KernelName;
  readonly spec: Readonly<Record<string, number>>;
  /** Names of the buffers that are there. */
  readonly buffers: ReadonlySet<string>;
  /** Rows of the table of columns. */
  readonly rows: number;
  /** Along x, y and z. */
  readonly workgroups: readonly number[];
}

const BY_ID = new Map(Object.entries(KERNELS).map(([name, row]) => [row.id as number, [name as KernelName, row]]));

/** Reads a Plan as runtime-c does: every count must be that of the kernel's row, and buffers that it needs must be there. */
export function dispatchesOf(words: Uint32Array): Dispatched[] {
  const found: Dispatched[] = [];
  let at = PLAN_HEADER_WORDS;
  while (at < words[3]) {
    const [kernel, row] = BY_ID.get(words[at] & 0xffff)! as [KernelName, KernelRow];
    const fields: readonly PushField[] = PUSH[row.push as keyof typeof PUSH];
    const push = fields.reduce((sum, field) => sum + field.count, 0);
    const counts = [words[at + 1] & 0xff, words[at + 1] >>> 8 & 0xff, words[at + 1] >>> 16];
    assertEquals(counts, [row.buffers.length, row.spec.length, push], `buffers, constants and push words of ${kernel}`);
    const workgroups = [...words.subarray(at + 2, at + PLAN_DISPATCH_WORDS)];
    at += PLAN_DISPATCH_WORDS;
    const buffers = new Set<string>();
    for (const buffer of row.buffers) {
      const { name, optional } = bufferOf(buffer);
      if (words[at] !== PLAN_NO_SLOT) buffers.add(name);
      else assert(optional, `${kernel} has no ${name}`);
      at += 2;
    }
    const spec = Object.fromEntries(row.spec.map((name, i) => [name, words[at + i]]));
    at += row.spec.length + push;
    const rows = row.columns.length > 0 ? words[at++] : 0;
    at += 2 * rows * row.columns.length;
    found.push({ kernel, spec, buffers, rows, workgroups });
  }
  assertEquals([at, found.length], [words[3], words[2]], "words and dispatches of a Plan");
  return found;
}

/** Answers to coopmat_map and coopmat_map_narrow as NVIDIA's drivers give them: 32 lanes with 8 elements of each matrix, and where those lie. */
function answerMap(out: Uint8Array): void {
  const places = Array.from(PAIRS, (word) => (word & 15) * 16 + (word >> 4));
  const map = Uint32Array.from([32, 8, 8, 8, ...places, ...PAIRS, ...places]);
  // The second one's B and sums have 4 elements a lane.
  const halves = (word: (at: number, i: number) => number): number[] =>
    Array.from({ length: PAIRS.length / 2 }, (_, at) => word(8 * (at >> 2), at & 3));
  const narrowB = halves((at, i) => (PAIRS[at + i] >> 4) * 8 + (PAIRS[at + i] & 15));
  const narrowSum = halves((at, i) => (PAIRS[at + 2 * (i & 2)] & 15) * 8 + (PAIRS[at + (i & 1)] >> 4));
  const narrow = Uint32Array.from([32, 8, 4, 4, ...places, ...narrowB, ...narrowSum]);
  const words = out.length === narrow.byteLength ? narrow : map;
  out.set(new Uint8Array(words.buffer).subarray(0, out.length));
}

/**
 * A device that runs nothing, of its own: with an H200's limits, but for those given, and all kernels but those that are missing. A
 * profile says that each dispatch took as many microseconds as `timeOf` gives.
 */
export function unrunBackend(
  limits: Partial<BackendLimits> = {},
  isMissing: (kernel: KernelName) => boolean = () => false,
  timeOf: (dispatch: Dispatched) => number = () => 1,
): Backend {
  let handles = 0;
  const plans = new Map<number, Uint32Array>();
  const never = (): void => {};
  const backend: Partial<Backend> = {
    name: "unrun",
    description: "a device that runs nothing",
    limits: { ...H200_LIMITS, ...limits },
    has: (kernel) => !OF_CPU.has(kernel) && !isMissing(kernel),
    alloc: () => ++handles,
    free: never,
    write: never,
    read: (_buffer, _offset, out) => answerMap(out),
    compile: (words) => {
      plans.set(++handles, words);
      return handles;
    },
    run: () => 0,
    release: (plan) => void plans.delete(plan),
    profile: never,
    profileRead: (plan) => Float64Array.from(dispatchesOf(plans.get(plan)!), (d) => 1000 * timeOf(d)),
    wait: never,
    synchronize: never,
    memory: () => ({
      active: 0,
      peak: 0,
      cached: 0,
      cacheLimit: 0,
      total: 2 ** 37,
      available: 2 ** 37,
      hostActive: 0,
      hostAvailable: 0,
      hostTotal: 0,
    }),
  };
  return backend as Backend;
}

/** Makes the CPU's backend one that has all kernels of a GPU and runs nothing; ended with all devices. Plans go to `compiled`. */
export function withoutRunning(maxThreads: number, compiled: (words: Uint32Array) => void): void {
  const backend = getBackend("wasm");
  let plans = 0;
  Object.assign(backend, {
    has: (kernel: string) => !OF_CPU.has(kernel),
    limits: { ...backend.limits, maxThreads, sharedBytes: H200_LIMITS.sharedBytes, subgroup: 32 },
    compile: (words: Uint32Array) => {
      compiled(words);
      return ++plans;
    },
    run: () => 0,
    release: () => {},
    barriers: () => 0,
    read: (_: number, __: number, out: Uint8Array) => answerMap(out),
  });
  assertEquals(matrixMap(backend), { plain: true, weights: PAIRS, attention: true, pairs: true });
}
