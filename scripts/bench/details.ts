/**
 * Where the time goes: every region, op and kernel by the device's timestamps, the bytes that it moves, and shares of what a copy reaches.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import type { Rates, TimedRun } from "./compare.ts";
import { productWork } from "./gpu/floors.ts";
import type { ModelShape } from "../synthetic/synthetic.ts";

/** Kernels that multiply all rows of a prompt. */
const PRODUCTS = /matmul|coopmat_(heads|gated)/;

/** Timed runs as text. */
export function describeRuns(runs: readonly TimedRun[], { copy }: Rates, shape: ModelShape): string {
  const lines = [`\na copy moves ${copy.toFixed(0)} GB/s`];
  for (const { name, tokens, profile } of runs) {
    const perToken = name.startsWith("token");
    const steps = perToken ? tokens : 1;
    lines.push(`\n${name}`);
    const kernels = profile.kernels.filter(({ op }) => op !== "layout");
    for (const keys of [["region"], ["region", "op", "kernel"]] as const) {
      lines.push(`  ${keys.join(", ").padEnd(64)}    calls         us      KB    GB/s  of copy`);
      for (const sum of mx.sumKernels(kernels, keys)) {
        const title = keys.map((key) => sum[key] ?? "op by op").join("  ");
        const rate = sum.bytes / sum.nanoseconds;
        lines.push([
          `  ${title.padEnd(64)}`,
          (sum.calls / steps).toFixed(1).padStart(8),
          (sum.nanoseconds / steps / 1000).toFixed(2).padStart(10),
          (sum.bytes / steps / 1000).toFixed(0).padStart(7),
          rate.toFixed(0).padStart(7),
          `${(100 * rate / copy).toFixed(1)} %`.padStart(8),
        ].join(" "));
      }
    }
    const products = kernels.filter(({ region, kernel }) => region !== "decoder step" && PRODUCTS.test(kernel));
    const time = products.reduce((sum, { nanoseconds }) => sum + nanoseconds, 0);
    if (!perToken && time > 0) {
      const rate = productWork(shape, tokens) / time / 1000;
      lines.push(`  products: ${(time / 1000).toFixed(1)} us, ${rate.toFixed(1)} TFLOP/s`);
    }
    lines.push(`  ${mx.describeProfile({ ...profile, kernels: [] }).split("\n").slice(-3).join("\n  ")}`);
  }
  return lines.join("\n") + "\n";
}
