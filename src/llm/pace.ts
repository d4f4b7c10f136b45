/**
 * How many steps of decoding are submitted at a time: few while nobody knows how long one takes, then as many as keep the device busy
 * while text flows and a stop wastes little.
 *
 * @module
 */

import { FastPathFailure, MAX_STEPS } from "../array/loop.ts";

/** Milliseconds that the steps of one submission should take at most. */
const SUBMISSION_MS = 10;
/** Steps of the first submission where their time is known. */
const FIRST_STEPS = 8;

/** Steps on their way to the device. */
export interface Batch {
  readonly count: number;
  /** When they were submitted, in milliseconds. */
  readonly submitted: number;
  done(): Promise<void>;
}

/** Whether the steps of a batch ended well; a {@link FastPathFailure} says that they did not. */
export async function endsWell(batch: Batch): Promise<boolean> {
  try {
    await batch.done();
    return true;
  } catch (error) {
    if (error instanceof FastPathFailure) return false;
    throw error;
  }
}

/** Milliseconds that a chunk of a prompt may take: longer ones are halved, shorter ones doubled. */
const CHUNK_MS = { least: 35, most: 100 } as const;
/** Tokens of a chunk at least; and of the first one, on devices that are likely to be fast and on others. */
const LEAST_CHUNK = 16;
const FIRST_CHUNK = { fast: 512, other: 32 } as const;

/**
 * Sizes of the chunks in which prompts are read that may be aborted, where a device cannot stop in the middle of one: what is
 * abandoned is a chunk at most. Powers of two, since each size is a step to be traced.
 */
export class PromptPace {
  #size: number;

  /** For a device that is likely to be fast, or not. */
  constructor(fast: boolean) {
    this.#size = FIRST_CHUNK[fast ? "fast" : "other"];
  }

  /** Tokens of the next chunk. */
  get size(): number {
    return this.#size;
  }

  /** Takes the milliseconds of a chunk of `count` tokens. */
  note(count: number, milliseconds: number): void {
    if (count < this.#size) return;
    const { least, most } = CHUNK_MS;
    if (milliseconds > most) {
      this.#size = Math.max(LEAST_CHUNK, this.#size / 2 ** Math.ceil(Math.log2(milliseconds / most)));
    } else if (milliseconds < least) this.#size *= 2;
  }
}

/** Sizes of submissions. */
export class Pace {
  #perStep: number;
  #size: number;
  /** When the last submission was seen to have ended, and whether it ended just then. */
  #ended = -Infinity;
  #sharp = true;

  /** Begins with the milliseconds of a step, where they are known. */
  constructor(perStep: number | undefined) {
    this.#perStep = perStep ?? Infinity;
    this.#size = this.#fitting(FIRST_STEPS);
  }

  #fitting(steps: number): number {
    return Math.max(1, Math.min(steps, MAX_STEPS / 2, Math.floor(SUBMISSION_MS / this.#perStep)));
  }

  /** Milliseconds of a step; Infinity where they are not known yet. */
  get perStep(): number {
    return this.#perStep;
  }

  /** Steps of the next submission. */
  get size(): number {
    return this.#size;
  }

  /** Submissions on their way: one is ahead where that does not mean a long wait at the end. */
  get depth(): number {
    return this.#perStep <= SUBMISSION_MS ? 2 : 1;
  }

  /**
   * Takes the end of the next submission, of `steps` steps or, with 0, of something else: when it was made, and since when the host has
   * waited for it. Where the host came late to that, a step may have taken less; where it came late to the end of the submission
   * before, nobody knows when this one began.
   */
  note(steps: number, submitted: number, asked: number, ended: number = performance.now()): void {
    const began = Math.max(submitted, this.#ended);
    const known = this.#sharp || submitted >= this.#ended;
    this.#sharp = 8 * (ended - asked) > ended - began;
    this.#ended = ended;
    const each = (ended - began) / steps;
    if (steps > 0 && known && (this.#sharp || each < this.#perStep)) this.#perStep = each;
  }

  /** Lets submissions grow. */
  grow(): void {
    this.#size = this.#fitting(2 * this.#size);
  }
}
