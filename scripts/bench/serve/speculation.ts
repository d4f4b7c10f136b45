/**
 * The rows "speculation" and "mtp" of `deno task bench:serve`: answers with drafts beside the same answers without. Some shares of the drafted tokens
 * are right, and some numbers of requests run together. Drafts replay recorded answers. In the first row they cost nothing; in the second one
 * the head of the model computes as many, which then give way to those. A bias makes all answers of one token, since random weights leave many
 * ties: after one of them all that was recorded would be wrong.
 *
 * @module
 */

import { median } from "../../../src/cli/bench/figures.ts";
import { print } from "../../../src/cli/output.ts";
import type * as mx from "../../../mod.ts";
import { HeadRunner } from "../../../src/llm/engine/head_runner.ts";
import { decodingModel } from "../../../src/llm/models/mod.ts";

/** Shares of right tokens, and columns of steps whose pipelines are made before: by what drafts. */
const ROWS = {
  replay: { name: "speculation", shares: [0, 0.6, 0.7, 1], columns: [2, 4, 8] },
  mtp: { name: "mtp", shares: [0, 0.7, 1], columns: [2, 4] },
} as const;
/** What all answers are of. */
const ANSWER: mx.lm.EngineRequest["logitBias"] = { 100: 1000 };
/** Multiples of it are spread evenly over the numbers from 0 to 1: the golden ratio. */
const GOLDEN = 0.618034;

/** What is measured. */
export interface DraftedRuns {
  readonly drafter: keyof typeof ROWS;
  /** The engine of requests without drafts, and that of those with them. */
  readonly engines: { readonly plain: mx.lm.Engine; readonly drafting: mx.lm.Engine };
  /** Prompts of as many requests as run together at most. */
  readonly prompts: readonly (readonly number[])[];
  /** How many run together. */
  readonly counts: readonly number[];
  /** Tokens of each answer. */
  readonly tokens: number;
  readonly repeats: number;
}

/** Requests that ran together: their tokens, and tokens a second after the last first one. */
interface Run {
  readonly answers: readonly (readonly number[])[];
  readonly rate: number;
}

/** The `count` tokens of a recorded answer from one on, a share of them right. */
function replayed(answer: readonly number[], share: number, at: number, count: number): number[] {
  return answer.slice(at, at + count).map((id, i) => (at + i) * GOLDEN % 1 < share ? id : id ^ 1);
}

/** Drafts a recorded answer with a share of right tokens. */
function replay(answer: readonly number[], share: number): mx.lm.Drafter {
  let at = -1;
  return {
    extend: (more) => void (at = at < 0 ? 0 : at + more.length),
    draft: (count) => replayed(answer, share, at, count),
  };
}

/** Has what heads draft in engines give way to recorded answers, by prompt, until it is disposed. */
function headReplaying(answers: ReadonlyMap<string, readonly number[]>, share: number): Disposable {
  const { draft: own } = HeadRunner.prototype;
  HeadRunner.prototype.draft = async function (sequences, count, forget) {
    if (!await own.call(this, sequences, count, forget)) return undefined;
    return sequences.map(({ tokens, promptLength }) => {
      const answer = answers.get(tokens.slice(0, promptLength).join()) ?? [];
      const drafted = replayed(answer, share, tokens.length - promptLength, count);
      return Int32Array.from({ length: count }, (_, i) => drafted[i] ?? 0);
    });
  };
  return { [Symbol.dispose]: () => void (HeadRunner.prototype.draft = own) };
}

async function runTogether(engine: mx.lm.Engine, requests: readonly mx.lm.EngineRequest[]): Promise<Run> {
  const firsts: number[] = [];
  const answers = await Promise.all(requests.map(async (request) => {
    const tokens: number[] = [];
    for await (const { token } of engine.add(request)) {
      if (tokens.push(token) === 1) firsts.push(performance.now());
    }
    return tokens;
  }));
  const seconds = (performance.now() - Math.max(...firsts)) / 1000;
  return { answers, rate: answers.reduce((sum, { length }) => sum + length - 1, 0) / seconds };
}

/** Measures and prints a line for each number of requests and each share. Runs with and without drafts take turns. */
export async function measureDrafts(
  model: mx.lm.LanguageModel,
  { drafter, engines: { plain, drafting }, prompts, counts, tokens, repeats }: DraftedRuns,
): Promise<void> {
  const { name, shares, columns } = ROWS[drafter];
  for (const count of counts) {
    const requests = prompts.slice(0, count).map((prompt): mx.lm.EngineRequest => ({
      prompt,
      maxTokens: tokens,
      logitBias: ANSWER,
    }));
    await runTogether(plain, requests);
    const { answers } = await runTogether(plain, requests); // with the prompts' pages kept, as all further ones
    const known = new Map(requests.map(({ prompt }, i) => [`${prompt}`, answers[i]]));
    const runDrafted = async (share: number, options: Partial<mx.lm.RequestSpeculation> = {}): Promise<Run> => {
      using _head = drafter === "mtp" ? headReplaying(known, share) : undefined;
      const of = (i: number): mx.lm.RequestSpeculation["drafter"] =>
        drafter === "mtp" ? "mtp" : replay(answers[i], share);
      return await runTogether(
        drafting,
        requests.map((request, i) => ({ ...request, speculation: { drafter: of(i), ...options } })),
      );
    };
    for (const count of [...columns, ...columns]) { // at first pipelines are made beside the answers, and then faster ones
      await runDrafted(1, { adaptive: false, numDraftTokens: count - 1 });
      await decodingModel(model).traces.idle();
    }
    for (const share of shares) {
      await runDrafted(share);
      const ratios: number[] = [];
      const before = drafting.metrics;
      let without = 0;
      for (let i = 0; i < repeats; i++) {
        const { rate } = await runTogether(plain, requests);
        const run = await runDrafted(share);
        ratios.push(run.rate / rate);
        without = rate;
        const other = run.answers.findIndex((answer, i) => answer.join() !== answers[i].join());
        if (other >= 0) throw new Error(`with drafts answer ${other} is another`);
      }
      const { draftedTokens, acceptedTokens } = drafting.metrics;
      const [all, right] = [draftedTokens - before.draftedTokens, acceptedTokens - before.acceptedTokens];
      print(
        `${name} ${count}, ${100 * share} % right: ${median(ratios)!.toFixed(3)} times ${without.toFixed(0)} tok/s, ` +
          `${right} of ${all} drafted tokens accepted\n`,
      );
    }
  }
}
