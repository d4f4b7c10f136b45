/**
 * POST /v1/completions: prompts that are texts or token ids, which the model continues. Control tokens in such a text count.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import type { lm } from "../../../mod.ts";
import { merged, newId, nowInSeconds, type TokenPart, tokenParts, type Usage } from "../answer.ts";
import { type Context, jsonReply } from "../context.ts";
import { fieldError } from "../errors.ts";
import {
  boolean,
  type Kind,
  list,
  object,
  type Read,
  type ReadFields,
  refused,
  required,
  text,
  whole,
} from "../fields.ts";
import { predicted, PREDICTION } from "../prediction.ts";
import { SAMPLING, samplingOptions } from "../sampling.ts";
import type { Served } from "../served.ts";
import { ERROR_PIECES, event, eventReply } from "../sse.ts";
import { CompletionLogprobs } from "./logprobs.ts";
import { usageOf } from "./usage.ts";

/** Most prompts of a request, and most answers to them. */
const MAX_PROMPTS = 128;
const MAX_CHOICES = 64;
/** OpenAI's default. */
const MAX_TOKENS = 16;

type OnePrompt = string | readonly number[];

/** A text, token ids, or a list of either. */
const PROMPT: Kind<readonly OnePrompt[]> = {
  read: (value, at) => {
    if (typeof value === "string") return [value];
    const ids = list(whole(0));
    const isIds = Array.isArray(value) && typeof value[0] === "number";
    if (isIds) return [ids.read(value, at)];
    const one: Kind<OnePrompt> = { read: (item, place) => typeof item === "string" ? item : ids.read(item, place) };
    return list(one, { min: 1, max: MAX_PROMPTS }).read(value, at);
  },
};

const FIELDS = {
  model: text,
  prompt: required(PROMPT),
  ...SAMPLING,
  max_tokens: whole(1),
  n: whole(1, MAX_CHOICES),
  best_of: whole(1, MAX_CHOICES),
  echo: boolean,
  logprobs: whole(0, 20),
  prediction: PREDICTION,
  stream: boolean,
  stream_options: object({ include_usage: boolean }),
  suffix: refused("models continue a text, and fill no gap in it"),
} as const;

const BODY: Kind<ReadFields<typeof FIELDS>> = object(FIELDS);

type Body = Read<typeof BODY>;

/** Continues prompts, whole or as events. */
export async function completions(context: Context): Promise<HttpReply> {
  const body = await context.read(BODY);
  if (body.echo && body.logprobs !== undefined) {
    throw fieldError("echo", "echo and logprobs exclude each other: tokens of prompts have no log probabilities here");
  }
  const { n = 1, best_of: candidates = n } = body;
  if (candidates > n) throw fieldError("best_of", `best_of is ${candidates}, expected at most n, which is ${n}`);
  if (body.stream) {
    context.models.resolve(body.model);
    return await eventReply(chunks(context, body), ERROR_PIECES.openai, context.report);
  }
  using lease = await context.models.lease(body.model);
  return jsonReply(200, await wholeAnswer(context, body, lease.served));
}

/** Tokens of all choices as they come: those of a prompt stand beside each other. */
function partsOf(
  { metrics, request: { signal } }: Context,
  body: Body,
  served: Served,
): AsyncGenerator<{ readonly index: number; readonly value: TokenPart }, void, void> {
  const { n = 1, logprobs, max_tokens: maxTokens = MAX_TOKENS } = body;
  const requests = body.prompt.flatMap((prompt) =>
    Array.from({ length: n }, (_, i): lm.EngineRequest => ({
      prompt,
      maxTokens,
      ...samplingOptions(body, served.generationConfig, i),
      ...(logprobs !== undefined && { logprobs }),
      ...predicted(body.prediction, served),
      signal,
    }))
  );
  return merged(requests.map((request) => tokenParts(request, served, metrics)));
}

/** What `echo` puts before an answer. */
function echoOf({ echo, prompt, n = 1 }: Body, { tokenizer }: Served, index: number): string {
  const given = prompt[Math.floor(index / n)];
  return !echo ? "" : typeof given === "string" ? given : tokenizer.decode(given);
}

async function wholeAnswer(context: Context, body: Body, served: Served): Promise<unknown> {
  const choices = Array.from({ length: body.prompt.length * (body.n ?? 1) }, (_, index) => ({
    text: echoOf(body, served, index),
    logprobs: new CompletionLogprobs(),
    reason: "",
  }));
  const usages: (Usage | undefined)[] = [];
  for await (const { index, value: { response, token, end } } of partsOf(context, body, served)) {
    const choice = choices[index];
    if (token !== undefined && response.logprobs) {
      choice.logprobs.add(served.tokenizer, token, response.logprobs, choice.text.length);
    }
    choice.text += response.raw;
    if (!end) continue;
    choice.reason = end.reason;
    usages[index] = end.usage;
  }
  return {
    ...head(served),
    choices: choices.map(({ text, logprobs, reason }, index) => ({
      index,
      text,
      logprobs: body.logprobs === undefined ? null : logprobs,
      finish_reason: reason,
    })),
    usage: totalUsage(body, usages),
  };
}

async function* chunks(context: Context, body: Body): AsyncGenerator<string, void, void> {
  using lease = await context.models.lease(body.model);
  const { served } = lease;
  const fixed = head(served);
  const { include_usage: includeUsage = false } = body.stream_options ?? {};
  const usages: (Usage | undefined)[] = [];
  const lengths: number[] = [];
  for await (const { index, value: { response, token, end } } of partsOf(context, body, served)) {
    const echo = lengths[index] === undefined ? echoOf(body, served, index) : "";
    lengths[index] ??= echo.length;
    const logprobs = new CompletionLogprobs();
    if (token !== undefined && response.logprobs) {
      logprobs.add(served.tokenizer, token, response.logprobs, lengths[index]);
    }
    lengths[index] += response.raw.length;
    if (end) usages[index] = end.usage;
    const content = echo + response.raw;
    if (content === "" && logprobs.tokens.length === 0 && !end) continue;
    yield event({
      ...fixed,
      choices: [{
        index,
        text: content,
        logprobs: body.logprobs === undefined ? null : logprobs,
        finish_reason: end?.reason ?? null,
      }],
      ...(includeUsage && { usage: null }),
    });
  }
  if (includeUsage) yield event({ ...fixed, choices: [], usage: totalUsage(body, usages) });
  yield event("[DONE]");
}

/** The usage of all prompts: each counts once, however many answers it has. */
function totalUsage({ n = 1 }: Body, usages: readonly (Usage | undefined)[]): Record<string, unknown> {
  const all = usages.map((usage, index) => ({
    promptTokens: index % n === 0 ? usage!.promptTokens : 0,
    cachedTokens: index % n === 0 ? usage!.cachedTokens : 0,
    completionTokens: usage!.completionTokens,
    reasoningTokens: 0,
    draftedTokens: usage!.draftedTokens,
    acceptedTokens: usage!.acceptedTokens,
  }));
  const sum = (key: keyof Usage): number => all.reduce((total, usage) => total + usage[key], 0);
  return usageOf([{
    promptTokens: sum("promptTokens"),
    cachedTokens: sum("cachedTokens"),
    completionTokens: sum("completionTokens"),
    reasoningTokens: 0,
    draftedTokens: sum("draftedTokens"),
    acceptedTokens: sum("acceptedTokens"),
  }]);
}

function head({ id: model }: Served): Record<string, unknown> {
  return { id: newId("cmpl-"), object: "text_completion", created: nowInSeconds(), model };
}
