/**
 * The step that verifies drafted tokens. It feeds the next token and the drafted ones after it, and chooses a token from the logits of each.
 * A place sees the tokens before it, also drafted ones: its random key, penalties and log probabilities are those that it has without
 * drafts. The choices up to the first one that is not the drafted token count. The position says how many those are, so the cache
 * forgets the rest. Recurrent states are computed once more at the end, over the tokens that count.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { hostVisible } from "../../array/compile/loop.ts";
import { maskWords } from "../../graph/token_mask.ts";
import type { LanguageModel } from "../models/mod.ts";
import { countAccepted } from "../speculation/acceptance.ts";
import { feedPairs } from "./head.ts";
import { cacheOf, chooseRows, type DecodeOptions, detach, splitKeys, type State } from "./state.ts";

/** Further inputs of a step that verifies drafts; n columns. The host writes them before each step. */
export interface DraftInputs {
  /** int32 (1, n): the token to feed, then the drafted ones. */
  readonly ids: Tensor;
  /** uint32 (n, 2): states of the random numbers before each choice, if there are any. */
  readonly keyStates: Tensor | undefined;
  /** int32 (1,): how many tokens are drafted; further ones fill the columns. */
  readonly drafted: Tensor;
  /**
   * uint32 (n, V / 32, rounded up): what each choice may be, where a grammar says that, as in {@link Masking.mask}. It is of an earlier step where
   * nothing is drafted.
   */
  readonly mask: Tensor | undefined;
}

/** The bits of a mask that allows all tokens. */
const ANY = 2 ** 32 - 1;

/** Inputs of `columns` columns; `masked` is the vocabulary where there are masks. */
export function draftInputs(columns: number, hasKey: boolean, masked: number | undefined): DraftInputs {
  const words = masked === undefined ? 0 : maskWords(masked);
  return {
    ids: detach(hostVisible(new Int32Array(columns), [1, columns])),
    keyStates: hasKey ? detach(hostVisible(new Uint32Array(2 * columns), [columns, 2])) : undefined,
    drafted: detach(hostVisible(new Int32Array(1))),
    mask: words > 0 ? detach(hostVisible(new Uint32Array(columns * words).fill(ANY), [columns, words])) : undefined,
  };
}

/** Feeds a token and drafted ones, and chooses the tokens that follow, as many as the draft is right. */
export function verifyStep(
  model: LanguageModel,
  options: DecodeOptions,
  now: State & DraftInputs,
): State & DraftInputs {
  const { ids, keyStates, mask, position, recent, weights, log, logprobs } = now;
  const columns = ids.shape[1];
  const cache = cacheOf(now, true);
  const hidden = model.hidden(ids, cache);
  const logits = model.logits(hidden).reshape([columns, -1]);
  const [stays, draw] = keyStates ? splitKeys(keyStates) : [undefined, position];
  const drafted = ids.index(mx.Slice(null), mx.Slice(1, columns));
  const places = mx.arange(0, columns, 1, mx.int32);
  const first = mx.add(position, 1); // of the token that the first column chooses
  const before = places.reshape([columns, 1]);
  const rows = {
    recent: recent && ringAfter(recent, drafted, first, before),
    weights: weights && ringAfter(weights, onesLike(drafted), first, before),
  };
  const { next, judged } = chooseRows(options, { ...rows, draw, mask }, logits);
  const chosen = next.reshape([1, columns]);
  const accepted = countAccepted(chosen, drafted, now.drafted);
  const counted = mx.add(accepted, 1);
  cache.settle(counted);
  const at = mx.remainder(mx.add(first, places), log.shape[1]).reshape([1, columns]);
  return {
    ...now,
    token: mx.take(next, accepted, 0).reshape([1, 1]),
    position: mx.add(position, counted),
    key: stays && mx.take(stays, accepted, 0),
    recent: recent && ringAfter(recent, chosen, first, counted.reshape([1, 1])),
    weights: weights && ringAfter(weights, onesLike(chosen), first, counted.reshape([1, 1])),
    log: mx.putAlongAxis(log, at, chosen, 1), // what follows the tokens that count is written again before it is read
    logprobs: logprobs &&
      putRows(logprobs, at, mx.fast.logprobs(judged.logits, next, options.logprobs ?? 0, judged.mask)),
    ...cache.buffers,
    ...(now.head && feedPairs(model, now, { hidden, tokens: ids, last: accepted })),
  };
}

/**
 * A ring (1, size) after some of the `values` (1, m) were put into it: (n, size). Row i has the first `counts[i]` of them.
 * The first value belongs to position `first`. A ring has the value of position p in place p % size.
 */
function ringAfter(ring: Tensor, values: Tensor, first: Tensor, counts: Tensor): Tensor {
  const size = ring.shape[1];
  const last = mx.subtract(counts, 1);
  const places = mx.arange(0, size, 1, mx.int32).reshape([1, size]);
  // The last value that came to each place; below 0 if none did.
  const index = mx.subtract(last, mx.remainder(mx.add(mx.subtract(last, places), first), size));
  const put = mx.take(values.reshape([-1]), mx.maximum(index, 0), 0);
  return mx.where(mx.less(index, 0), ring, put);
}

/** The log (1, LOG, width) with rows (n, width) in places (1, n). */
function putRows(log: Tensor, at: Tensor, rows: Tensor): Tensor {
  const shape = [1, ...rows.shape];
  return mx.putAlongAxis(log, mx.broadcastTo(at.reshape([1, -1, 1]), shape), rows.reshape(shape), 1);
}

function onesLike(values: Tensor): Tensor {
  return mx.ones(values.shape, mx.float32);
}
