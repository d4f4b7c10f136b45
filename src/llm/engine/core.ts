/**
 * Requests that were checked, on one model: they share the device step by step and the memory page by page.
 *
 * A {@link Scheduler} orders steps, a {@link Runner} runs them, and this file moves tokens from them to the requests. While the device
 * does a step, the host takes the tokens of the one before and schedules the next. An `Engine` adds requests at any time;
 * `batchGenerate` adds all of them at once.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import type { Dtype } from "../../array/mod.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import { SubmissionSizer, succeeded } from "../decode/submission_sizer.ts";
import { LlmError } from "../error.ts";
import { KvPool } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import type { LogitsProcessor } from "../sampling/options.ts";
import { EngineDrafts, MAX_ROWS } from "./drafts.ts";
import { tileOf } from "./forward_batch.ts";
import { HeadDrafts } from "./head_drafts.ts";
import type { Job } from "./job.ts";
import { Runner } from "./runner.ts";
import { type Drafts, Scheduler, type SchedulerOptions } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import { type Step, type StepResult, type StepRow, type Submitted, tokenCountOf } from "./step.ts";

/** Milliseconds after which other tasks of the event loop get their turn. */
const TURN_MS = 2;
/** Most submissions on their way. */
const MAX_DEPTH = 2;

/** What a core may use, and what its requests have in common. */
export interface CoreOptions
  extends
    Omit<SchedulerOptions, "pageSize" | "groups" | "maxPrefixPages" | "maxPrompts" | "maxTogether" | "prefillTile"> {
  /** The dtype of the pages; default that of the model. */
  readonly kvDtype?: Dtype;
  /** Whether the head of the model may draft, which then is a part of all steps. Default false. */
  readonly draftHead?: boolean;
  /** Change the logits of all requests, which then have one context size, after bias and penalties of their own. Default none. */
  readonly processors?: readonly LogitsProcessor[];
  /** Resolves when the callers want the next tokens. Default at once. */
  readonly pace?: () => Promise<void>;
}

/** Tokens of prompts, those of them that were not read again, tokens that were generated, and those of them that were drafted. */
interface TokenCounts {
  promptTokens: number;
  cachedTokens: number;
  generationTokens: number;
  acceptedTokens: number;
}

/** The same, with all tokens that were drafted. */
interface CoreCounts extends Readonly<TokenCounts> {
  readonly draftedTokens: number;
  readonly preemptions: number;
}

/** Runs requests. */
export class EngineCore implements AsyncDisposable {
  readonly #model: DecodingModel;
  readonly #scheduler: Scheduler;
  readonly #pool: KvPool;
  readonly #runner: Runner;
  readonly #drafts: EngineDrafts;
  /** Drafts by the head of the model; absent where the pool has no place for it. */
  readonly #head: HeadDrafts | undefined;
  readonly #pace: (() => Promise<void>) | undefined;
  /** Requests that a step may still concern, by the number of their sequence. */
  readonly #jobs = new Map<number, Job>();
  /** Steps on their way. */
  readonly #flight: Submitted[] = [];
  readonly #counts: TokenCounts = { promptTokens: 0, cachedTokens: 0, generationTokens: 0, acceptedTokens: 0 };
  #sizer = new SubmissionSizer(undefined);
  /** Requests with a grammar that steps may concern. */
  #constrained = 0;
  #loop: Promise<void> | undefined;
  #failure: unknown;

  /** Takes no memory before the first request. */
  constructor(model: DecodingModel, { kvDtype, draftHead = false, processors = [], pace, ...options }: CoreOptions) {
    if (model.group) {
      throw new LlmError(
        "option",
        "A model whose parts other processes have takes one request at a time: use generate()",
      );
    }
    const sizes = model.poolSizes(draftHead);
    this.#model = model;
    this.#scheduler = new Scheduler({
      ...options,
      ...(sizes.groups && { groups: sizes.groups }),
      pageSize: PAGE,
      maxPrompts: model.attendsInPages ? Infinity : 1,
      maxTogether: model.device.maxPreciseRows, // so that the tokens of a request do not depend on its company
      prefillTile: tileOf(model.device),
    });
    const { pages, slots = 0 } = options;
    this.#pool = new KvPool({ ...sizes, dtype: kvDtype ?? sizes.dtype, pages, slots }, model.device.name);
    this.#runner = new Runner(model, this.#pool, (sequence) => this.#jobOf(sequence), processors);
    this.#drafts = new EngineDrafts({
      speculationOf: (sequence) => this.#jobOf(sequence)?.speculation,
      // A request that is aborted while it drafts is gone then.
      allowed: async (sequence, drafted, most) => await this.#jobs.get(sequence.id)?.allowed(drafted, most) ?? [],
      fail: (sequence, error) => {
        const job = this.#jobs.get(sequence.id);
        if (job) this.end(job, error);
      },
      isReady: (sequences, columns) => this.#runner.canVerify(sequences, columns),
      isConstrained: () => this.#constrained > 0,
      tiled: model.device.tiled,
      maxRows: draftHead ? MAX_ROWS.head : MAX_ROWS.fused,
    });
    this.#head = draftHead ? new HeadDrafts((sequences, count) => this.#runner.draft(sequences, count)) : undefined;
    this.#pace = pace;
  }

  /** Requests that have pages, and those that wait for some. */
  get running(): number {
    return this.#scheduler.running;
  }

  /** Requests that wait for pages. */
  get waiting(): number {
    return this.#scheduler.waiting;
  }

  /** Units of memory in use by requests and kept prefixes. */
  get usedPages(): number {
    return this.#scheduler.usedPages;
  }

  /** Tokens so far, and how often a request gave up its pages. */
  get counts(): CoreCounts {
    return { ...this.#counts, draftedTokens: this.#drafts.drafted, preemptions: this.#scheduler.preemptions };
  }

  /** What ended the core, so that it takes no more requests; undefined while it works. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Takes a request. Throws an {@link LlmError} where too many wait, or where its prompt never fits. */
  add(job: Job): void {
    const refusal = this.#scheduler.add(job.sequence);
    if (refusal) throw new LlmError(refusal.code === "queue" ? "busy" : "memory", refusal.message);
    this.#jobs.set(job.sequence.id, job);
    if (job.speculation?.byHead && this.#head) job.speculation.draftBy(this.#head.drafterFor(job.sequence));
    if (job.speculation) this.#drafts.begin(job.speculation);
    if (job.constrained) {
      this.#constrained++;
      void job.done.then(() => this.#constrained--);
    }
    this.#loop ??= this.#run();
  }

  /** Ends a request before its time, with an error where its caller is to get one. */
  end(job: Job, error?: unknown): void {
    if (job.ended) return;
    job.end(error);
    const { id, inFlight } = job.sequence;
    this.#scheduler.abort(id);
    if (inFlight === 0) this.#jobs.delete(id);
  }

  /** Ends all requests and frees what they used. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const job of this.#jobs.values()) this.end(job);
    for (const submitted of this.#flight) submitted.drop();
    await this.#loop;
    this.#runner[Symbol.dispose]();
    this.#pool[Symbol.dispose]();
  }

  #jobOf({ id }: Sequence): Job {
    return this.#jobs.get(id)!;
  }

  /** Runs steps until no request is left. */
  async #run(): Promise<void> {
    try {
      await setImmediate(); // requests that come together are scheduled together
      await this.#runSteps();
    } catch (error) {
      this.#failure ??= error;
      await Promise.allSettled(this.#flight.splice(0).map((submitted) => submitted.done()));
      for (const job of this.#jobs.values()) this.end(job, error);
      this.#jobs.clear();
      this.#loop = undefined;
    }
  }

  async #runSteps(): Promise<void> {
    const flight = this.#flight;
    /** Scheduled, but not submitted. */
    const pending: Step[] = [];
    this.#sizer = new SubmissionSizer(undefined);
    let turn = performance.now();
    for (;;) {
      for (;;) {
        if (performance.now() - turn > TURN_MS) {
          await setImmediate();
          turn = performance.now();
        }
        if (pending.length === 0) {
          const columns = this.#drafts.columnsFor(this.#scheduler.decoding);
          // Drafts follow tokens that are known, so nothing may be on its way.
          const isHeld = columns > 1 && flight.length > 0;
          const drafts = columns > 1 && !isHeld ? await this.#draft(columns) : undefined;
          // No other task runs from here to the end of the loop, so that it misses no request.
          const next = this.#schedule(isHeld, drafts);
          if (!next) break;
          pending.push(next);
        }
        const [step] = pending;
        if (flight.length > 0 && !(this.#hasPlace(step.kind) && this.#runner.canSubmit(step))) break;
        flight.push(await this.#runner.submit(pending.shift()!));
      }
      if (flight.length === 0) {
        this.#loop = undefined; // at once: the next request may come before the caller goes on
        return;
      }
      const [submitted] = flight;
      const asked = performance.now();
      if (!await succeeded({ ...submitted, count: 1 })) {
        if (this.#scheduler.hasStates) await this.#cancelFailed(pending);
        else pending.unshift(...await this.#takeBack());
        this.#sizer = new SubmissionSizer(undefined);
        continue;
      }
      flight.shift();
      const { step } = submitted;
      const time = this.#sizer.note(step.kind === "decode" ? step.steps : 0, submitted.submitted, asked);
      if (step.kind === "decode") this.#drafts.note(step, time);
      if (step.kind === "verify") {
        const chosen = step.rows.map((_, i) => submitted.tokens(i));
        this.#drafts.noteVerified(step, chosen, submitted.isFirst ?? false, time);
      }
      this.#sizer.grow();
      this.#scheduler.commit(step, await this.#take(submitted));
      this.#forget(step);
    }
  }

  /** Whether another step may be on its way. */
  #hasPlace(kind: Step["kind"]): boolean {
    // Where rows cost little, the host prepares a prompt while the device reads the one before.
    if (kind === "prefill" && this.#model.device.tiled) return this.#flight.length < MAX_DEPTH;
    // What a grammar allows next, the host has to know before.
    return this.#flight.length < (this.#constrained > 0 ? 1 : Math.min(MAX_DEPTH, this.#sizer.depth));
  }

  /** The next step that may be on its way beside the others. With `isHeld` it decodes nothing. */
  #schedule(isHeld: boolean, drafts: Drafts | undefined): Step | undefined {
    const promptsOnly = isHeld || !this.#hasPlace("decode");
    if (promptsOnly && !this.#hasPlace("prefill")) return undefined;
    return this.#scheduler.schedule(
      this.#constrained > 0 ? 1 : this.#drafts.fitting(this.#sizer.size, this.#scheduler.decoding),
      promptsOnly,
      drafts,
    );
  }

  #draft(columns: number): Promise<Drafts | undefined> {
    if (this.#head) this.#scheduler.growForDrafts(columns - 1); // the head writes to the pages of its drafts
    return this.#drafts.draft(this.#scheduler.decoding, columns);
  }

  /** The steps on their way, of which the first one failed, to be submitted again. */
  async #takeBack(): Promise<readonly Step[]> {
    const failed = this.#flight.splice(0);
    for (const later of failed.slice(1)) await succeeded({ ...later, count: 1 });
    this.#runner.reset();
    return failed.map(({ step }) => step);
  }

  /**
   * Takes back the steps on their way that did not end well, the first of all among them, and those that follow one. Others keep their results:
   * recurrent states cannot go back, so no step runs twice.
   */
  async #cancelFailed(pending: Step[]): Promise<void> {
    const flight = this.#flight.splice(0);
    const gone = new Set<Sequence>();
    const cancel = (step: Step): void => {
      this.#scheduler.cancel(step);
      for (const { sequence } of step.rows) gone.add(sequence);
      this.#forget(step);
    };
    for (const submitted of flight) {
      const { step } = submitted;
      const isWell = submitted !== flight[0] && await succeeded({ ...submitted, count: 1 });
      if (!isWell || step.rows.some(({ sequence }) => gone.has(sequence))) cancel(step);
      else {
        this.#scheduler.commit(step, await this.#take(submitted));
        this.#forget(step);
      }
    }
    while (pending.length > 0 && pending[0].kind !== "prefill") cancel(pending.shift()!);
    this.#runner.reset();
  }

  /**
   * Gives the tokens of a step to their requests: the first one of each, then the second ones. Says what the step comes to for each of its
   * rows.
   */
  async #take(submitted: Submitted): Promise<readonly StepResult[]> {
    const { step } = submitted;
    const rows = step.rows.map((row: StepRow, i) => {
      const job = this.#jobOf(row.sequence);
      const isWanted = !job.ended && tokenCountOf(row) > 0;
      return { job, chosen: isWanted ? submitted.tokens(i) : [], tokens: [] as number[] };
    });
    const most = Math.max(...rows.map(({ chosen }) => chosen.length));
    for (let j = 0; j < most; j++) {
      for (const [i, { job, chosen, tokens }] of rows.entries()) {
        if (job.ended || j >= chosen.length) continue;
        if (job.generated === 0) this.#countPrompt(job);
        if (job.speculation?.take()) this.#counts.acceptedTokens++;
        const { logprobs: top } = job.settings;
        job.push(chosen[j], top === undefined ? undefined : submitted.logprobs(i, j, top));
        if (chosen[j] < 0) continue;
        tokens.push(chosen[j]);
        this.#counts.generationTokens++;
      }
      if (this.#pace) await this.#pace();
    }
    return rows.map(({ job, tokens }) => ({ tokens, ended: job.ended }));
  }

  #countPrompt({ sequence: { promptLength, cached } }: Job): void {
    this.#counts.promptTokens += promptLength;
    this.#counts.cachedTokens += cached ?? 0;
  }

  /** Forgets requests that have ended and that no step on its way concerns. */
  #forget(step: Step): void {
    for (const { sequence: { id, status, inFlight } } of step.rows) {
      if (status === "ended" && inFlight === 0) this.#jobs.delete(id);
    }
  }
}
