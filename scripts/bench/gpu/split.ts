/**
 * Rows `split` of `deno task bench:gpu`: a model on one device beside the same model on two. Also what it costs that a step goes from one to
 * the other.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { DeviceLoop, hostVisible } from "../../../src/array/compile/loop.ts";
import { median } from "../../../src/cli/bench/figures.ts";
import { promptOf, timeTokens } from "../../../src/cli/bench/tokens.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";
import type { Effort } from "./cases.ts";
import type { Figure } from "./table.ts";

/** Steps of the loop that measures how long an exchange takes. */
const STEPS = 200;
/** Elements of the hidden state there: 8 KB. */
const HIDDEN = 2048;
/** Runs before those that are measured: in the first pipelines are made, and afterwards faster steps are looked for. */
const WARM_UPS = 2;

/** The second device of a measurement: the next GPU, or the CPU. */
export function secondDevice(first: string): string {
  const others = mx.devices().filter(({ name, usable, type }) => usable && name !== first && type !== "cpu");
  return others.find(({ name }) => name.startsWith("vulkan:"))?.name ?? "wasm";
}

/** Measures a model on the first of two devices, and on both. */
export async function* measureSplit(
  dir: string,
  devices: readonly [first: string, second: string],
  { positions: [position], sharedPrompts: prompts, tokens, repeats }: Effort,
  dtype: mx.Dtype | undefined,
): AsyncGenerator<Omit<Figure, "shape">, void, void> {
  const one = await timesOf(dir, { device: devices[0], dtype }, [position, ...prompts], tokens, repeats);
  const two = await timesOf(dir, { devices, dtype }, [position, ...prompts], tokens, repeats);
  const both = `${devices.join(" and ")}, ${two.layers.join(" and ")} layers`;
  const ratio = (a: number, b: number): string => `${(a / b).toFixed(2)} of ${devices[0]} alone`;
  const decodes = [one, two].map(({ decode }) => tokens / decode);
  yield { case: `decode @${position}, one device`, value: decodes[0], unit: "tok/s" };
  yield {
    case: `decode @${position}, two by layers`,
    value: decodes[1],
    unit: "tok/s",
    note: `${ratio(decodes[1], decodes[0])}; ${both}`,
  };
  for (const [i, prompt] of prompts.entries()) {
    const rates = [one, two].map(({ reads }) => prompt / reads[i + 1]);
    yield { case: `prompt of ${prompt}, one device`, value: rates[0], unit: "tok/s" };
    yield {
      case: `prompt of ${prompt}, two by layers`,
      value: rates[1],
      unit: "tok/s",
      note: ratio(rates[1], rates[0]),
    };
  }
  const [alone, round] = [await roundOf([devices[0], devices[0]]), await roundOf(devices)];
  yield {
    case: "8 KB there and a token back",
    value: round,
    unit: "us",
    note: `a step on one device ${alone.toFixed(1)} us`,
  };
}

/** Seconds of prompts to their first token, and of the tokens after the first prompt. */
async function timesOf(
  dir: string,
  { dtype, ...where }: Pick<mx.lm.LoadOptions, "device" | "devices"> & { readonly dtype: mx.Dtype | undefined },
  prompts: readonly number[],
  tokens: number,
  repeats: number,
): Promise<{ readonly reads: readonly number[]; readonly decode: number; readonly layers: readonly number[] }> {
  const { model, parts } = await mx.lm.load(dir, { ...where, ...(dtype && { dtype }) });
  try {
    const decodes: number[] = [];
    const reads: number[] = [];
    for (const [i, prompt] of prompts.entries()) {
      const ids = promptOf(model, prompt);
      const times: number[] = [];
      for (let run = -WARM_UPS; run < repeats; run++) {
        using cache = model.makeCache();
        const started = performance.now();
        const at = await timeTokens(model, cache, ids, i === 0 ? tokens + 1 : 1);
        await decodingModel(model).traces.idle(); // a step that is still being tested would change in the middle
        if (run < 0) continue;
        times.push((at[0] - started) / 1000);
        if (i === 0) decodes.push((at.at(-1)! - at[0]) / 1000);
      }
      reads.push(median(times)!);
    }
    return { reads, decode: median(decodes)!, layers: parts.map(({ from, to }) => to - from) };
  } finally {
    model[Symbol.dispose]();
  }
}

/** Microseconds of a step that takes a token on one device and gives it on the other, after a hidden state went over. */
async function roundOf([first, second]: readonly [string, string]): Promise<number> {
  const state = { token: hostVisible(Float32Array.of(1)), position: hostVisible(Int32Array.of(0)) }; // as a generation has them
  using loop = new DeviceLoop(state, ({ token, position }) => {
    const hidden = mx.stream(first, () => mx.multiply(mx.ones([1, HIDDEN]), token));
    return { token: mx.stream(second, () => mx.mean(hidden, 1)), position: mx.add(position, 1) };
  });
  await loop.done(loop.run(10));
  const started = performance.now();
  for (let i = 0; i < STEPS; i++) await loop.done(loop.run(), true);
  const time = performance.now() - started;
  mx.dispose(state);
  return 1000 * time / STEPS;
}
