/**
 * Random traces of an engine's scheduler: requests arrive, end and are aborted at any time. Pools are tiny, beginnings shared, and there are
 * priorities and steps on their way. Pages, tree and lists are checked after every step. Each request has to get exactly the
 * tokens that it gets alone.
 *
 * VKMX_TEST_SEED draws the traces. A failure says which trace it was.
 */

import { assert, assertEquals } from "@std/assert";
import { Random } from "../../../scripts/fuzz/random.ts";
import { type Drafts, Scheduler, type SchedulerOptions } from "../../../src/llm/engine/scheduler.ts";
import { isDecoding, Sequence } from "../../../src/llm/engine/sequence.ts";
import type { PrefillRow, PrefillStep, Step } from "../../../src/llm/engine/step.ts";
import { ONE_GROUP, type PageGroups, type PageTable } from "../../../src/llm/kv/page_groups.ts";
import { SEED, TIER } from "../../support/tier.ts";
import { FakeRunner, generateAlone } from "./fake_runner.ts";

const TRACES = TIER === "full" ? 10_000 : 1_000;

/** A request of a trace. */
interface Request {
  readonly sequence: Sequence;
  readonly prompt: readonly number[];
  readonly maxTokens: number;
  /** Its tokens alone, those of the prompt included. */
  readonly alone: readonly number[];
  aborted: boolean;
}

/** How often something happened, so that traces in which it does not are noticed. */
type Counts = Record<
  | "preempted"
  | "copied"
  | "cached"
  | "aborted"
  | "dropped"
  | "queueFull"
  | "tooLong"
  | "several"
  | "waited"
  | "restored"
  | "together"
  | "shared"
  | "passed"
  | "resumed"
  | "verified"
  | "accepted"
  | "rejected"
  | "failed",
  number
>;

/** In how many traces something happens once at least, where that is not in ten. */
const RARE: ReadonlyMap<string, number> = new Map([["shared", 100], ["resumed", 50]]);

/** Groups of layers with a window, and maybe others; of one kind several share a slot. */
function drawGroups(random: Random): PageGroups {
  const [full, windowed] = [random.below(3), 1 + random.below(3)];
  const ratios = random.pick([[1, 1], [1, 1], [2, 1], [1, 3]]);
  const tables = [full, windowed].flatMap((units, kind) =>
    Array.from({ length: units * ratios[kind] }, (_, i): PageTable => ({
      windowed: kind === 1,
      unit: Math.floor(i / ratios[kind]),
      ratio: ratios[kind],
      part: i % ratios[kind],
    }))
  );
  return { window: 1 + random.below(10), full, windowed, tables };
}

/** Most positions of a sequence that has so many units. At each one, it has a page of each kind for all that it sees. */
function positionsIn({ full, windowed, window }: PageGroups, units: number, pageSize: number): number {
  let most = 0;
  for (let at = 0; at < 1_000; at++) {
    const last = Math.floor(at / pageSize);
    const first = Math.floor(Math.max(0, at - window + 1) / pageSize);
    most = Math.max(most, windowed === 0 ? 0 : last - first + 1);
    if ((last + 1) * full + most * windowed > units) return last * pageSize;
  }
  return Infinity;
}

/** One trace. */
class Trace {
  readonly #random: Random;
  readonly #options: Required<SchedulerOptions>;
  readonly #scheduler: Scheduler;
  readonly #runner: FakeRunner;
  /** Positions that fit. */
  readonly #capacity: number;
  readonly #requests: Request[] = [];
  readonly #depth: number;
  readonly #maxSteps: number;
  readonly #prefixes: readonly (readonly number[])[];
  readonly #counts: Counts;
  #toCome: number;
  #read = 0;

  constructor(random: Random, counts: Counts) {
    this.#random = random;
    this.#counts = counts;
    const groups = random.once(2) ? ONE_GROUP : drawGroups(random);
    const pages = 2 + (1 + random.below(20)) * (groups.full + groups.windowed);
    const maxSequences = 1 + random.below(6);
    const slots = random.once(2) ? 0 : 1 + maxSequences + random.below(8);
    this.#options = {
      pages,
      groups,
      slots,
      pageSize: random.pick([1, 1, 2, 4, 4, 5]),
      maxSequences,
      tokenBudget: random.once(6) ? Infinity : 1 + random.below(40),
      prefillStepSize: 1 + random.below(40),
      maxPrompts: random.pick([1, 2, 3, Infinity, Infinity]),
      maxTogether: random.pick([Infinity, Infinity, 1 + random.below(30)]),
      prefillTile: random.pick([1, 1, 2, 4]),
      maxQueue: random.below(6),
      maxPrefixPages: random.pick([0, random.below(pages), pages, pages, pages]),
    };
    this.#scheduler = new Scheduler(this.#options);
    this.#capacity = positionsIn(groups, pages - 1, this.#options.pageSize);
    this.#runner = new FakeRunner(pages, this.#options.pageSize, groups, slots);
    this.#depth = 1 + random.below(3);
    this.#maxSteps = 1 + random.below(6);
    this.#prefixes = Array.from({ length: 3 }, () => this.#drawTokens(random.below(24)));
    this.#toCome = 1 + random.below(14);
  }

  /** Runs it to its end. */
  run(): void {
    for (let turn = 0; this.#toCome > 0 || this.#isBusy(); turn++) {
      assert(turn < 5_000, "the trace does not end");
      if (this.#toCome > 0 && (this.#random.once(3) || !this.#isBusy())) {
        do this.#arrive(); while (this.#toCome > 0 && !this.#random.once(3)); // prompts that come together are read together
      }
      if (this.#random.once(25)) this.#abort();
      const step = this.#scheduler.inFlight < this.#depth ? this.#schedule() : undefined;
      if (!step && this.#scheduler.inFlight > 0) this.#commit();
      else assert(step || !this.#isBusy(), "nothing is on its way, and somebody waits");
    }
    for (const { sequence, alone, aborted } of this.#requests) {
      assertEquals(sequence.status, "ended");
      assertEquals(sequence.tokens, aborted ? alone.slice(0, sequence.tokens.length) : alone, `request ${sequence.id}`);
      this.#counts.cached += sequence.cached ?? 0;
    }
    this.#counts.preempted += this.#scheduler.preemptions;
    this.#counts.copied += this.#runner.copied;
    this.#counts.restored += this.#runner.restored;
  }

  #isBusy(): boolean {
    return this.#scheduler.running + this.#scheduler.waiting > 0;
  }

  #drawTokens(count: number): number[] {
    return Array.from({ length: count }, () => 1 + this.#random.below(3));
  }

  #arrive(): void {
    const prefix = this.#random.pick(this.#prefixes);
    const prompt = [
      ...prefix.slice(0, this.#random.once(2) ? prefix.length : this.#random.below(prefix.length + 1)),
      ...this.#drawTokens(1 + this.#random.below(8)),
    ];
    const maxTokens = 1 + this.#random.below(24);
    const [priority, stepwise] = [this.#random.below(4) - 1, this.#random.once(6)];
    const sequence = new Sequence({ id: this.#toCome, prompt, maxTokens, priority, stepwise });
    const { maxSequences, maxQueue } = this.#options;
    const refusal = this.#scheduler.add(sequence);
    if (refusal?.code === "memory") {
      assert(prompt.length > this.#capacity, `${prompt.length} tokens fit into ${this.#capacity} positions`);
      this.#counts.tooLong++;
    } else if (refusal) {
      assertEquals(this.#scheduler.running + this.#scheduler.waiting, maxSequences + maxQueue);
      this.#counts.queueFull++;
      return; // it comes again
    } else {
      const { groups, slots } = this.#options;
      const alone = generateAlone(prompt, maxTokens, this.#capacity, { groups, hasStates: slots > 0 });
      this.#requests.push({ sequence, prompt, maxTokens, alone, aborted: false });
    }
    this.#toCome--;
  }

  #abort(): void {
    if (this.#requests.length === 0) return;
    const request = this.#random.pick(this.#requests);
    const isLive = request.sequence.status !== "ended";
    assertEquals(this.#scheduler.abort(request.sequence.id), isLive);
    assertEquals(request.sequence.status, "ended");
    if (isLive) {
      request.aborted = true;
      this.#counts.aborted++;
    }
    this.#scheduler.checkIntegrity();
  }

  #schedule(): Step | undefined {
    const running = this.#requests.map(({ sequence }) => sequence).filter(({ status }) => status === "running");
    const decoding = running.filter(isDecoding);
    const promptsOnly = this.#scheduler.inFlight > 0 && this.#random.once(4);
    const step = this.#scheduler.schedule(this.#maxSteps, promptsOnly, this.#draft());
    const couldDecode = decoding.some(({ status }) => status === "running"); // the others were preempted
    if (step?.kind === "prefill") {
      this.#checkPrompts(step);
      assert(!couldDecode || this.#read <= this.#options.tokenBudget, "a decode step is due");
    } else if (step?.kind === "verify") {
      assert(!promptsOnly && this.#scheduler.inFlight === 1, "tokens on their way are not known");
      this.#read = 0;
      assert(step.rows.every(({ count, drafted }) => count === drafted.length + 1 && count <= step.columns));
      this.#counts.verified++;
    } else if (step) {
      assert(!promptsOnly, "only a prompt was asked for");
      this.#read = 0;
      assert(step.steps >= 1 && step.steps <= this.#maxSteps);
      assert(step.rows.every(({ count }) => count >= 1 && count <= step.steps));
      for (const { sequence: { stepwise, inFlight }, count } of step.rows) {
        assert(!stepwise || (inFlight === 1 && count === 1), "a token is chosen before the last one is known");
      }
      if (step.steps > 1) this.#counts.several++;
    } else if (couldDecode && !promptsOnly) {
      this.#counts.waited++; // for a commit, before a preemption
    }
    if (step) this.#runner.submit(step);
    this.#scheduler.checkIntegrity();
    return step;
  }

  /** Drafts of some sequences, right up to a random place. They may be longer than a sequence has room for. */
  #draft(): Drafts | undefined {
    if (this.#random.once(2)) return undefined;
    const columns = this.#random.pick([2, 4, 8]);
    const tokens = new Map<Sequence, readonly number[]>();
    for (const { sequence, alone } of this.#requests) {
      if (this.#random.once(3)) continue;
      const next = alone.slice(sequence.tokens.length, sequence.tokens.length + this.#random.below(columns));
      const wrong = this.#random.below(2 * columns);
      tokens.set(sequence, next.map((token, i) => i < wrong ? token : 1 + token % 3));
    }
    return { tokens, columns };
  }

  /** Sizes, order and pages of a step that reads prompts. */
  #checkPrompts({ rows }: PrefillStep): void {
    const { tokenBudget, prefillStepSize, maxPrompts, prefillTile: tile, slots, pageSize, maxTogether } = this.#options;
    const counts = rows.map(({ count }) => count);
    const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
    this.#read += sum(counts);
    const padded = rows.length === 1 ? counts : counts.map((count) => Math.ceil(count / tile) * tile);
    assert(
      counts.every((count) => count > 0) && sum(padded) <= Math.min(prefillStepSize, tokenBudget),
      "too many tokens",
    );
    assert(rows.length === 1 || sum(padded) <= maxTogether, "too many tokens of several prompts");
    assert(rows.length <= (slots > 0 ? 1 : maxPrompts), "a step reads more prompts than it may");
    assertEquals(new Set(rows.map(({ sequence }) => sequence)).size, rows.length, "a prompt is there twice");
    const cut = rows.filter(({ last }) => !last);
    const isAtEnd = ({ sequence: { windows }, from, count }: PrefillRow): boolean =>
      from + count === windows.length * pageSize;
    assert(cut.length <= 1 || cut.slice(1).every(isAtEnd), "two prompts are cut, and not for want of pages");
    const least = cut[0]?.sequence.priority ?? -Infinity;
    const later = rows.slice(rows.indexOf(cut[0]));
    assert(later.every(({ sequence }) => sequence.priority >= least), "a lower priority takes room from a higher one");
    const written = new Set<number>();
    for (const { sequence: { pages, passed }, from, count, copies } of rows) {
      if (copies.length > 0 && passed > 0) this.#counts.resumed++;
      assert(copies.every(({ page }) => !written.has(page)), "a page is copied before it is written");
      const read = pages.slice(0, Math.floor(from / pageSize));
      if (read.some((page) => written.has(page))) this.#counts.shared++;
      pages.slice(Math.floor(from / pageSize), Math.ceil((from + count) / pageSize)).forEach((page) =>
        written.add(page)
      );
    }
    if (rows.length > 1) this.#counts.together++;
  }

  /** A step that replaced recurrent states did not end well, nor those that followed it. Prompts that are read have nothing to do with it. */
  #fail(): void {
    for (let left = this.#scheduler.inFlight; left > 0; left--) {
      const { step, results } = this.#runner.take();
      if (step.kind === "prefill") this.#scheduler.commit(step, results);
      else this.#scheduler.cancel(step);
      this.#scheduler.checkIntegrity();
    }
    this.#counts.failed++;
  }

  #commit(): void {
    if (this.#options.slots > 0 && this.#runner.next !== "prefill" && this.#random.once(20)) return this.#fail();
    const { step, results } = this.#runner.take();
    if (step.kind === "decode") {
      this.#counts.dropped += step.rows.filter(({ sequence }) => sequence.status === "ended").length;
    }
    if (step.kind === "verify") {
      for (const [i, { drafted }] of step.rows.entries()) {
        const accepted = Math.max(0, results[i].tokens.length - 1);
        this.#counts.accepted += accepted;
        this.#counts.rejected += drafted.length - accepted;
      }
    }
    this.#scheduler.commit(step, results);
    this.#scheduler.checkIntegrity();
    if (step.rows.some(({ sequence: { status, passed } }) => status === "running" && passed > 0)) this.#counts.passed++;
  }
}

Deno.test(`${TRACES} random traces: all requests get their tokens, and pages, tree and lists are sound`, () => {
  const counts: Counts = {
    preempted: 0,
    copied: 0,
    cached: 0,
    aborted: 0,
    dropped: 0,
    queueFull: 0,
    tooLong: 0,
    several: 0,
    waited: 0,
    restored: 0,
    together: 0,
    shared: 0,
    passed: 0,
    resumed: 0,
    verified: 0,
    accepted: 0,
    rejected: 0,
    failed: 0,
  };
  for (let i = 0; i < TRACES; i++) {
    try {
      new Trace(new Random(SEED, "engine", i), counts).run();
    } catch (error) {
      throw new Error(`trace ${i} of seed ${SEED}`, { cause: error });
    }
  }
  for (const [what, count] of Object.entries(counts)) {
    assert(count > TRACES / (RARE.get(what) ?? 10), `${what} happened ${count} times in ${TRACES} traces`);
  }
});
