/**
 * How `deno task bench:train` measures: steps that are waited for, the sides in turns, the median of several samples.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { type Effort, figureOf } from "../ops/measure.ts";
import type { Reference } from "../reference.ts";
import type { Manner, Setup, TrainCase } from "./cases.ts";

/** The loss scale of float16 gradients. */
const LOSS_SCALE = 1024;

/** Figures of a row. */
export interface TrainRow {
  readonly case: string;
  readonly manner: Manner;
  readonly items: number;
  readonly unit: TrainCase["unit"];
  readonly flops: number;
  /** Milliseconds of a step. */
  readonly step: number;
  /** Milliseconds of a forward pass alone. */
  readonly forward: number;
  /** Bytes of device memory at most. */
  readonly peak: number;
  /** Kernels that a step runs. */
  readonly dispatches: number;
  /** Milliseconds of a step of MLX on the CPU, and its peak; null if it does not run. */
  readonly mlx: number | null;
  readonly mlxPeak: number | null;
}

/** A model that can be trained: each call is one step, or one forward pass, and is waited for. */
export interface Training extends Disposable {
  step(): number;
  forward(): number;
}

/** The loss as a function of a model's parameters that are cast to float16. */
function lossOf({ model, loss, half }: Setup): (parameters: mx.nn.ModuleTree, batch: mx.Tensor[]) => mx.Tensor {
  return (parameters, batch) => {
    const own = model.trainableParameters();
    const cast = (p: mx.AnyTensor): mx.AnyTensor => p.dtype === mx.float32 ? p.astype(mx.float16) : p;
    try {
      model.update(half ? mx.utils.treeMap(cast, parameters) : parameters);
      return loss(...batch);
    } finally {
      model.update(own);
    }
  };
}

/** Makes the functions of a setup. */
export function trainingOf(setup: Setup, { compiled = false }: Manner): Training {
  const { model, optimizer, batch, half } = setup;
  const loss = lossOf(setup);
  const scale = half ? LOSS_SCALE : 1;
  const gradient = mx.valueAndGrad((parameters: mx.nn.ModuleTree, batch: mx.Tensor[]) => {
    const value = loss(parameters, batch);
    return half ? mx.multiply(value, scale) : value;
  });
  optimizer.init(model.trainableParameters());
  const state = [model, optimizer.state];
  mx.eval(model.parameters(), optimizer.state, batch);
  const step = (...batch: mx.Tensor[]): mx.Tensor => {
    const [value, found] = gradient(model.trainableParameters(), batch);
    optimizer.update(model, half ? mx.utils.treeMap((g: mx.AnyTensor) => mx.divide(g, scale), found) : found);
    return value;
  };
  const forward = (...batch: mx.Tensor[]): mx.Tensor => loss(model.trainableParameters(), batch);
  if (compiled) {
    const [compiledStep, compiledForward] = [mx.compile(step, state, state), mx.compile(forward, state)];
    return {
      step: () => mx.tidy(() => Number(compiledStep(...batch).item())),
      forward: () => mx.tidy(() => Number(compiledForward(...batch).item())),
      [Symbol.dispose]() {
        compiledStep[Symbol.dispose]();
        compiledForward[Symbol.dispose]();
      },
    };
  }
  return {
    step: () =>
      mx.tidy(() => {
        const value = step(...batch);
        mx.eval(value, model.trainableParameters(), optimizer.state);
        return Number(value.item());
      }),
    forward: () => mx.tidy(() => Number(forward(...batch).item())),
    [Symbol.dispose]() {},
  };
}

/** Milliseconds of one call, averaged over at least so many; throws where the loss is no number. */
function timeCalls(call: () => number, ms: number): number {
  const start = performance.now();
  for (let count = 1;; count++) {
    const loss = call();
    if (!Number.isFinite(loss)) throw new Error(`the loss became ${loss}`);
    const taken = performance.now() - start;
    if (taken >= ms) return taken / count;
  }
}

/** Where the time of a step goes, as text. */
export async function profileTraining(c: TrainCase, manner: Manner): Promise<string> {
  const setup = await c.make(manner);
  using training = trainingOf(setup, manner);
  try {
    for (let i = 0; i < 3; i++) training.step(); // warm
    return mx.describeProfile(await mx.profile(() => void training.step()));
  } finally {
    release(setup);
  }
}

function release({ batch, model, optimizer }: Setup): void {
  mx.dispose([batch, model.parameters(), optimizer.state]);
}

/** Measures a row on the default device, beside it the reference if there is one. */
export async function measureTraining(
  c: TrainCase,
  manner: Manner,
  effort: Effort,
  reference?: Reference,
): Promise<TrainRow> {
  const setup = await c.make(manner);
  using training = trainingOf(setup, manner);
  await reference?.ask({ ...c.reference, ...manner });
  const times: Record<"step" | "forward" | "mlx", number[]> = { step: [], forward: [], mlx: [] };
  let peak = 0, mlxPeak: number | null = null;
  try {
    training.step();
    for (let i = 0; i <= effort.samples; i++) { // the first one warms up
      times.forward.push(timeCalls(training.forward, effort.ms));
      mx.resetPeakMemory();
      times.step.push(timeCalls(training.step, effort.ms));
      peak = mx.getPeakMemory();
      if (reference) {
        const answer = await reference.ask<{ ms: number; peak: number }>({ ms: effort.ms });
        times.mlx.push(answer.ms);
        mlxPeak = answer.peak;
      }
      if (i === 0) Object.values(times).forEach((t) => t.splice(0));
    }
    const { kernels } = await mx.profile(() => void training.step(), { timed: false });
    return {
      case: c.name,
      manner,
      items: c.items,
      unit: c.unit,
      flops: c.flops,
      step: figureOf(times.step, effort.least)!,
      forward: figureOf(times.forward, effort.least)!,
      peak,
      dispatches: kernels.reduce((sum, { calls }) => sum + calls, 0),
      mlx: figureOf(times.mlx, effort.least),
      mlxPeak,
    };
  } finally {
    release(setup);
  }
}
