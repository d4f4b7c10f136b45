/**
 * The machine code of what ran: a row for each pipeline, which is a kernel with its specialization constants.
 *
 * A multiprocessor caches only so much code (128 KB on an H200). If the kernels that take turns in the layers of a model are larger
 * together, each layer fetches all of them again (docs/performance-gpu.md).
 *
 * @module
 */

import type { Backend, PlanHandle } from "../../backend/backend.ts";
import type { KernelCode } from "../../backend/kernel_code.ts";
import { type KernelRow, KERNELS } from "../../backend/kernels.ts";
import { entryOf } from "../../graph/options.ts";

/** The machine code of a kernel with some specialization constants. */
export interface PipelineCode {
  /** Name of the device. */
  readonly device: string;
  /** Sequence of ops that was lowered as one, or undefined if ops ran one by one. */
  readonly region: string | undefined;
  /** Name in shaders/kernels.zon. */
  readonly kernel: string;
  /** The constants in which it differs from other pipelines of the same kernel here. */
  readonly constants: Readonly<Record<string, number>>;
  /** Dispatches. */
  readonly calls: number;
  /** Bytes of machine code; undefined if the driver does not tell, as the other figures. */
  readonly bytes: number | undefined;
  /** Registers of a thread. */
  readonly registers: number | undefined;
  /** Bytes of a thread's registers that lie in memory because there are not enough. */
  readonly spilledBytes: number | undefined;
}

/** The pipeline of a dispatch. */
interface Source {
  readonly kernel: string;
  readonly region: string | undefined;
  /** Its specialization constants, and maybe others. */
  readonly spec: Readonly<Record<string, number>>;
}

/** Pipelines of a stretch of work. */
export class PipelineCodes {
  readonly #rows = new Map<string, { -readonly [K in keyof PipelineCode]: PipelineCode[K] }>();
  /** By device, kernel and constants: a region may share a pipeline with another one. */
  readonly #codes = new Map<string, KernelCode | undefined>();

  /** Adds calls of dispatch `at` of a Plan. Its driver is asked once a pipeline, which it compiles for that. */
  add(backend: Backend, plan: PlanHandle, at: number, source: Source, calls: number): void {
    const { kernel, region } = source;
    const names = entryOf(KERNELS as Readonly<Record<string, KernelRow>>, kernel)?.spec ?? [];
    const constants = Object.fromEntries(names.map((name) => [name, source.spec[name]]));
    const pipeline = JSON.stringify([backend.name, kernel, constants]);
    if (!this.#codes.has(pipeline)) this.#codes.set(pipeline, backend.code(plan, at));
    const code = this.#codes.get(pipeline);
    if (code === undefined) return;
    const key = JSON.stringify([region, pipeline]);
    const row = this.#rows.get(key) ?? { device: backend.name, region, kernel, constants, calls: 0, ...code };
    row.calls += calls;
    this.#rows.set(key, row);
  }

  /** The pipelines, the largest first. */
  result(): readonly PipelineCode[] {
    const rows = [...this.#rows.values()];
    return rows
      .map((row) => {
        const others = rows.filter(({ kernel }) => kernel === row.kernel);
        const differs = ([name, value]: [string, number]): boolean =>
          others.some(({ constants }) => constants[name] !== value);
        return { ...row, constants: Object.fromEntries(Object.entries(row.constants).filter(differs)) };
      })
      .sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0));
  }
}

/** The name of a pipeline: its kernel, and the constants by which it differs from others. */
export function pipelineName({ kernel, constants }: Pick<PipelineCode, "kernel" | "constants">): string {
  return [kernel, ...Object.entries(constants).map(([name, value]) => `${name}=${value}`)].join(" ");
}

/** Pipelines as lines of text; none if there are none. */
export function describePipelines(pipelines: readonly PipelineCode[]): string[] {
  if (pipelines.length === 0) return [];
  const figure = (value: number | undefined, width: number): string => String(value ?? "-").padStart(width);
  return [
    `${"pipeline".padEnd(44)}   calls   code KB  registers  spilled bytes`,
    ...pipelines.map((row) => {
      const name = `${row.region ?? "op by op"}  ${pipelineName(row)}`;
      const kilobytes = row.bytes === undefined ? undefined : (row.bytes / 1024).toFixed(1);
      return `${name.padEnd(44)} ${String(row.calls).padStart(7)} ${(kilobytes ?? "-").padStart(9)} ` +
        `${figure(row.registers, 10)} ${figure(row.spilledBytes, 14)}`;
    }),
  ];
}
