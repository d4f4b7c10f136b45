/**
 * The state of decoding, which lives on the device, and the steps that advance it.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { hostVisible, MAX_STEPS, readMapped, readMappedFloats } from "../../array/compile/loop.ts";
import { maskLogits } from "../../array/fast/token_mask.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { maskWords } from "../../graph/token_mask.ts";
import { feedPairs, type HeadState, readPairs, tokensAfter } from "./head.ts";
import type { Buffers } from "../kv/cache.ts";
import { PagedCache } from "../kv/paged.ts";
import { StepCache } from "../kv/step_cache.ts";
import { type Logprobs, logprobsWidth, readLogprobs } from "../sampling/logprobs_log.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { LogitsProcessor, Sampler } from "../sampling/options.ts";
import type { Speculation } from "../speculation/speculation.ts";
import type { Constraint } from "../structured/constraint.ts";

/** How tokens are chosen. */
export interface DecodeOptions {
  readonly sampler: Sampler;
  readonly processors: readonly LogitsProcessor[];
  /** Number of recent tokens that processors see. */
  readonly contextSize: number;
  /** Log probabilities are wanted: of each token and of so many of the most probable ones. */
  readonly logprobs?: number;
  /** The constraint on the tokens of the sequence, if there is one. */
  readonly constraint?: Constraint;
  /** The processes that have parts of the model: the first one chooses for all. */
  readonly group?: mx.distributed.Group | undefined;
  /** Drafts tokens, so that a step may choose several. */
  readonly speculation?: Speculation;
  /** Once it is aborted, nothing more of a prompt is submitted, and work on its way is left out if the device can do that. */
  readonly signal?: AbortSignal;
  /** Called while a step over `count` tokens of the prompt runs, with the share of it that is done. */
  readonly onRead?: (share: number, count: number) => void;
}

/** The state that changes from token to token; B sequences. */
export interface State {
  /** int32 (B, 1): the tokens to feed; anything before the end of the prompt was read. */
  readonly token: Tensor;
  /** int32 (B,): their positions; before the end of the prompt that of the next token to read. */
  readonly position: Tensor;
  /** uint32 (B, 2): states of the random numbers, if there are any. */
  readonly key: Tensor | undefined;
  /** int32 (B, contextSize): the last tokens in a ring, the one to feed included, where a processor looks at them. */
  readonly recent: Tensor | undefined;
  /** float32 (B, contextSize): 1 where `recent` has a token, 0 if there were fewer, for processors that count. */
  readonly weights: Tensor | undefined;
  /** int32 (B, LOG): chosen tokens by position modulo its size. */
  readonly log: Tensor;
  /** float32 (B, LOG, n): in the same way what `mx.fast.logprobs` says of them, if that is wanted. */
  readonly logprobs: Tensor | undefined;
  readonly keys: Buffers["keys"];
  readonly values: Buffers["values"];
  readonly states?: Buffers["states"];
  readonly table?: Buffers["table"];
  readonly ring?: Buffers["ring"];
  /** Of the head that drafts, if one does. */
  readonly head?: HeadState | undefined;
  readonly draftKeys?: Buffers["draftKeys"];
  readonly draftValues?: Buffers["draftValues"];
}

/** Further inputs of a step that reads tokens of a prompt. */
export interface PromptChunk {
  /** int32 (rows,): the tokens, then padding. */
  readonly ids: Tensor;
  /** uint32 (1,): index of the last token. */
  readonly last: Tensor;
  /** int32 (1,): the token after that, where a head drafts and the prompt has one. */
  readonly next?: Tensor;
}

/** The state but for the cache. */
export type DecodeScalars = Pick<
  State,
  "token" | "position" | "key" | "recent" | "weights" | "log" | "logprobs" | "head"
>;

/**
 * Further inputs of a step that chooses tokens by a mask. The mask is made while the logits are, so a step is two, {@link forwardStep} and
 * {@link chooseStep}.
 */
export interface Masking {
  /** (B, V): after the token at `position`. */
  readonly logits: Tensor;
  /** uint32 (B, V / 32, rounded up): bit i % 32 of word i / 32 is set where token i may be chosen. */
  readonly mask: Tensor;
}

/** The state that a step reads and writes to compute logits. `position` is that of the token that they follow. */
export type ForwardState = Pick<State, "token" | "position" | "head" | keyof Buffers> & Pick<Masking, "logits">;

/** A part of the state that a step of the prompt before its end changes. */
export type PrefillState = Pick<State, "position" | "head" | keyof Buffers>;

/** Tokens that the log keeps: more than are ever on their way. */
const LOG = 4 * MAX_STEPS;
/** The cache of a step, of whose tokens those up to `last` count. With `drafts`, the step says at its end how many count. */
export function cacheOf(now: PrefillState & Partial<PromptChunk>, drafts: boolean = false): StepCache | PagedCache {
  const { keys, values, states, table, position, last } = now;
  const options = { ...(last && { last }), drafts };
  if (table) return new PagedCache(now, position, table, options);
  return new StepCache(keys, values, position, { ...(states && { states }), ...options });
}

/** Reads tokens before the end of a prompt. */
export function readStep(model: LanguageModel, now: PrefillState & PromptChunk): PrefillState & PromptChunk {
  const cache = cacheOf(now);
  const { ids, last, next } = now;
  const hidden = model.hidden(ids.reshape([1, -1]), cache, now.head ? undefined : last);
  const head = now.head && readPairs(model, now, { hidden, tokens: tokensAfter(ids, last, next!), last });
  return { ...now, position: nextPosition(now), ...cache.buffers, ...head };
}

/** Reads the end of a prompt and chooses the first token. */
export function promptStep(
  model: LanguageModel,
  options: DecodeOptions,
  now: State & PromptChunk,
): State & PromptChunk {
  const cache = cacheOf(now);
  const { ids, last, next } = now;
  const hidden = model.hidden(ids.reshape([1, -1]), cache, now.head ? undefined : last);
  const logits = model.logits(now.head ? mx.take(hidden, last, 1) : hidden).reshape([1, -1]);
  const chosen = choose(options, now, logits, nextPosition(now));
  const head = now.head && readPairs(model, now, { hidden, tokens: tokensAfter(ids, last, next!), last });
  return { ...now, ...chosen, ...cache.buffers, ...head };
}

/** Reads the end of a prompt: the logits after it. */
export function forwardPromptStep(
  model: LanguageModel,
  now: ForwardState & PromptChunk,
): ForwardState & PromptChunk {
  const cache = cacheOf(now);
  const { ids, last, next } = now;
  const all = model.hidden(ids.reshape([1, -1]), cache, now.head ? undefined : last);
  const head = now.head && readPairs(model, now, { hidden: all, tokens: tokensAfter(ids, last, next!), last });
  const logits = model.logits(now.head ? mx.take(all, last, 1) : all).reshape([1, -1]);
  return { ...now, position: mx.subtract(nextPosition(now), 1), logits, ...cache.buffers, ...head };
}

/** Feeds a token of each sequence: the logits after them. */
export function forwardStep(model: LanguageModel, now: ForwardState): ForwardState {
  const cache = cacheOf(now);
  const hidden = model.hidden(now.token, cache);
  const logits = model.logits(hidden).reshape([hidden.shape[0], -1]);
  return { ...now, logits, ...cache.buffers, ...headAfter(model, now, hidden) };
}

/** What a head takes of a step that fed one token, if there is one. */
function headAfter(model: LanguageModel, now: ForwardState | State, hidden: Tensor): ReturnType<typeof feedPairs> {
  return now.head ? feedPairs(model, now, { hidden, tokens: now.token, last: mx.array([0], mx.int32) }) : {};
}

/** Chooses the next tokens from logits, of those that the mask allows. */
export function chooseStep<S extends DecodeScalars & Masking>(options: DecodeOptions, now: S): S {
  return { ...now, ...choose(options, now, now.logits, mx.add(now.position, 1), now.mask) };
}

/** Masking for one sequence. */
export function maskingOf(model: LanguageModel): Masking {
  const { vocabSize } = model.config;
  const dtype = mx.tidy(() => model.forward(mx.zeros([1, 1], mx.int32)).dtype);
  return {
    logits: detach(mx.zeros([1, vocabSize], dtype)),
    mask: detach(hostVisible(new Uint32Array(maskWords(vocabSize)), [1, maskWords(vocabSize)])),
  };
}

/** The position after the last token of a chunk: one more than that of its row, which is limited to the rows as in `take`. */
export function nextPosition({ position, ids, last }: Pick<State, "position"> & PromptChunk): Tensor {
  return mx.add(mx.add(mx.minimum(last, ids.size - 1).astype(mx.int32), position), 1);
}

/** Feeds a token of each sequence and chooses the next ones. */
export function decodeStep(model: LanguageModel, options: DecodeOptions, state: State): State {
  const cache = cacheOf(state);
  const hidden = model.hidden(state.token, cache);
  const logits = model.logits(hidden).reshape([state.token.shape[0], -1]);
  const chosen = choose(options, state, logits, mx.add(state.position, 1));
  return { ...state, ...chosen, ...cache.buffers, ...headAfter(model, state, hidden) };
}

/** The state with the tokens that the logits (B, V) choose, of those that a `mask` allows. They are to be fed at positions `after`. */
export function choose(
  { sampler, processors, logprobs: top = 0, group }: DecodeOptions,
  { position, key, recent, weights, log, logprobs }: DecodeScalars,
  logits: Tensor,
  after: Tensor,
  mask?: Tensor,
): DecodeScalars {
  const [rows] = logits.shape;
  const [stays, draw] = key ? splitKeys(key) : [undefined, position];
  const { next: chosen, judged } = chooseRows({ sampler, processors }, { recent, weights, draw, mask }, logits);
  const next = group ? ofFirst(chosen, group) : chosen;
  const put = (ring: Tensor, value: Tensor): Tensor => {
    const [, size, ...rest] = ring.shape;
    const at = mx.remainder(after, size).reshape([rows, 1]);
    return mx.sliceUpdate(ring, value.reshape([rows, 1, ...rest]), at, [1], { donate: true });
  };
  return {
    token: next.reshape([rows, 1]),
    position: after,
    key: stays,
    recent: recent && put(recent, next),
    weights: weights && put(weights, mx.ones([rows], mx.float32)),
    log: put(log, next),
    logprobs: logprobs && put(logprobs, mx.fast.logprobs(judged.logits, next, top, judged.mask)),
  };
}

/** The tokens of the first process. What is exchanged depends on the tokens on all of them, so that it is in the same place of the step. */
function ofFirst(tokens: Tensor, group: mx.distributed.Group): Tensor {
  return mx.distributed.allSum(mx.multiply(tokens, group.rank() === 0 ? 1 : 0), { group });
}

/** Splits states of random numbers (B, 2) as MLX does its global one: the first halves stay, the second ones are for a draw. */
export function splitKeys(keys: Tensor): [stays: Tensor, draws: Tensor] {
  const [stays, draws] = mx.split(mx.random.split(keys), 2, 1).map((half) => half.reshape([-1, 2]));
  return [stays, draws];
}

/** What a choice depends on besides logits. */
export interface ChoiceInputs extends Pick<DecodeScalars, "recent" | "weights"> {
  /** Keys (B, 2) for the draws; anything where nothing is drawn. */
  readonly draw: Tensor;
  /** The tokens that may be chosen, see {@link Masking}. Default all. */
  readonly mask?: Tensor | undefined;
}

/** Chooses a token from each row of logits (B, V): int32 (B,). Also the logits and the mask that log probabilities are of. */
export function chooseRows(
  { sampler, processors }: Pick<DecodeOptions, "sampler" | "processors">,
  { recent, weights, draw, mask }: ChoiceInputs,
  logits: Tensor,
): { readonly next: Tensor; readonly judged: { readonly logits: Tensor; readonly mask: Tensor | undefined } } {
  for (const process of processors) logits = process(recent!, logits, weights);
  if (mask && !sampler.takesMask) [logits, mask] = [maskLogits(logits, mask), undefined];
  const chosen = sampler(logits, draw, mask).astype(mx.int32);
  const next = sampler.graph === undefined ? markInvalid(chosen, logits) : chosen; // ours check by themselves
  return { next, judged: { logits, mask } };
}

/** Tokens, -1 if a row of logits has no finite largest one, as `mx.fast.sample` tells it. */
function markInvalid(tokens: Tensor, logits: Tensor): Tensor {
  return mx.where(mx.isfinite(mx.max(logits, -1)), tokens.reshape([-1]), mx.array(-1, mx.int32));
}

/** Takes an array out of the scopes of tidy(). */
export function detach(array: Tensor): Tensor {
  untrack(array);
  return array;
}

/** A log of the tokens of some rows. */
export function tokenLog(rows: number): Tensor {
  return detach(hostVisible(new Int32Array(rows * LOG), [rows, LOG]));
}

/** The log of log probabilities of some rows, if those are wanted. */
export function logprobsLog(top: number | undefined, rows: number): Tensor | undefined {
  if (top === undefined) return undefined;
  const width = logprobsWidth(top);
  return detach(hostVisible(new Float32Array(rows * LOG * width), [rows, LOG, width]));
}

/** The log probabilities of the token of a row at a position. */
export function logprobsIn(log: Tensor, row: number, position: number): Logprobs {
  const width = log.shape[2];
  return readLogprobs(readMappedFloats(log, (row * LOG + position % LOG) * width, width));
}

/** The tokens of a row of a log at `count` positions from `position` on. */
export function fromLog(log: Tensor, row: number, position: number, count: number): Int32Array {
  const at = position % LOG;
  const until = Math.min(count, LOG - at);
  const tokens = new Int32Array(count);
  tokens.set(readMapped(log, row * LOG + at, until));
  if (until < count) tokens.set(readMapped(log, row * LOG, count - until), until);
  return tokens;
}
