/**
 * The work that `deno task soak` repeats.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { closeDevices } from "../../src/backend/devices.ts";

const MODEL = new URL("../../examples/models/tiny-qwen3/", import.meta.url);

/** The repeated work. */
export interface SoakKind {
  readonly name: string;
  /** Row of docs/reliability.md that it belongs to. */
  readonly check: number;
  /** The unit of work, and its number in a round on the CPU, by Vulkan, and in a quick run. */
  readonly each: string;
  readonly units: { readonly wasm: number; readonly vulkan: number; readonly quick: number };
  /** Prepares and returns a round, which does so many units. */
  readonly start: (device: string) => Promise<(units: number) => Promise<void>>;
}

/** All of them. */
export const KINDS: readonly SoakKind[] = [
  {
    name: "decode",
    check: 11,
    each: "steps",
    units: { wasm: 125, vulkan: 25, quick: 2 },
    start: async (device) => {
      const { model, tokenizer } = await mx.lm.load(MODEL, { device });
      return async (units) => {
        const options = { maxTokens: units, temp: 1, topK: 20, seed: 1, logitBias: { 4089: -100, 4091: -100 } };
        const answer = mx.lm.streamGenerate(model, tokenizer, "Once upon a time there was", options);
        let count = 0;
        for await (const _ of answer) count++;
        if (count !== units) throw new Error(`a round gave ${count} tokens, expected ${units}`);
      };
    },
  },
  {
    name: "load",
    check: 12,
    each: "loads",
    units: { wasm: 1, vulkan: 1, quick: 1 },
    start: (device) =>
      Promise.resolve(async () => {
        const { model, tokenizer } = await mx.lm.load(MODEL, { device });
        await mx.lm.generate(model, tokenizer, "Hi", { maxTokens: 1 });
        model[Symbol.dispose]();
      }),
  },
  {
    name: "device",
    check: 12,
    each: "devices",
    units: { wasm: 1, vulkan: 1, quick: 1 },
    start: (device) =>
      Promise.resolve(async () => {
        const sum = mx.withDevice(device, () => mx.sum(mx.ones([1000])).item());
        if (sum !== 1000) throw new Error(`a sum is ${sum}, expected 1000`);
        closeDevices();
        await Promise.resolve();
      }),
  },
];
