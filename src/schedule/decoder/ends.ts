/**
 * What a decoder begins and ends with: a token's row of a table, and a head with the choice of the next token. A part of a model has hidden
 * states in their places.
 *
 * @module
 */

import type { Dtype } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import type { Choice } from "../ops/sampling.ts";
import type { StateUpdate } from "../plan/fusion.ts";
import { type Matrix, rowCount } from "../plan/pattern.ts";

/** The row of a token in a table times a factor, both rounded to a dtype, and so is the result. */
export interface TokenRow {
  readonly ids: Node;
  readonly table: Matrix;
  readonly scale: number;
  readonly dtype: Dtype;
}

/** New values of a loop's state, by the parameter that they replace. */
export interface SamplingTail {
  /** How the token is chosen. */
  readonly choice: Choice;
  /** float32 (rows, 4), where it draws: the settings of each row, as op `sample` takes them. */
  readonly settings: Node | undefined;
  /** Which tokens may be chosen, as op `sample` takes it. */
  readonly mask: Node | undefined;
  /** Recent tokens (n,) whose logits are multiplied by `factor` where negative and divided by it elsewhere. */
  readonly penalty: { readonly recent: Node; readonly factor: number } | undefined;
  /** The token. */
  readonly next: StateUpdate;
  /** Position + 1. */
  readonly position: StateUpdate;
  /** The position of the token that was fed, if it is not the state's. */
  readonly fed: Node | undefined;
  /** Random key: the half of it that is not for this draw. */
  readonly key: StateUpdate | undefined;
  /** Arrays with the token written at position + 1 modulo their size, at most {@link MAX_RINGS}. */
  readonly rings: readonly StateUpdate[];
  /** A ring of log probabilities of the token and the `top` most probable ones, written in the same way. */
  readonly logprobs: (StateUpdate & { readonly top: number }) | undefined;
}

/** All state that a step's end updates. */
export function updatesOf({ next, position, key, rings, logprobs }: SamplingTail): readonly StateUpdate[] {
  return [next, position, ...(key ? [key] : []), ...rings, ...(logprobs ? [logprobs] : [])];
}

/** Rings that a step can end with. */
export const MAX_RINGS = 2;

/** The last norm, the head and what reads the logits. */
export interface DecoderHead {
  readonly norm: Node;
  readonly head: Matrix;
  readonly vocabulary: number;
  /** The result (sequences, …, vocabulary), or (sequences, tokens, vocabulary) of chunks. */
  readonly logits: Node;
  /** Its argmax. */
  readonly token: Node | undefined;
  /** Whether anything but the argmax reads the logits. */
  readonly keepsLogits: boolean;
  /** State of a loop that the logits replace and nothing reads: they are written there. */
  readonly logitsState: Node | undefined;
  /** The end of a step of a loop, where the token is all that the state's rest needs. */
  readonly end: SamplingTail | undefined;
}

/** The residual after the last layer, of a decoder whose next layers are on another device. */
export interface DecoderHidden {
  /** (sequences, …, hidden), or (sequences, tokens, hidden) of chunks, rounded to its dtype. */
  readonly hidden: Node;
  /** State of a loop that it replaces and nothing reads: it is written there. */
  readonly hiddenState: Node | undefined;
}

/** A decoder as far as its ends go. */
export interface DecoderEnds {
  readonly x: Node | TokenRow;
  readonly out: DecoderHead | DecoderHidden;
}

/** Its head, if it has one. */
export function headOf({ out }: Pick<DecoderEnds, "out">): DecoderHead | undefined {
  return "head" in out ? out : undefined;
}

/** The table of its embedding, if it has one. */
export function tableOf({ x }: Pick<DecoderEnds, "x">): Matrix | undefined {
  return "table" in x ? x.table : undefined;
}

/** The matrices at its ends. */
export function endMatrices(ends: DecoderEnds): readonly Matrix[] {
  return [headOf(ends)?.head, tableOf(ends)].filter((matrix) => matrix !== undefined);
}

/** Its result, which stands for it in the order of a graph. */
export function resultOf({ out }: Pick<DecoderEnds, "out">): Node {
  return "head" in out ? out.logits : out.hidden;
}

/** How many tokens its ends know; 1 where it has none. */
export function vocabularyOf(ends: DecoderEnds): number {
  const table = tableOf(ends);
  return headOf(ends)?.vocabulary ?? (table ? rowCount(table) : 1);
}
