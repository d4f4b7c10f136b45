/**
 * Losses of a training as a plot, also while it goes on in a notebook.
 *
 * @module
 */

import { line, type Plot } from "../../plot/mod.ts";
import { host } from "../host.ts";
import type { History } from "./checkpoint.ts";

/** Milliseconds between two plots of a training that goes on. */
const REDRAW_MS = 500;

/** Losses on a line through the iterations at which they are known; NaN outside of them. */
function along(known: History["train"], iterations: readonly number[]): number[] {
  return iterations.map((x) => {
    const next = known.findIndex(([at]) => at >= x);
    if (next < 0) return NaN;
    const [at, loss] = known[next];
    if (at === x) return loss;
    if (next === 0) return NaN;
    const [from, before] = known[next - 1];
    return before + (loss - before) * (x - from) / (at - from);
  });
}

/**
 * The losses of a training and of its validations by steps; undefined if there are none. It takes what `train` returns.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const plot = mx.lm.tuner.lossPlot({ train: [[10, 2.5], [20, 2.1]], valid: [[0, 3.2], [20, 2.3]] });
 * console.log(plot?.toString().startsWith("Loss")); // true
 * ```
 */
export function lossPlot({ train, valid }: History): Plot | undefined {
  const series = [["training", train], ["validation", valid]] as const;
  const shown = series.filter(([, losses]) => losses.length > 0);
  if (shown.length === 0) return undefined;
  const iterations = [...new Set(shown.flatMap(([, losses]) => losses.map(([at]) => at)))].sort((a, b) => a - b);
  return line(iterations, shown.map(([, losses]) => along(losses, iterations)), {
    title: "Loss",
    xlabel: "step",
    ylabel: "cross entropy of a token",
    labels: shown.map(([name]) => name),
  });
}

/** Callbacks of a training for {@link cellLossChart}. */
interface LossListener {
  onTrainLossReport(report: { readonly iteration: number; readonly trainLoss: number }): void;
  onValLossReport(report: { readonly iteration: number; readonly valLoss: number }): void;
  onStep(iteration: number, iters: number): void;
}

/** Plots the losses in the running cell while a training goes on; undefined outside of notebooks. */
export function cellLossChart(): LossListener | undefined {
  const output = host().output();
  if (output === undefined) return undefined;
  const history: History = { train: [], valid: [] };
  let [known, drawn, last] = [0, 0, -Infinity];
  return {
    onTrainLossReport: ({ iteration, trainLoss }) => void (known = history.train.push([iteration, trainLoss])),
    onValLossReport: ({ iteration, valLoss }) => void history.valid.push([iteration, valLoss]),
    onStep: (iteration, iters) => {
      const now = performance.now();
      if (known === drawn || (iteration < iters && now - last < REDRAW_MS)) return;
      [drawn, last] = [known, now];
      output.show(lossPlot(history)!.forms);
    },
  };
}
