/**
 * Steps that verify drafted tokens: a loop for each number of columns, over the state that ordinary steps advance too. The host drafts from
 * the tokens that it has seen, so nothing else is on its way meanwhile.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { DeviceLoop, TracedStep, writeState } from "../../array/compile/loop.ts";
import { type Key, keyAfter, keysBefore } from "../../array/random/keys.ts";
import { acceptedOf } from "../speculation/acceptance.ts";
import { COLUMNS, DraftBudget, DraftCosts, type StepTime, type VerifiedStep } from "../speculation/draft_length.ts";
import type { Speculation } from "../speculation/speculation.ts";
import type { DecodeContext, Traced } from "./context.ts";
import { HeadDrafter } from "./head_drafter.ts";
import { PipelinesAhead } from "./pipelines_ahead.ts";
import { type DraftInputs, draftInputs, verifyStep } from "./verify.ts";
import { fromLog } from "./state.ts";
import type { StepLoop } from "./steps.ts";
import type { Submission } from "./submission_sizer.ts";
import type { PromptSubmitter } from "./submit.ts";

/** What steps of a model's sessions cost, by what drafts and whether the host waits for each step because of a grammar. */
const costs = new WeakMap<object, Map<string, DraftCosts>>();

function costsOf({ model, sequence: { constraint } }: DecodeContext, { byHead }: Speculation): DraftCosts {
  const all = costs.get(model) ?? new Map<string, DraftCosts>();
  costs.set(model, all);
  const kind = `${byHead ? "head" : "others"} ${constraint === undefined ? "free" : "constrained"}`;
  const known = all.get(kind) ?? new DraftCosts();
  all.set(kind, known);
  return known;
}

/** A loop of steps of some columns. */
interface DraftLoop {
  readonly inputs: DraftInputs;
  readonly loop: DeviceLoop<unknown>;
}

/** Drafts tokens of a session and verifies them. With a grammar a draft ends before the first token that it forbids. */
export class DraftedSteps implements Disposable {
  readonly #context: DecodeContext;
  readonly #submitter: PromptSubmitter;
  readonly #steps: StepLoop;
  readonly #speculation: Speculation;
  readonly #costs: DraftCosts;
  readonly #budget: DraftBudget;
  /** The last step that verified drafts, until its time is noted. */
  #verified: VerifiedStep | undefined;
  /** Columns that the next draft should have; 1 for none. */
  #columns = 1;
  readonly #loops = new Map<number, DraftLoop>();
  readonly #ahead: PipelinesAhead;
  /** The head, if that drafts. */
  readonly #head: HeadDrafter | undefined;
  /** Capacity of the cache that the loops are for. */
  #capacity = 0;
  /** Tokens of the sequence that the drafter has. */
  #known = 0;
  /** State of the random numbers after so many tokens. */
  #key: { readonly after: number; readonly state: Key } | undefined;

  constructor(context: DecodeContext, submitter: PromptSubmitter, steps: StepLoop, speculation: Speculation) {
    this.#context = context;
    this.#submitter = submitter;
    this.#steps = steps;
    this.#speculation = speculation;
    this.#ahead = new PipelinesAhead(context.model.traces);
    this.#costs = costsOf(context, speculation);
    this.#budget = new DraftBudget(this.#costs);
    speculation.acceptance.expect(this.#costs.acceptance);
    if (!speculation.byHead) return;
    this.#head = new HeadDrafter(context, submitter);
    speculation.draftBy(this.#head);
  }

  /** Whether a draft is worth verifying next. */
  get wanted(): boolean {
    if (this.#ahead.busy) return false;
    const { sequence } = this.#context;
    this.#speculation.extend(sequence.after(this.#known));
    this.#known = sequence.lastStep;
    this.#columns = this.#speculation.matches ? this.#columnsWanted() : 1;
    return this.#columns > 1;
  }

  #columnsWanted(): number {
    const { acceptance, most, adaptive } = this.#speculation;
    if (!adaptive) return most + 1;
    return this.#budget.columnsFor({ sequences: 1, drafting: [{ acceptance, most }], maxColumns: COLUMNS.at(-1)! });
  }

  /** How many of `size` ordinary steps to submit at a time: one where drafts are wanted whatever they cost. */
  fitting(size: number): number {
    return this.#budget.fitting(size, !this.#speculation.adaptive);
  }

  /** Notes ordinary steps that are done. */
  note(steps: number, time: StepTime): void {
    this.#budget.note(1, steps, time);
  }

  /** Notes the time of the last step with drafts, which is done. */
  noteDrafts({ elapsed }: StepTime): void {
    if (this.#verified) this.#budget.noteDrafts(this.#verified, elapsed);
    this.#verified = undefined;
  }

  /**
   * Drafts tokens after those that were taken, and submits the step that verifies them. No other step may be on its way. `undefined` where there
   * is no draft, the cache has no room for one before it grows, or the pipelines are still being made.
   */
  async submit(): Promise<Submission | undefined> {
    const { cache, sequence } = this.#context;
    const submitted = performance.now();
    const room = Math.min(cache.capacity, cache.limit) - cache.offset;
    const most = Math.min(room, sequence.limit - sequence.lastStep) - 1;
    const count = Math.min(most, this.#columns - 1, this.#speculation.most);
    const guessed = await this.#speculation.draft(count);
    const drafted = await sequence.constraint?.draft(guessed, count) ?? guessed;
    const columns = COLUMNS.find((count) => count > drafted.length)!;
    if (drafted.length === 0 || columns > room) return undefined;
    const isFirst = !this.#loops.has(columns) || this.#capacity !== cache.capacity;
    const one = this.#loopOf(columns);
    if (!one) return undefined;
    // The last token again where the draft has fewer than there are columns: what follows it is not taken.
    const fed = Array.from({ length: columns - 1 }, (_, i) => drafted[Math.min(i, drafted.length - 1)]);
    this.#write(one.inputs, [...sequence.tokens.slice(-1), ...fed], drafted.length);
    await this.#allow(one.inputs);
    const ticket = one.loop.run(1);
    const submission = { count: 0, submitted, done: () => finish() };
    const finish = async (): Promise<void> => {
      await this.#submitter.done(one.loop, ticket, 0, true);
      const { scalars: { log }, state } = this.#context;
      const accepted = acceptedOf(fromLog(log, 0, sequence.last + sequence.lastStep + 1, columns), drafted);
      this.#speculation.note(drafted.length, accepted);
      this.#costs.acceptance.note(drafted.length, accepted);
      const { acceptance: { misses }, adaptive } = this.#speculation;
      this.#verified = { sequences: 1, columns, tokens: accepted + 1, misses, isFirst, isFixed: !adaptive };
      submission.count = accepted + 1;
      state.advance(submission.count);
    };
    return submission;
  }

  /** The loop of some columns over the cache as it is now; `undefined` while its pipelines are being made. */
  #loopOf(columns: number): DraftLoop | undefined {
    const { cache: { capacity }, scalars: { key }, model, options, sequence, state } = this.#context;
    if (this.#capacity !== capacity) this.#end();
    this.#capacity = capacity;
    const known = this.#loops.get(columns);
    if (known) return known;
    const masked = sequence.constraint && model.config.vocabSize;
    const inputs = draftInputs(columns, key !== undefined, masked);
    const all = { ...state.all, ...inputs };
    const traced = this.#context.traced("verify", all, (now) => verifyStep(model, options, now)) as Traced<unknown>;
    if (!this.#ahead.has(traced)) {
      mx.dispose(inputs);
      return undefined;
    }
    if (traced instanceof TracedStep) this.#steps.alsoImprove(traced);
    const loop = { inputs, loop: new DeviceLoop<unknown>(all, traced) };
    this.#loops.set(columns, loop);
    return loop;
  }

  /** Whether the next ordinary step is likely to be followed by a draft. */
  get isLikely(): boolean {
    const { acceptance: { misses }, matches } = this.#speculation;
    return misses === 0 && matches;
  }

  /** Writes the tokens of a step, `count` of which are drafted, and the states of its random numbers. */
  #write({ ids, drafted, keyStates }: DraftInputs, tokens: readonly number[], count: number): void {
    writeState(ids, Int32Array.from(tokens));
    writeState(drafted, Int32Array.of(count));
    if (!keyStates) return;
    writeState(keyStates, Uint32Array.from(keysBefore(this.#keyNow(), tokens.length).flat()));
  }

  /** Writes what the tokens of a step may be, where a grammar says that. Choices after the draft do not count, so their masks stay. */
  async #allow({ mask }: DraftInputs): Promise<void> {
    const { sequence: { constraint } } = this.#context;
    if (!constraint || !mask) return;
    const masks = await constraint.masks();
    const words = mask.shape[1];
    const written = new Uint32Array(masks.length * words);
    for (const [i, one] of masks.entries()) written.set(one, i * words);
    writeState(mask, written);
  }

  /** State of the random numbers after the tokens that were taken. */
  #keyNow(): Key {
    const { key, lastStep } = this.#context.sequence;
    const { after, state } = this.#key ?? { after: 0, state: key! };
    this.#key = { after: lastStep, state: keyAfter(state, lastStep - after) };
    return this.#key.state;
  }

  /** Ends the loops when steps on their way are done. */
  #end(): void {
    for (const { loop, inputs } of this.#loops.values()) {
      this.#context.ended.push(loop, { [Symbol.dispose]: () => mx.dispose(inputs) });
    }
    this.#loops.clear();
  }

  /** Frees the loops; the next step makes others. Nothing may be on its way. */
  release(): void {
    for (const { loop, inputs } of this.#loops.values()) {
      loop[Symbol.dispose]();
      mx.dispose(inputs);
    }
    this.#loops.clear();
    this.#head?.release();
  }

  /** Frees all. */
  [Symbol.dispose](): void {
    this.release();
    this.#head?.[Symbol.dispose]();
  }
}
