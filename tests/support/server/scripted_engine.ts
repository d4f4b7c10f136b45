/**
 * An engine whose answers a test writes, for what the embedded model would not say.
 *
 * @module
 */

import type { lm } from "../../../mod.ts";
import type { ServedEngine } from "../../../src/server/served.ts";

/** A token of a scripted answer. */
export type ScriptedToken = Partial<Pick<lm.EngineResponse, "text" | "reasoning" | "toolCalls" | "token" | "logprobs">>;

/** What a script gives for a request. It may wait, and an error is that of the engine. */
export type Script = (request: lm.EngineRequest) => AsyncIterable<ScriptedToken> | Iterable<ScriptedToken>;

/** Answers each request by a script; the last token ends by "stop". */
export class ScriptedEngine implements ServedEngine {
  /** Requests that came, the newest last. */
  readonly requests: lm.EngineRequest[] = [];
  /** Answers that were begun and have not ended. */
  running = 0;
  readonly #script: Script;

  constructor(script: Script) {
    this.#script = script;
  }

  get metrics(): lm.EngineMetrics {
    const { running } = this;
    return {
      running,
      waiting: 0,
      kvBytes: 0,
      kvBytesUsed: 0,
      requests: this.requests.length,
      promptTokens: 0,
      cachedTokens: 0,
      draftedTokens: 0,
      acceptedTokens: 0,
      generationTokens: 0,
      preemptions: 0,
    };
  }

  async *add(request: lm.EngineRequest): AsyncGenerator<lm.EngineResponse, void, void> {
    this.requests.push(request);
    this.running++;
    try {
      let held: lm.EngineResponse | undefined;
      let count = 0;
      for await (const token of this.#script(request)) {
        if (held) yield held;
        const { text = "", reasoning = "", toolCalls = [] } = token;
        held = {
          ...{ text, reasoning, toolCalls, raw: text, token: token.token ?? 1 },
          ...(token.logprobs && { logprobs: token.logprobs }),
          ...{ promptTokens: 7, cachedTokens: 3, generationTokens: ++count, finishReason: null },
        };
        request.signal?.throwIfAborted();
      }
      if (held) yield { ...held, finishReason: "stop" };
    } finally {
      this.running--;
    }
  }

  embed(): Promise<never> {
    return Promise.reject(new Error("a scripted engine has no vectors"));
  }

  async drain(): Promise<void> {}

  async [Symbol.asyncDispose](): Promise<void> {}
}
