/**
 * Drafts by the head of the model itself, multi-token prediction.
 *
 * A draft begins with the last hidden state of the model and the token after that, which is the one to feed. The head then takes its own hidden
 * states and the tokens that it chose. What it writes into its cache for those is written again by the step that verifies them.
 *
 * A token is chosen with the sampler of the answer and the random key of its place, without penalties. So a head that gives the
 * probabilities of the model drafts the tokens that the model will choose.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, hostVisible, readMapped } from "../../array/compile/loop.ts";
import type { Tensor } from "../../array/mod.ts";
import type { LanguageModel } from "../models/mod.ts";
import { MAX_DRAFT } from "../speculation/draft_length.ts";
import type { Drafter } from "../speculation/drafter.ts";
import type { DecodeContext, Traced } from "./context.ts";
import { headCache, type HeadParts } from "./head.ts";
import { PipelinesAhead } from "./pipelines_ahead.ts";
import { chooseRows, type DecodeOptions, detach, splitKeys, type State } from "./state.ts";
import type { PromptSubmitter } from "./submit.ts";

/** The state of drafting. */
interface DraftState extends HeadParts, Pick<State, "key" | "token"> {
  /** int32 (MAX_DRAFT,): the drafted tokens. */
  readonly guesses: Tensor;
}

/** Drafts the `count` tokens after the last one, whose position is that of the state. */
export function draftStep(
  model: LanguageModel,
  { sampler }: Pick<DecodeOptions, "sampler">,
  count: number,
  now: DraftState,
): DraftState {
  let { hidden } = now.head!;
  let { key, token } = now;
  let parts: HeadParts = now;
  const guesses: Tensor[] = [];
  for (let i = 0; i < count; i++) {
    const [stays, draw] = key ? splitKeys(key) : [undefined, now.position];
    key = stays;
    const cache = headCache(parts, mx.add(now.position, i - 1));
    const made = model.draft(hidden, token, cache);
    const logits = made.logits.reshape([1, -1]);
    const choice = { recent: undefined, weights: undefined, draw };
    const { next } = chooseRows({ sampler, processors: [] }, choice, logits);
    guesses.push(next);
    [hidden, token] = [made.hidden, next.reshape([1, 1])];
    parts = { ...now, draftKeys: cache.keys, draftValues: cache.values };
  }
  const { draftKeys, draftValues } = parts;
  const rest = mx.zeros([MAX_DRAFT - count], mx.int32);
  return { ...now, draftKeys, draftValues, guesses: mx.concatenate([...guesses, rest], 0) };
}

/** Drafts tokens of a session by the head. */
export class HeadDrafter implements Drafter, Disposable {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #ahead: PipelinesAhead;
  readonly #guesses: Tensor;
  /** By the number of tokens. */
  readonly #loops = new Map<number, DeviceLoop<unknown>>();
  /** Capacity of the cache that the loops are for. */
  #capacity = 0;

  /** Over the state of a session. */
  constructor(context: DecodeContext, submitter: PromptSubmitter) {
    this.#context = context;
    this.#submitter = submitter;
    this.#ahead = new PipelinesAhead(context.model.traces);
    this.#guesses = detach(hostVisible(new Int32Array(MAX_DRAFT)));
  }

  /** See {@link Drafter.extend}: the steps of the session give the head its tokens. */
  extend(_tokens: readonly number[]): void {}

  /** See {@link Drafter.draft}. No step may be on its way. None while pipelines are being made. */
  async draft(count: number): Promise<readonly number[]> {
    const loop = this.#loopOf(count);
    if (!loop) return [];
    await this.#submitter.done(loop, loop.run(1), 0, true);
    return [...readMapped(this.#guesses, 0, count)];
  }

  #loopOf(count: number): DeviceLoop<unknown> | undefined {
    const { cache: { capacity }, model, options, state } = this.#context;
    if (this.#capacity !== capacity) this.release();
    this.#capacity = capacity;
    const known = this.#loops.get(count);
    if (known) return known;
    const { token, position, key, head, draftKeys, draftValues } = state.all;
    const all: DraftState = { token, position, key, head, draftKeys, draftValues, guesses: this.#guesses };
    const traced = this.#context.traced(`draft ${count}`, all, (now) => draftStep(model, options, count, now));
    if (!this.#ahead.has(traced)) return undefined;
    const loop = new DeviceLoop<unknown>(all, traced as Traced<unknown>);
    this.#loops.set(count, loop);
    return loop;
  }

  /** Frees the loops; the next draft makes others. Nothing may be on its way. */
  release(): void {
    for (const loop of this.#loops.values()) loop[Symbol.dispose]();
    this.#loops.clear();
  }

  /** Frees what it holds. */
  [Symbol.dispose](): void {
    this.release();
    mx.dispose(this.#guesses);
  }
}
