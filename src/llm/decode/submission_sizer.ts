/**
 * How many steps of decoding are submitted at a time. At first few, since the time of one is not known. Then as many as keep the device
 * busy while text flows and a stop wastes little.
 *
 * @module
 */

import { MAX_STEPS } from "../../array/compile/loop.ts";
import { MegakernelFailure } from "../../graph/error.ts";
import type { StepTime } from "../speculation/draft_length.ts";

/** Milliseconds that the steps of one submission should take at most. */
const SUBMISSION_MS = 10;
/** Milliseconds of a step up to which another one is submitted ahead. So the device need not wait for the host. A stop waits for both. */
const MAX_AHEAD_MS = 40;
/** Steps of the first submission where their time is known. */
const FIRST_STEPS = 8;
/** So many times the time of its steps is one during which the machine may have stood still, unless the next submission is as slow. */
const STALL = 8;

/** Steps on their way to the device. */
export interface Submission {
  /** Tokens that they choose. Of drafts 0 until it is done: then those that count. */
  readonly count: number;
  /** When they were submitted, in milliseconds. */
  readonly submitted: number;
  /** Not all was submitted: the rest follows until it is done, and nothing may be submitted in between. */
  readonly partly?: boolean;
  done(): Promise<void>;
}

/** Whether the steps of a submission ended well. The one place that answers a {@link MegakernelFailure}: it warns, and the caller makes the steps again. */
export async function succeeded(submission: Submission): Promise<boolean> {
  try {
    await submission.done();
    return true;
  } catch (error) {
    if (!(error instanceof MegakernelFailure)) throw error;
    warnOnce(`vkmx: ${error.message}; it goes on with barriers`);
    return false;
  }
}

const warned = new Set<string>();

function warnOnce(line: string): void {
  if (!warned.has(line)) console.error(line);
  warned.add(line);
}

/** Milliseconds that a submission should take of a prompt that may be aborted. */
const PROMPT_MS = 60;
/** Share of the time of a token that a faster submission leaves: parts of a step take unlike times. */
const KEPT = 0.8;

/**
 * How much of a prompt that may be aborted is submitted at a time, on a device that cannot stop in the middle. It is a step if that is
 * fast, else parts of one, so that an abort leaves little work to finish. Results do not depend on it.
 */
export class PromptSizer {
  readonly #fast: boolean;
  #perToken: number | undefined;

  /** For a device that is likely to be fast, or not. */
  constructor(fast: boolean) {
    this.#fast = fast;
  }

  /** Whether a step of `count` tokens is to be submitted in parts. */
  inParts(count: number): boolean {
    return this.#perToken === undefined ? !this.#fast : this.#perToken * count > PROMPT_MS;
  }

  /** How many of the `parts` of a step of `count` tokens are submitted next. */
  parts(count: number, parts: number): number {
    const each = this.#perToken === undefined ? Infinity : this.#perToken * count / parts;
    return Math.max(1, Math.min(parts, Math.floor(PROMPT_MS / each)));
  }

  /** Takes the milliseconds of a submission of all work for `tokens`, or of a share of the work for more. */
  note(tokens: number, milliseconds: number): void {
    this.#perToken = Math.max(milliseconds / tokens, KEPT * (this.#perToken ?? 0));
  }
}

/** Sizes of submissions. */
export class SubmissionSizer {
  #perStep: number;
  #size: number;
  /** When the last submission was seen to have ended, and whether it ended just then. */
  #ended = -Infinity;
  #sharp = true;
  /** Whether the last submission took so much longer than others that the machine may have stood still. */
  #stalled = false;

  /** Begins with the milliseconds of a step, if they are known. */
  constructor(perStep: number | undefined) {
    this.#perStep = perStep ?? Infinity;
    this.#size = this.#fitting(FIRST_STEPS);
  }

  #fitting(steps: number): number {
    return Math.max(1, Math.min(steps, MAX_STEPS / 2, Math.floor(SUBMISSION_MS / this.#perStep)));
  }

  /** Milliseconds of a step; Infinity if they are not known yet. */
  get perStep(): number {
    return this.#perStep;
  }

  /** Steps of the next submission. */
  get size(): number {
    return this.#size;
  }

  /** Submissions on their way: one is ahead if that does not mean a long wait at the end. */
  get depth(): number {
    return this.#perStep <= MAX_AHEAD_MS ? 2 : 1;
  }

  /**
   * Records the end of the next submission: of `steps` steps, or of other work if 0. `submitted` is when it was made, `asked` when the host
   * began to wait. If the host began late, the time of a step is an upper bound. If it was late for the previous submission too,
   * the begin of this one is unknown. The same holds if all of the machine stood still, as in standby. Returns what is known of its time.
   */
  note(steps: number, submitted: number, asked: number, ended: number = performance.now()): StepTime {
    const before = this.#ended;
    const began = Math.max(submitted, before);
    const known = this.#sharp || submitted >= before;
    const each = (ended - began) / steps;
    this.#stalled = !this.#stalled && steps > 0 && each > STALL * this.#perStep;
    this.#sharp = 8 * (ended - asked) > ended - began && !this.#stalled;
    this.#ended = ended;
    if (steps > 0 && known && (this.#sharp || each < this.#perStep)) this.#perStep = each;
    return {
      milliseconds: known ? ended - began : Infinity,
      waited: known && this.#sharp,
      isSteady: submitted < before || ended - began >= SUBMISSION_MS,
      elapsed: ended - before,
    };
  }

  /** Lets submissions grow. */
  grow(): void {
    this.#size = this.#fitting(2 * this.#size);
  }
}
