/**
 * A program of its own for megakernel_check_test.ts: `megakernel_check_process.ts DEVICE MODEL [kill|exit|leave|"" [SEQUENCES]]` has a
 * loop over a model find out whether its layers run in one dispatch. With "kill" it is gone as soon as it notes that the test has begun,
 * with "exit" it ends there by itself. With "leave" it lets loop and model go as soon as it has asked, and has nothing more to do.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { DeviceLoop, TracedStep } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { cacheOf } from "../models/caches.ts";

/** Has layers tested on a device, whatever it is, for the length of a scope. Workgroups of software devices do not run together and should not wait long. */
export function tryOn(device: string): Disposable {
  const { concurrent } = getBackend(device).limits;
  mx.setDefaultDevice(device);
  return withOptions({ regions: "on", launchMode: "try", spinLimit: concurrent ? undefined : 256 });
}

/** State of greedy steps. */
interface Greedy {
  readonly token: mx.Tensor;
  readonly position: mx.Tensor;
  readonly keys: readonly mx.Tensor[];
  readonly values: readonly mx.Tensor[];
}

/** Gives `use` a state of some sequences, the trace of greedy steps of a model over it, and how often that was made. */
export async function withSteps(
  model: LanguageModel,
  sequences: number,
  use: (trace: TracedStep<Greedy>, state: Greedy, traced: () => number) => Promise<void>,
): Promise<void> {
  using cache = cacheOf(model, { batch: sequences });
  cache.reserve(1);
  const { keys, values } = cache;
  using token = mx.full([sequences, 1], 11, mx.int32);
  using position = mx.zeros([sequences], mx.int32);
  const state: Greedy = { token, position, keys, values };
  let count = 0;
  using trace = new TracedStep(state, ({ token, position, keys, values }): Greedy => {
    count++;
    const step = new StepCache(keys, values, position);
    const logits = model.forward(token, step).reshape([sequences, -1]);
    const next = mx.argmax(logits, -1).astype(mx.int32).reshape([sequences, 1]);
    return { token: next, position: mx.add(position, 1), keys: step.keys, values: step.values };
  });
  await use(trace, state, () => count);
}

/**
 * Has the test of the layers of a model made for some sequences, if it is open; `waits` for its end before the loop goes. Pipelines are made
 * ahead, and what was traced for them serves the loop.
 */
export function tryLayers(model: LanguageModel, sequences: number = 1, waits: boolean = true): Promise<void> {
  return withSteps(model, sequences, async (trace, state, traced) => {
    using loop = new DeviceLoop(state, trace);
    if (waits) await trace.prepareFaster();
    const before = traced();
    const improved = loop.improve();
    if (!waits) return;
    await improved;
    if (traced() !== before) throw new Error("a step was traced again, whose pipelines were made ahead");
  });
}

if (import.meta.main) {
  const [device, dir, end, sequences = "1"] = Deno.args;
  const { model } = await mx.lm.load(dir, { device });
  tryOn(device); // to the end of the program
  if (end === "kill" || end === "exit") {
    const rename = Deno.renameSync;
    Deno.renameSync = (from, to) => {
      rename(from, to);
      Deno.renameSync = rename;
      if (end === "exit") Deno.exit(3);
      Deno.kill(Deno.pid, "SIGKILL");
    };
  }
  await tryLayers(model, Number(sequences), end !== "leave");
  model[Symbol.dispose]();
}
