/**
 * Where time goes: the device time of every dispatch by region, op and kernel, and the host time around them.
 *
 * One profiler sees all Plans. {@link profile} switches it on for a function, `VKMX_PROFILE=1` for the whole process; what it
 * found prints with {@link describeProfile}. Timing keeps dispatches apart; counting alone leaves everything as it runs.
 *
 * @module
 */

import type { Backend, PlanHandle } from "../../backend/backend.ts";
import { devices, environment, getBackend, onExit } from "../../backend/devices.ts";
import { bufferOf, type KernelRow, KERNELS } from "../../backend/kernels.ts";
import type { OpName } from "../../graph/node.ts";
import { entryOf } from "../../graph/options.ts";
import { sizeOf } from "../../graph/shape.ts";
import { onFallback, print } from "../../backend/explain.ts";
import { describePipelines, type PipelineCode, PipelineCodes } from "./profile_code.ts";
import type { Value } from "./value.ts";

/** Where a dispatch comes from. */
export interface DispatchSource {
  /** Of the table, or what stands for one that is made at run time. */
  readonly kernel: string;
  /** The op whose rule wrote it. */
  readonly op: OpName | "region" | "layout" | "output";
  /** The region that it belongs to, if any. */
  readonly region: string | undefined;
  /** Of untimed runs in a row, whether only the first one has it. */
  readonly preamble: boolean;
  /** Whether its writes do not overlap those of the one before it. */
  readonly disjoint: boolean;
  /** Specialization constants of a kernel of the table, and maybe others. */
  readonly spec: Readonly<Record<string, number>>;
  /** Its binding. */
  readonly values: readonly (Value | undefined)[];
}

/** Dispatches of one kernel for one op in one region. */
export interface KernelTime {
  /** Name of the device. */
  readonly device: string;
  /** Sequence of ops that was lowered as one, or undefined if ops ran one by one. */
  readonly region: string | undefined;
  /**
   * The op; "region" where several became one, "layout" for weights that are brought into another order, "output" for copies of
   * results to their places.
   */
  readonly op: string;
  /** Name in shaders/kernels.zon. */
  readonly kernel: string;
  /** Dispatches. */
  readonly calls: number;
  /** Time on the device; 0 when dispatches were only counted. */
  readonly nanoseconds: number;
  /** Bytes of the arrays that the dispatches read and write, each counted once a dispatch. */
  readonly bytes: number;
}

/** The cost of one part of the work. */
export interface Profile {
  /** The most time first. */
  readonly kernels: readonly KernelTime[];
  /** Machine code, if it was asked for and the device tells; the largest first. */
  readonly pipelines: readonly PipelineCode[];
  /** Plans handed to a device: a loop submits several steps at once. */
  readonly submissions: number;
  /** Runs of them in all. */
  readonly runs: number;
  /** Barriers between, before and after dispatches, as they run without timing. */
  readonly barriers: number;
  /** Host time in milliseconds. */
  readonly host: {
    /** Turning graphs into Plans, uploads of host values included. */
    readonly lowering: number;
    /** Checking Plans and creating pipelines. */
    readonly compiling: number;
    /** Handing Plans to the device; recording command buffers included. */
    readonly enqueuing: number;
    /** From the start to the end. */
    readonly total: number;
  };
  /** Names of CPU devices that ran something: WASM, or a software driver. */
  readonly onHost: readonly string[];
  /** Where lowering left its fast way, and why. */
  readonly fallbacks: readonly string[];
}

/** Parts of the host's time. */
type HostPhase = "lowering" | "compiling" | "enqueuing";

/** Buffers that kernels, by the beginning of their names, touch only a few rows of: no moved bytes. */
const FEW_ROWS: Readonly<Record<string, readonly string[]>> = {
  gather: ["in"],
  dequantize: ["codes", "scales", "biases"],
  decode_begin: ["codes", "scales", "biases"],
  decode_greedy: ["codes", "scales", "biases"],
  decode_draw: ["codes", "scales", "biases"],
  decode_qkv: ["keys", "values"],
  decode_layers: ["keys", "values"],
  batch_begin: ["codes", "scales", "biases"],
  batch_layers: ["keys", "values"],
};

/** Of kernels made at run time. */
const NO_ROW: Pick<KernelRow, "buffers" | "columns"> = { buffers: [], columns: [] };

/** Bytes of the distinct elements that a dispatch is bound to. */
function movedBytes({ kernel, values }: DispatchSource): number {
  const [, few] = Object.entries(FEW_ROWS).find(([name]) => kernel.startsWith(name)) ?? [];
  const { buffers, columns } = entryOf(KERNELS as Readonly<Record<string, KernelRow>>, kernel) ?? NO_ROW;
  const skipped = buffers.some((text, i) => bufferOf(text).name === "indices" && !values[i]) ? undefined : few; // then it takes all rows
  return values.reduce((sum, value, i) => {
    const text = buffers[i] ?? columns[(i - buffers.length) % columns.length];
    if (!value || (text && skipped?.includes(bufferOf(text).name))) return sum;
    return sum + sizeOf(value.shape.filter((_, d) => value.strides[d] !== 0)) * value.dtype.bytes;
  }, 0);
}

class Profiler {
  #rows = new Map<string, { -readonly [K in keyof KernelTime]: KernelTime[K] }>();
  #host = { lowering: 0, compiling: 0, enqueuing: 0 };
  #counts = { submissions: 0, runs: 0, barriers: 0 };
  #fallbacks = new Set<string>();
  /** Where the code of pipelines is asked for. */
  #codes: PipelineCodes | undefined;
  #started = 0;
  /** Devices whose dispatches are timed one by one. */
  #timed = new Set<Backend>();
  #on = false;

  /** Begins anew; with `code` pipelines are asked for theirs. */
  start(code: boolean = false): void {
    this.#rows.clear();
    this.#host = { lowering: 0, compiling: 0, enqueuing: 0 };
    this.#counts = { submissions: 0, runs: 0, barriers: 0 };
    this.#fallbacks.clear();
    this.#codes = code ? new PipelineCodes() : undefined;
    this.#started = performance.now();
    this.#on = true;
    onFallback((line) => this.#fallbacks.add(line));
  }

  /** Times the dispatches of a device from now on, one by one; once unless called again. */
  time(backend: Backend): void {
    if (this.#timed.has(backend)) return;
    backend.profile(true);
    this.#timed.add(backend);
  }

  /** Ends it; the measurements stay until the next start. */
  stop(): Profile {
    const found = this.result();
    this.#on = ALWAYS;
    if (!ALWAYS) onFallback(undefined);
    for (const backend of this.#timed) backend.profile(false);
    this.#timed.clear();
    return found;
  }

  /** Runs `work` and adds its time to a part of the host's. */
  host<T>(part: HostPhase, work: () => T): T {
    if (!this.#on) return work();
    const started = performance.now();
    try {
      return work();
    } finally {
      this.#host[part] += performance.now() - started;
    }
  }

  /** Adds `times` runs of a Plan in one submission; of timed ones, for which it waits, the last stands for all. */
  record(backend: Backend, plan: PlanHandle, ticket: number, sources: readonly DispatchSource[], times = 1): void {
    if (!this.#on) return;
    if (ALWAYS) this.time(backend); // from its second Plan on
    this.#counts.submissions++;
    this.#counts.runs += times;
    this.#counts.barriers += times * backend.barriers(plan);
    const timed = this.#timed.has(backend);
    if (timed) backend.wait(ticket);
    const nanoseconds = timed ? backend.profileRead(plan) : [];
    sources.forEach((source, i) => {
      const { kernel, op, region, preamble } = source;
      const key = `${backend.name} ${region} ${op} ${kernel}`;
      let row = this.#rows.get(key);
      if (!row) {
        row = { device: backend.name, region, op, kernel, calls: 0, nanoseconds: 0, bytes: 0 };
        this.#rows.set(key, row);
      }
      const calls = preamble && !timed ? 1 : times;
      row.calls += calls;
      row.nanoseconds += calls * (nanoseconds[i] ?? 0);
      row.bytes += calls * movedBytes(source);
      this.#codes?.add(backend, plan, i, source, calls);
    });
  }

  /** The measurements so far. */
  result(): Profile {
    const kernels = [...this.#rows.values()].sort((a, b) => b.nanoseconds - a.nanoseconds || b.calls - a.calls);
    // Devices are listed only if one was opened: listing loads the native library.
    const onCpu = (name: string): boolean => name === "wasm" || devices().find((d) => d.name === name)?.type === "cpu";
    return {
      kernels,
      pipelines: this.#codes?.result() ?? [],
      ...this.#counts,
      host: { ...this.#host, total: performance.now() - this.#started },
      onHost: [...new Set(kernels.map(({ device }) => device))].filter(onCpu),
      fallbacks: [...this.#fallbacks],
    };
  }
}

/** The profiler of this process. */
export const profiler: Profiler = new Profiler();

const ALWAYS = environment("VKMX_PROFILE") === "1";
if (ALWAYS) {
  profiler.start();
  onExit(() => print(describeProfile(profiler.result())));
}

/** Options of a profile. */
export interface ProfileOptions {
  /** Device whose dispatches are timed. Default: the default device. */
  readonly device?: string;
  /** False counts only, and leaves the work as fast as it is. Default true. */
  readonly timed?: boolean;
  /**
   * True asks the driver for the machine code of every pipeline, which it compiles once more for that. Default false. Devices without the
   * feature "pipelineStatistics" tell nothing.
   */
  readonly code?: boolean;
}

/**
 * Profiles `fn` and waits for it. Timed dispatches run one by one, so their sum is more than an ordinary run takes. Profiles do
 * not nest. Throws a RuntimeError with code "unavailable" where the device has no timestamps.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { kernels } = await mx.profile(() => mx.eval(mx.exp(mx.ones([1000]))), { device: "wasm" });
 * kernels.map(({ op, kernel, calls, nanoseconds }) => `${op}, ${kernel}: ${calls} calls, ${nanoseconds} ns`);
 * ```
 */
export async function profile(fn: () => unknown, options: ProfileOptions = {}): Promise<Profile> {
  profiler.start(options.code);
  try {
    if (options.timed ?? true) profiler.time(getBackend(options.device));
    await fn();
  } finally {
    profiler.stop();
  }
  return profiler.result();
}

/** Kernels whose rows agree in `keys`, added up. */
export function sumKernels(kernels: readonly KernelTime[], keys: readonly (keyof KernelTime)[]): readonly KernelTime[] {
  const sums = new Map<string, { -readonly [K in keyof KernelTime]: KernelTime[K] }>();
  for (const row of kernels) {
    const id = keys.map((key) => row[key]).join(" ");
    const sum = sums.get(id);
    if (sum) sum.calls += row.calls, sum.nanoseconds += row.nanoseconds, sum.bytes += row.bytes;
    else sums.set(id, { ...row });
  }
  return [...sums.values()].sort((a, b) => b.nanoseconds - a.nanoseconds || b.calls - a.calls);
}

/** A profile as lines of text: regions, ops, kernels, the host. */
export function describeProfile(found: Profile): string {
  const { kernels, pipelines, host, submissions, runs, barriers, onHost, fallbacks } = found;
  const all = kernels.reduce((sum, { nanoseconds }) => sum + nanoseconds, 0);
  const table = (title: string, keys: readonly (keyof KernelTime)[]): string[] => [
    `${title.padEnd(44)}   calls          ms   share       us    GB/s`,
    ...sumKernels(kernels, keys).map((row) => {
      const name = keys.map((key) => key === "region" ? row.region ?? "op by op" : row[key]).join("  ");
      const figures = [
        String(row.calls).padStart(7),
        (row.nanoseconds / 1e6).toFixed(3).padStart(11),
        `${(100 * row.nanoseconds / Math.max(all, 1)).toFixed(1)} %`.padStart(7),
        (row.nanoseconds / 1e3 / row.calls).toFixed(2).padStart(8),
        (row.bytes / Math.max(row.nanoseconds, 1)).toFixed(1).padStart(7),
      ];
      return `${name.padEnd(44)} ${figures.join(" ")}`;
    }),
  ];
  const ms = (value: number): string => `${value.toFixed(3)} ms`;
  return [
    ...table("region", ["device", "region"]),
    ...table("op", ["op"]),
    ...table("kernel", ["kernel"]),
    ...describePipelines(pipelines),
    `host: ${ms(host.lowering)} lowering, ${ms(host.compiling)} compiling, ${ms(host.enqueuing)} enqueuing ` +
    `${submissions} submissions of ${runs} runs with ${barriers} barriers; ${ms(host.total)} in all`,
    `ran on the CPU: ${onHost.join(", ") || "nothing"}`,
    `not on the fast way: ${fallbacks.join("; ") || "nothing"}`,
  ].join("\n");
}
