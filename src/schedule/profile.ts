/**
 * Time per kernel, collected over all Plans while profiling is on.
 *
 * @module
 */

import type { Backend, PlanHandle } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import type { KernelName } from "../backend/kernels.ts";

/** Calls of one kernel and the time they took on the device. */
export interface KernelTime {
  /** Name in shaders/kernels.zon. */
  readonly kernel: string;
  /** Dispatches. */
  readonly calls: number;
  /** Time on the device. */
  readonly nanoseconds: number;
}

class Profiler {
  #rows = new Map<KernelName, { calls: number; nanoseconds: number }>();
  #on = false;

  /** Switches profiling; earlier rows are dropped. The backend is slowed down while it is on. */
  enable(backend: Backend, on: boolean): void {
    this.#on = on;
    this.#rows.clear();
    backend.profile(on);
  }

  /** Adds the run of a Plan; waits for it. */
  record(backend: Backend, plan: PlanHandle, ticket: number, kernels: readonly KernelName[]): void {
    if (!this.#on) return;
    backend.wait(ticket);
    const times = backend.profileRead(plan);
    kernels.forEach((kernel, i) => {
      const row = this.#rows.get(kernel) ?? { calls: 0, nanoseconds: 0 };
      row.calls++;
      row.nanoseconds += times[i] ?? 0;
      this.#rows.set(kernel, row);
    });
  }

  /** Rows so far, the slowest kernel first. */
  rows(): readonly KernelTime[] {
    return [...this.#rows].map(([kernel, row]) => ({ kernel, ...row })).sort((a, b) => b.nanoseconds - a.nanoseconds);
  }
}

/** The profiler of this process. */
export const profiler: Profiler = new Profiler();

/**
 * Runs `fn` with every kernel timed on one device, the default one unless named. Gives the kernels with the slowest first.
 * Dispatches run one by one meanwhile, so the sum is more than an ordinary run takes.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const rows = await mx.profile(() => mx.eval(mx.exp(mx.ones([1000]))), "wasm");
 * rows.map(({ kernel, calls, nanoseconds }) => `${kernel}: ${calls} calls, ${nanoseconds} ns`);
 * ```
 */
export async function profile(fn: () => unknown, device?: string): Promise<readonly KernelTime[]> {
  const backend = getBackend(device);
  profiler.enable(backend, true);
  try {
    await fn();
    return profiler.rows();
  } finally {
    profiler.enable(backend, false);
  }
}
