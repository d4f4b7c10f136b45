/**
 * The work that `deno task soak` repeats.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { closeDevices } from "../../src/backend/devices.ts";
import { type Opened, openModel } from "../../src/server/open.ts";
import { Server } from "../../src/server/server.ts";
import { askAlone, askTogether } from "./clients.ts";

const MODEL = new URL("../../examples/models/tiny-qwen3/", import.meta.url);

/** A round, which does so many units. What it holds beyond memory ends when it is disposed. */
export interface SoakRound extends Partial<AsyncDisposable> {
  (units: number): Promise<void>;
  /** How many things were made so far that stay for later rounds, such as steps with their pipelines. */
  made?(): number;
}

/** The repeated work. */
export interface SoakKind {
  readonly name: string;
  /** Row of docs/reliability.md that it belongs to. */
  readonly check: number;
  /** The unit of work, and its number in a round on the CPU, by Vulkan, and in a quick run. */
  readonly each: string;
  readonly units: { readonly wasm: number; readonly vulkan: number; readonly quick: number };
  /** Prepares and returns a round. */
  readonly start: (device: string) => Promise<SoakRound>;
}

/** Most tokens of a prompt and of an answer of an engine's requests: they cross pages of 64 positions. */
const [MAX_PROMPT, MAX_ANSWER] = [70, 12];
/** Bytes of keys and values of an engine: so few that requests give them up for others. */
const KV_BYTES = 2 ** 21;

/** A number from 0 to below 1 that follows from the number of a request and of what is drawn. */
function drawn(request: number, what: number): number {
  const mixed = Math.imul(Math.imul(request + 1, 0x9e3779b1) ^ Math.imul(what + 1, 0x85ebca6b), 0xc2b2ae35);
  return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
}

/** Options that a request may have. */
const OPTIONS: readonly Omit<mx.lm.EngineRequest, "prompt">[] = [
  {},
  { temp: 0.9, topP: 0.9 },
  { temp: 1.2, topK: 10, minP: 0.01 },
  { repetitionPenalty: 1.2, frequencyPenalty: 0.3, repetitionContextSize: 30 },
  { logitBias: { 4089: -Infinity, 300: 2 } },
  { logprobs: 3 },
  { responseFormat: { type: "regex", regex: "[a-z ]{1,40}" } },
  { stop: ["the", "a"], priority: 1 },
];

/** Sends a request with options by its number to an engine; one in four is aborted. */
async function sendRequest(engine: mx.lm.Engine, i: number): Promise<void> {
  const length = 1 + Math.floor(drawn(i, 0) * MAX_PROMPT);
  const prompt = Array.from({ length }, (_, at) => 1 + Math.floor(drawn(at < 20 ? i % 3 : i, at + 10) * 4000));
  const maxTokens = 1 + Math.floor(drawn(i, 1) * MAX_ANSWER);
  const controller = new AbortController();
  const abortAfter = i % 4 === 0 ? Math.floor(drawn(i, 2) * maxTokens) : Infinity;
  const { signal } = controller;
  let count = 0;
  const checkAbort = (): void => {
    if (count >= abortAfter) controller.abort();
  };
  try {
    const responses = engine.add({ prompt, maxTokens, seed: i, signal, ...OPTIONS[i % OPTIONS.length] });
    checkAbort();
    for await (const _ of responses) {
      count++;
      const { kvBytesUsed, kvBytes } = engine.metrics;
      if (kvBytesUsed > kvBytes) {
        throw new Error(`${kvBytesUsed} bytes of keys and values, at most ${kvBytes} are allowed`);
      }
      checkAbort();
    }
  } catch (error) {
    if (error !== signal.reason) throw error;
  }
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
    name: "engine",
    check: 25,
    each: "requests",
    units: { wasm: 50, vulkan: 5, quick: 3 },
    start: async (device) => {
      const { model, tokenizer } = await mx.lm.load(MODEL, { device });
      const engine = new mx.lm.Engine(model, tokenizer, { kvBytes: KV_BYTES, maxSequences: 6 });
      let sent = 0;
      const round = async (units: number): Promise<void> => {
        const from = sent;
        sent += units;
        await Promise.all(Array.from({ length: units }, (_, i) => sendRequest(engine, from + i)));
        await engine.drain();
      };
      // Requests differ, so steps for other options and numbers of rows are made for long.
      return Object.assign(round, { made: () => model.traces.made });
    },
  },
  {
    name: "server",
    check: 20,
    each: "clients",
    units: { wasm: 100, vulkan: 50, quick: 10 },
    start: async (device) => {
      let opened: Opened | undefined;
      const server = await Server.start({
        version: "0.0.0",
        hostname: "127.0.0.1",
        port: 0,
        models: ["tiny-qwen3"],
        open: async (id, room) => opened = await openModel(id, MODEL, room, { load: { device } }),
        onError: (error) => {
          throw error;
        },
      });
      let alone: readonly string[] | undefined;
      const round = async (units: number): Promise<void> =>
        await askTogether(server.url, alone ??= await askAlone(server.url, units));
      // Clients come in another order each time, so steps for other numbers of rows are made late.
      const made = (): number => opened?.model.traces.made ?? 0;
      return Object.assign(round, { made, [Symbol.asyncDispose]: () => server.drain() });
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
