/**
 * What the scheduler asks a runner for, and what the runner answers.
 *
 * @module
 */

import type { Logprobs } from "../sampling/logprobs_log.ts";
import type { PageCopy } from "./pages/sequence_pages.ts";
import type { Sequence } from "./sequence.ts";

/** Positions of a sequence that a step computes: `sequence.tables` has their pages. */
export interface StepRow {
  readonly sequence: Sequence;
  /** The first position that is written. */
  readonly from: number;
  /** How many are. */
  readonly count: number;
}

/** Reads `count` tokens of a prompt from `from` on: `sequence.tokens.slice(from, from + count)`. */
export interface PrefillRow extends StepRow {
  /** Whether the prompt ends with them, so that the next token is chosen. */
  readonly last: boolean;
  /** Copies to make before. */
  readonly copies: readonly PageCopy[];
  /** The slot whose states the sequence begins with; absent where it has its own already, or begins with nothing. */
  readonly restored?: number;
  /** The slot that the states are copied to afterwards, if they are kept. */
  readonly kept?: number;
}

/**
 * Reads a part of each of some prompts in one pass. In every layer all keys and values are written before any is read. So a row may have
 * whole pages that a row before it fills. Its copies are of pages that earlier steps filled.
 */
export interface PrefillStep {
  readonly kind: "prefill";
  readonly rows: readonly PrefillRow[];
}

/**
 * Generates `steps` tokens for each row. A row begins with its last token: the host knows that of a stepwise row, the device that of others.
 * A row with a lower `count` is stepwise or near its limit, and its further tokens are dropped. They are written where the next step of
 * the row writes, or to page 0 where `pages` has no room for them.
 */
export interface DecodeStep {
  readonly kind: "decode";
  readonly rows: readonly StepRow[];
  readonly steps: number;
}

/** Verifies drafted tokens: `count` is one more than there are. */
export interface VerifyRow extends StepRow {
  /** Tokens that may follow the last one of the sequence. */
  readonly drafted: readonly number[];
}

/**
 * Chooses a token after the last one of each row and after each drafted one, as if the draft were right up to there. A row gives its choices
 * up to the first one that is not the drafted token. The device computes `columns` positions of each row. Those after its draft are
 * written again before they are read, or belong to page 0.
 */
export interface VerifyStep {
  readonly kind: "verify";
  readonly rows: readonly VerifyRow[];
  readonly columns: number;
}

/** One submission to the device. */
export type Step = PrefillStep | DecodeStep | VerifyStep;

/** What a step gave for one of its rows. */
export interface StepResult {
  /**
   * The chosen tokens: `count` of them, or those up to the end; one after the last part of a prompt, none after others. Of a draft at least
   * one.
   */
  readonly tokens: readonly number[];
  /** Whether the sequence ends with them, by a stop token, a stop string or an error. The scheduler knows the limit itself. */
  readonly ended: boolean;
}

/** A step on its way. */
export interface Submitted {
  readonly step: Step;
  /** Whether it is the first one of a loop that verifies drafts. */
  readonly isFirst?: boolean;
  /** When it was submitted, in milliseconds. */
  readonly submitted: number;
  /** Resolves when the device has done it. */
  done(): Promise<void>;
  /** Leaves out the rest of it, where the device can; nothing of it may be read then. */
  drop(): void;
  /** The tokens that were chosen for a row of the step, afterwards; -1 where logits had NaN or infinity in them. */
  tokens(row: number): Int32Array;
  /** The log probabilities of token `i` of those. */
  logprobs(row: number, i: number, top: number): Logprobs;
}

/** How many tokens a step gives for a row that does not end; of a draft at most. */
export function tokenCountOf(row: StepRow | PrefillRow): number {
  return "last" in row ? Number(row.last) : row.count;
}

/** Throws where a runner gives other tokens than a row of a step that goes on, or more for one that ends. */
export function checkResult(kind: Step["kind"], row: StepRow | PrefillRow, { tokens, ended }: StepResult): void {
  const { id, status } = row.sequence;
  const count = tokenCountOf(row);
  const least = ended ? 0 : kind === "verify" ? 1 : count;
  if (status === "ended" || (tokens.length >= least && tokens.length <= count)) return;
  throw new Error(`a ${kind} step gives ${tokens.length} tokens for sequence ${id}, expected ${count}`);
}
