/**
 * Measures steps of decoders over synthetic models, each in a process of its own. It finds the crossover of row-parallel GEMV and split-K,
 * and the fewest sequences for batches.
 *
 * @module
 */

import type { PerLaunchMode, Tuning } from "../../src/schedule/tuning/tuning.ts";
import { type Case, sideLines } from "../bench/compare.ts";
import { type StepVariant, VARIANTS } from "../bench/step_variants.ts";
import { median } from "../../src/cli/bench/figures.ts";
import { type ModelShape, writeModel } from "../synthetic/synthetic.ts";
import { batchEntries, crossoverOf } from "./fit.ts";

/** Measurements of decoders. */
export interface DecodeEffort {
  readonly device: string;
  /** Models, of which two layers are made. */
  readonly shapes: readonly ModelShape[];
  /** Numbers of sequences together. */
  readonly sequences: readonly number[];
  readonly tokens: number;
  readonly repeats: number;
  /** When to end, of performance.now(). */
  readonly until: number;
  readonly say: (line: string) => void;
}

/** Milliseconds of a step by hidden features, sequences and variant. */
export type StepTimes = Readonly<
  Record<number, Readonly<Record<number, Readonly<Partial<Record<StepVariant, number>>>>>>
>;

/** Rows of the vocabulary, positions before the first token, and milliseconds that a case may take. */
const VOCABULARY = 4096;
const POSITIONS = 64;
const PATIENCE = 60_000;

/** All times that fit into the time, and GB/s of a copy. */
export async function measureSteps(
  effort: DecodeEffort,
): Promise<{ readonly times: StepTimes; readonly copy?: number }> {
  const { device, shapes, sequences, tokens, repeats, until, say } = effort;
  const times: Record<number, Record<number, Partial<Record<StepVariant, number>>>> = {};
  let copy: number | undefined;
  const folder = await Deno.makeTempDir();
  try {
    for (const [i, shape] of shapes.entries()) {
      const { hidden } = shape;
      const dir = `${folder}/${hidden}`;
      await writeModel(dir, { ...shape, layers: 2, vocab: VOCABULARY });
      const cases = [1, ...sequences].flatMap((rows) =>
        VARIANTS[rows === 1 ? "one" : "several"].map((variant): Case & { readonly variant: StepVariant } => ({
          name: `${rows} ${variant}`,
          kind: "decode",
          prompt: POSITIONS,
          rows,
          variant,
          tokens,
          warmUps: 1,
          repeats,
        }))
      );
      const byName = new Map(cases.map((c) => [c.name, c]));
      const end = performance.now() + (until - performance.now()) / (shapes.length - i); // models to come have their share
      const settings = { cases, device, dtype: "float16", rates: copy === undefined } as const;
      try {
        for await (const line of sideLines(dir, settings, {}, { until: end, limit: PATIENCE })) {
          if ("rates" in line) copy = line.rates.copy;
          if (!("result" in line)) continue;
          const ms = median(line.result.times);
          const { rows = 1, variant } = byName.get(line.result.case)!;
          if (ms === null) continue;
          ((times[hidden] ??= {})[rows] ??= {})[variant] = ms;
          say(
            `${hidden} hidden features, ${rows === 1 ? "one sequence" : `${rows} sequences`}, ${variant}: ${
              (1000 * ms).toFixed(0)
            } us`,
          );
        }
      } catch (error) {
        say(`${hidden} hidden features: ended, because ${(error as Error).message}`);
      }
      await Deno.remove(dir, { recursive: true });
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  return { times, copy };
}

/** The record that follows from times of steps; `base` stays if nothing was measured. */
export function readSteps(
  times: StepTimes,
  base: Tuning["decode"],
): Pick<Tuning["decode"], "gemvMinHidden" | "batchMinSequences"> {
  const hidden = Object.keys(times).map(Number);
  const gemv = (mode: keyof PerLaunchMode): number =>
    crossoverOf(hidden.map((size) => {
      const { [`gemv, ${mode}` as StepVariant]: challenger, [`split_k, ${mode}` as StepVariant]: champion } =
        times[size][1] ?? {};
      return { size, challenger, champion };
    })) ?? base.gemvMinHidden[mode];
  const batch = (size: number, mode: keyof PerLaunchMode): number | undefined =>
    crossoverOf(
      Object.entries(times[size]).filter(([rows]) => Number(rows) > 1).map(([rows, variants]) => ({
        size: Number(rows),
        challenger: variants[`batched, ${mode}` as StepVariant],
        champion: variants.grid,
      })),
    );
  const batches = hidden.map((size) => ({
    hidden: size,
    persistent: batch(size, "persistent"),
    barriers: batch(size, "barriers"),
  }));
  const measured = batches.filter(({ persistent, barriers }) => persistent !== undefined || barriers !== undefined);
  const usual = (size: number): PerLaunchMode => base.batchMinSequences.find(({ minHidden }) => size >= minHidden)!;
  return {
    gemvMinHidden: { persistent: gemv("persistent"), barriers: gemv("barriers") },
    batchMinSequences: measured.length === 0 ? base.batchMinSequences : batchEntries(measured.map((entry) => ({
      hidden: entry.hidden,
      persistent: entry.persistent ?? usual(entry.hidden).persistent,
      barriers: entry.barriers ?? usual(entry.hidden).barriers,
    }))),
  };
}
