/**
 * Time per kernel, collected over all Plans while profiling is on.
 *
 * @module
 */

import type { Backend, PlanHandle } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";

/** Calls of one kernel and the time they took on the device. */
export interface KernelTime {
  readonly kernel: KernelName;
  calls: number;
  nanoseconds: number;
}

class Profiler {
  #rows = new Map<KernelName, KernelTime>();
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
      const row = this.#rows.get(kernel) ?? { kernel, calls: 0, nanoseconds: 0 };
      row.calls++;
      row.nanoseconds += times[i] ?? 0;
      this.#rows.set(kernel, row);
    });
  }

  /** Rows so far, the slowest kernel first. */
  rows(): readonly KernelTime[] {
    return [...this.#rows.values()].sort((a, b) => b.nanoseconds - a.nanoseconds);
  }
}

/** The profiler of this process. */
export const profiler: Profiler = new Profiler();
