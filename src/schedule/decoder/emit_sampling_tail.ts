/**
 * The end of a decoder's step: the token, chosen from what the head leaves, and the new state of a loop.
 *
 * @module
 */

import { float32Bits, uint32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { StateUpdate } from "../plan/fusion.ts";
import type { DecoderHead, SamplingTail } from "./ends.ts";
import type { Value } from "../plan/value.ts";
import {
  type DrawBuffers,
  type DrawSource,
  emitDraw,
  emitLargest,
  emitTailLogprobsOf,
  forEachRowBlock,
  LARGEST,
  looksAtAll,
  ringSize,
  scratchFor,
  settingsOf,
} from "../ops/sampling.ts";

/** Whether a step's end needs all logits, not just the largest one. */
function needsAll({ choice, logprobs }: SamplingTail): boolean {
  return looksAtAll(choice) || logprobs !== undefined;
}

/** Where the head leaves its results. */
export interface HeadResults {
  /** (rows, vocabulary), if a node reads them. */
  readonly logits: Value | undefined;
  /** (rows, workgroups, 2): the largest logit of each. */
  readonly best: Value;
  /** Memory of the sampling kernels that the head clears. */
  readonly scratch: Value | undefined;
  /** How each row draws, where rows do. */
  readonly settings: Value | undefined;
  /** Tokens to penalise, with the head's constants that say how. */
  readonly recent: Value | undefined;
  readonly spec: Readonly<Record<"DTYPE_OUT" | "RECENT" | "PENALTY" | "SCRATCH_WORDS", number>>;
}

/** Memory for what `workgroups` of the head leave for each of `rows`. */
export function headResults(
  l: Lowering,
  { logits, keepsLogits, logitsState, vocabulary, end }: DecoderHead,
  rows: number,
  workgroups: number,
  value: (node: Node) => Value,
): HeadResults {
  const recent = end?.penalty && value(end.penalty.recent);
  const all = end !== undefined && needsAll(end);
  const scratch = all ? scratchFor(l, rows, vocabulary) : undefined;
  return {
    logits: !keepsLogits && !all
      ? undefined
      : logitsState
      ? value(logitsState)
      : l.temporary(logits.shape, logits.dtype),
    best: l.temporary([rows, workgroups, 2], uint32),
    scratch,
    settings: end?.settings && settingsOf(l, value(end.settings)),
    recent,
    spec: {
      DTYPE_OUT: logits.dtype.code,
      RECENT: recent ? sizeOf(recent.shape) / rows : 0,
      PENALTY: float32Bits(end?.penalty?.factor ?? 1),
      SCRATCH_WORDS: scratch?.shape[1] ?? 0,
    },
  };
}

/** Whether the head can end a step alone: nothing but the largest logit matters. */
export function endsInHead(end: SamplingTail): boolean {
  return !needsAll(end) && !end.penalty;
}

/** The results of a step's end, at the old values of the state. `value` and `done` are those of the decoder. */
export function replaced(
  end: SamplingTail,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): DrawBuffers {
  const replace = (update: StateUpdate): Value => {
    const bound = value(update.parameter);
    done(update.value, bound);
    return bound;
  };
  return {
    next: replace(end.next),
    position: replace(end.position),
    key: end.key && replace(end.key),
    rings: end.rings.map(replace),
  };
}

/**
 * Emits the choice of a token from the head's results: into `token`, or with `end` to where the state's new values replace the
 * old ones. `value` and `done` are those of the decoder.
 */
export function emitSamplingTail(
  l: Lowering,
  head: HeadResults,
  rows: number,
  { vocabulary, token, end }: Pick<DecoderHead, "vocabulary" | "token" | "end">,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const emit = (buffers: DrawBuffers): void => emitDraw(l, end?.choice ?? LARGEST, rows, vocabulary, head, buffers);
  if (end) {
    const buffers = replaced(end, value, done);
    if (end.fed) l.copy(value(end.fed), buffers.position!);
    emit(buffers);
    emitTailLogprobs(l, head, rows, vocabulary, end, buffers, value, done);
  } else if (token) {
    const out = l.temporary(token.shape, token.dtype);
    emit({ out });
    done(token, out);
  }
}

/**
 * Emits the end of a step that only chooses tokens, from logits (rows, vocabulary): the new values of the state replace the old ones.
 * `value` and `done` are those of the fusion.
 */
export function emitChoiceStep(
  l: Lowering,
  end: SamplingTail,
  logits: Value,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const buffers = replaced(end, value, done);
  const ring = end.logprobs && ringOf(end.logprobs, value, done);
  const settings = end.settings && settingsOf(l, value(end.settings));
  const mask = end.mask && l.contiguous(value(end.mask));
  const of = (part: (v: Value) => Value): DrawBuffers => {
    const { next, position, key, rings = [] } = buffers;
    return {
      next: part(next!),
      position: part(position!),
      key: key && part(key),
      rings: rings.map((all) => part({ ...all, shape: [logits.shape[0], ringSize(all)] })),
    };
  };
  if (!needsAll(end)) {
    return emitLargest(l, end.choice, { logits, mask }, of((v) => v));
  }
  forEachRowBlock(l, { logits, settings, mask }, true, (source, rows, cols, part) => {
    const own = of(part);
    emitDraw(l, end.choice, rows, cols, source, own);
    if (ring) emitTailLogprobsOf(l, end.logprobs!.top, rows, cols, source, own.next!, own.position, part(ring));
  });
}

/** The ring (rows, size, n) that gets what a step's end tells of its token. */
function ringOf(
  update: StateUpdate,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): Value {
  const ring = value(update.parameter);
  done(update.value, ring);
  return ring;
}

/** Emits what a step's end tells of its token, if anything, once `buffers` have it. `value` and `done` are those of the decoder. */
export function emitTailLogprobs(
  l: Lowering,
  head: DrawSource,
  rows: number,
  vocabulary: number,
  { logprobs }: SamplingTail,
  { next, position }: DrawBuffers,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  if (!logprobs) return;
  const ring = ringOf(logprobs, value, done);
  emitTailLogprobsOf(l, logprobs.top, rows, vocabulary, head, next!, position, {
    ...ring,
    shape: [rows, ...ring.shape.slice(-2)],
  });
}
