/**
 * The row "speculation" of `deno task bench:serve`: answers with drafts beside the same answers without. Some shares of the drafted tokens are
 * right, and some numbers of requests run together. Drafts replay recorded answers, so they cost nothing.
 *
 * @module
 */

import { median } from "../../src/cli/bench/figures.ts";
import { print } from "../../src/cli/output.ts";
import type * as mx from "../../mod.ts";
import { decodingModel } from "../../src/llm/models/mod.ts";
import { COLUMNS } from "../../src/llm/speculation/draft_length.ts";

/** Shares of right tokens. */
const SHARES = [0, 0.6, 0.7, 1];
/** Multiples of it are spread evenly over the numbers from 0 to 1: the golden ratio. */
const GOLDEN = 0.618034;

/** What is measured. */
export interface DraftedRuns {
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

/** Drafts a recorded answer with a share of right tokens. */
function replay(answer: readonly number[], share: number): mx.lm.Drafter {
  let at = -1;
  return {
    extend: (more) => void (at = at < 0 ? 0 : at + more.length),
    draft: (count) => answer.slice(at, at + count).map((id, i) => (at + i) * GOLDEN % 1 < share ? id : id ^ 1),
  };
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
  engine: mx.lm.Engine,
  { prompts, counts, tokens, repeats }: DraftedRuns,
): Promise<void> {
  for (const count of counts) {
    const requests = prompts.slice(0, count).map((prompt): mx.lm.EngineRequest => ({ prompt, maxTokens: tokens }));
    await runTogether(engine, requests);
    const { answers } = await runTogether(engine, requests); // with the prompts' pages kept, as all further ones
    const draftedBy = (share: number, options: Partial<mx.lm.RequestSpeculation> = {}): mx.lm.EngineRequest[] =>
      requests.map((request, i) => ({ ...request, speculation: { drafter: replay(answers[i], share), ...options } }));
    for (const columns of [...COLUMNS, ...COLUMNS]) { // at first pipelines are made beside the answers, and then faster ones
      await runTogether(engine, draftedBy(1, { adaptive: false, numDraftTokens: columns - 1 }));
      await decodingModel(model).traces.idle();
    }
    for (const share of SHARES) {
      const drafted = (): mx.lm.EngineRequest[] => draftedBy(share);
      await runTogether(engine, drafted());
      const ratios: number[] = [];
      const before = engine.metrics;
      let [without, others] = [0, 0];
      for (let i = 0; i < repeats; i++) {
        const plain = await runTogether(engine, requests);
        const run = await runTogether(engine, drafted());
        ratios.push(run.rate / plain.rate);
        without = plain.rate;
        others += run.answers.filter((answer, j) => answer.join() !== answers[j].join()).length;
      }
      const { draftedTokens, acceptedTokens } = engine.metrics;
      const [all, right] = [draftedTokens - before.draftedTokens, acceptedTokens - before.acceptedTokens];
      print(
        `speculation ${count}, ${100 * share} % right: ${median(ratios)!.toFixed(3)} times ${
          without.toFixed(0)
        } tok/s, ` +
          `${right} of ${all} drafted tokens accepted${others > 0 ? `, ${others} answers differ by ties` : ""}\n`,
      );
    }
  }
}
