/**
 * Requests of an engine and what comes of them: beside each other, and from `streamGenerate` alone, which is the oracle.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

/** A model and its tokenizer. */
export interface Loaded {
  readonly model: mx.lm.LanguageModel;
  readonly tokenizer: mx.lm.Tokenizer;
}

/**
 * Bytes of a page of the embedded model: keys and values of 64 positions in 8 layers of 2 heads of 128 numbers. The CPU keeps them in float16,
 * other devices in float32 as the activations are.
 */
export function tinyPage(device: string): number {
  return 2 * 64 * 8 * 2 * 128 * (device === "wasm" ? 2 : 4);
}

/** The responses of a request. */
export async function take(
  responses: AsyncIterable<mx.lm.EngineResponse>,
  onToken: () => void = () => {},
): Promise<mx.lm.EngineResponse[]> {
  const taken: mx.lm.EngineResponse[] = [];
  for await (const response of responses) {
    taken.push(response);
    onToken();
  }
  return taken;
}

/** The responses of a request alone. */
export async function takeAlone(
  { model, tokenizer }: Loaded,
  { prompt, priority: _, speculation: _drafts, ...options }: mx.lm.EngineRequest,
): Promise<mx.lm.EngineResponse[]> {
  return await take(mx.lm.streamGenerate(model, tokenizer, prompt, options));
}

/** What company must not change, but for log probabilities. */
function partsOf(response: mx.lm.EngineResponse): unknown {
  const { token, text, reasoning, toolCalls, raw, finishReason, promptTokens, generationTokens } = response;
  return { token, text, reasoning, toolCalls, raw, finishReason, promptTokens, generationTokens };
}

/** Log probabilities in a list, and the tokens that they are of. */
function logprobsOf({ logprobs }: mx.lm.EngineResponse): { values: number[]; tokens: number[] } | undefined {
  if (!logprobs) return undefined;
  const { logprob, top } = logprobs;
  return { values: [logprob, ...top.map((one) => one.logprob)], tokens: top.map(({ token }) => token) };
}

/**
 * The most by which log probabilities may differ: in float32, and on matrix units. Those round several rows to float16, whose steps are
 * 2^-7 between 8 and 16, where the largest logits are. A log probability is the difference of two of them.
 */
export const TOLERANCE = { exact: 1e-4, matrices: 2 ** -6 } as const;
/** The most probable tokens and their log probabilities. */
type Top = Exclude<ReturnType<typeof logprobsOf>, undefined>;

/**
 * Asserts that two lists of the most probable tokens are the same to `tolerance`. Each is in falling order, and a token has the same
 * value in both. One that only one list has is no further from its end than two values may move.
 */
function assertSameTop(own: Top, alone: Top, tolerance: number, what: string): void {
  const valuesOf = ({ values: [, ...top], tokens }: Top): ReadonlyMap<number, number> =>
    new Map(tokens.map((token, i) => [token, top[i]]));
  const pairs = [[valuesOf(own), valuesOf(alone)], [valuesOf(alone), valuesOf(own)]] as const;
  assertEquals(own.tokens.length, alone.tokens.length, what);
  for (const [some, others] of pairs) {
    const values = [...some.values()];
    assert(values.every((value, i) => i === 0 || value <= values[i - 1]), `${what}: ${values} do not fall`);
    for (const [token, value] of some) {
      const difference = others.has(token) ? Math.abs(value - others.get(token)!) : (value - values.at(-1)!) / 2;
      assert(value === others.get(token) || difference < tolerance, `${what}: token ${token} is ${difference} off`);
    }
  }
}

/** Asserts that responses are those of the request alone: log probabilities to `tolerance`, in an order but for ties. */
export function assertAlike(
  actual: readonly mx.lm.EngineResponse[],
  expected: readonly mx.lm.EngineResponse[],
  what: string,
  tolerance: number = TOLERANCE.exact,
): void {
  assertEquals(actual.map(partsOf), expected.map(partsOf), what);
  for (const [i, response] of expected.entries()) {
    const [own, alone] = [logprobsOf(actual[i]), logprobsOf(response)];
    assertEquals(own === undefined, alone === undefined, `${what}, token ${i}`);
    if (!own || !alone) continue;
    assertSameTop(own, alone, tolerance, `${what}, token ${i}`);
    const [chosen, same] = [own.values[0], alone.values[0]];
    assert(chosen === same || Math.abs(chosen - same) < tolerance, `${what}, token ${i}: ${chosen} and ${same} alone`);
  }
}

/** Drafts an answer that is known; all but the first `right` tokens of a draft are others. With `pauses` every third place has no draft. */
export function replay(answer: readonly number[], right: number, pauses = false): mx.lm.Drafter {
  let at = -1;
  const drafted = (count: number): number[] =>
    answer.slice(at, at + count).map((token, i) => i < right ? token : token ^ 1);
  return {
    extend: (tokens) => void (at = at < 0 ? 0 : at + tokens.length),
    draft: (count) => pauses && at % 3 === 2 ? [] : drafted(count),
  };
}

/** The message of what a call throws or a promise rejects with, after its code. */
export async function errorOf(work: () => unknown): Promise<string> {
  try {
    await work();
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    return code === undefined ? String(error) : `${code}: ${message}`;
  }
  return "";
}
