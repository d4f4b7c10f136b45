/**
 * Steps whose tokens are constrained. The allowed next tokens depend on the previous one, which the host has to see first. So a step is
 * two. The logits of the next token are computed as soon as a token is chosen, and the host makes the mask meanwhile. Then the token is
 * chosen from both.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, writeState } from "../../array/compile/loop.ts";
import type { DecodeContext, Traced } from "./context.ts";
import { chooseStep, type ForwardState, forwardStep, type Masking, maskingOf } from "./state.ts";
import type { StepLoop, StepOver } from "./steps.ts";
import type { PromptSubmitter } from "./submit.ts";
import type { Buffers } from "../kv/cache.ts";
import type { Submission } from "./submission_sizer.ts";

/** Chooses tokens by masks, from logits that the loop of steps computes. */
export class MaskedSteps {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #steps: StepLoop;
  /** The rest of the state. */
  #masking: Masking | undefined;
  #chooser: DeviceLoop<unknown> | undefined;
  /** The loop that computes the logits, and whether those after the last token are on their way. */
  #forward: DeviceLoop<unknown> | undefined;
  #forwarded = false;

  /** Over the loop of what {@link forwardOver} gives. */
  constructor(context: DecodeContext, submitter: PromptSubmitter, steps: StepLoop) {
    this.#context = context;
    this.#submitter = submitter;
    this.#steps = steps;
  }

  /** Computing logits over a cache of such buffers. */
  readonly forwardOver: StepOver = (buffers) => {
    const state = this.forwardState(buffers);
    const { model } = this.#context;
    return [state, this.#context.traced("forward", state, (now) => forwardStep(model, now)) as Traced<unknown>];
  };

  /** The state of computing logits. */
  forwardState(buffers: Buffers = this.#context.cache.buffers): ForwardState {
    const { token, position, head } = this.#context.scalars;
    const { logits } = this.#masking ??= maskingOf(this.#context.model);
    return { token, position, head, logits, ...buffers };
  }

  /** Chooses the first token, from the logits after a prompt that was read. */
  async chooseFirst(): Promise<void> {
    const chooser = this.#chooseLoop();
    await this.#writeMask();
    await this.#submitter.done(chooser, chooser.run(1), 0, true);
  }

  /**
   * Submits the choice of the next tokens, and before it the logits if they are not on their way. With `more` it also submits the logits
   * after these tokens, which the device computes while the host makes the next mask.
   */
  async submit(more: boolean): Promise<Submission> {
    const cache = this.#context.cache;
    if (!this.#forwarded) this.#forward = this.#steps.run();
    const forward = this.#forward!;
    const chooser = this.#chooseLoop();
    await this.#writeMask();
    const submitted = performance.now();
    const ahead = more && cache.offset < Math.min(cache.capacity, cache.limit);
    const ticket = ahead ? this.#steps.runAfter(chooser, forward) : chooser.run(1);
    this.#forwarded = ahead;
    const done = async (): Promise<void> => {
      await this.#submitter.done(chooser, ticket, 0, true);
      await forward.done(ticket); // whether the logits before it ended well
    };
    return { count: 1, submitted, done };
  }

  /** Takes back logits that were computed ahead. */
  async dropForward(): Promise<void> {
    if (!this.#forwarded) return;
    await this.#forward!.done().catch(() => {}); // no caller needs them
    this.#context.state.takeBack(1);
    this.#forwarded = false;
  }

  /** The loop that chooses tokens. */
  #chooseLoop(): DeviceLoop<unknown> {
    if (this.#chooser) return this.#chooser;
    const { options, scalars } = this.#context;
    const state = { ...scalars, ...this.#masking! };
    return this.#chooser = new DeviceLoop<unknown>(
      state,
      this.#context.traced("choose", state, (now) => chooseStep(options, now)) as Traced<unknown>,
    );
  }

  /** Writes what the next token may be, after the last choice. */
  async #writeMask(): Promise<void> {
    const words = await this.#context.sequence.constraint!.mask();
    const { mask } = this.#masking!;
    writeState(mask, new Uint32Array(words)); // a copy: the mask is in shared memory
  }

  /** Frees the choice and its state. */
  release(): void {
    this.#chooser?.[Symbol.dispose]();
    this.#chooser = undefined;
    if (this.#masking) mx.dispose(this.#masking);
    this.#masking = undefined;
  }
}
