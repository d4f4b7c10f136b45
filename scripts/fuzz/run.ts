/**
 * A run of the fuzzer over some formats: inputs shared out to a few processes, figures by format, findings made short and kept.
 *
 * @module
 */

import type { Format } from "./format.ts";
import { type Effort, minimise } from "./minimise.ts";
import { Random } from "./random.ts";
import { type Answer, type Job, LIMITS, type Limits, Watch } from "./watch.ts";

/** A fault of one input. */
export interface Finding extends Answer {
  readonly format: string;
  /** Of the run; with format and number it gives the input. */
  readonly seed: string;
  /** The shortest input found that shows the same. */
  readonly input: Uint8Array;
  /** Where it was written, when it was. */
  readonly file?: string;
  /** Inputs that gave the same. */
  times: number;
}

/** Figures of one format. */
export interface Figures {
  readonly format: string;
  inputs: number;
  accepted: number;
  /** Inputs by class and code of the error that refused them. */
  readonly refused: Map<string, number>;
  slowest: number;
  memory: number;
  readonly findings: Finding[];
  /** Inputs that hung or ended the process. */
  killed: number;
  /** Why nothing was tried. */
  readonly missing?: string;
}

/** How to run. */
export interface FuzzOptions {
  /** Address of the module that exports the formats as FORMATS, which the reading processes import. */
  readonly module: string;
  readonly formats: readonly Format[];
  readonly count: number;
  readonly seed: string;
  /** Folder for findings; without it they are only told. */
  readonly out?: string;
  /** Processes at once. */
  readonly processes?: number;
  readonly limits?: Limits;
  /**
   * Findings of a kind that are confirmed and kept: a kind is an error and its place, or a slow reading. Default 3.
   */
  readonly kept?: number;
  /** Hears of every chunk of inputs that was read, and of findings. */
  readonly onProgress?: (line: string) => void;
}

/** Inputs that a process gets at once. */
const CHUNK = 500;
/** Inputs of a format that may hang or end the process. Each takes seconds, so the rest of a format that does more is left out. */
const MAX_KILLED = 20;
/** The budget to minimise one finding. */
const EFFORT: Effort = { tries: 400, milliseconds: 20_000 };

/** Inputs of each format: parts of `count` by share, one at least. */
function jobsOf({ formats, count, seed }: FuzzOptions): (Job & { readonly from: number; readonly to: number })[] {
  const all = formats.reduce((sum, { share }) => sum + share, 0);
  const jobs = formats.flatMap(({ name, share }) => {
    const end = Math.max(1, Math.round(count * share / all));
    return Array.from({ length: Math.ceil(end / CHUNK) }, (_, i) => ({
      format: name,
      seed,
      from: i * CHUNK,
      to: Math.min(end, (i + 1) * CHUNK),
    }));
  });
  return jobs.sort((a, b) => a.from - b.from); // formats in turn
}

/** Reads `count` inputs and returns the figures of every format. */
export async function fuzz(options: FuzzOptions): Promise<Figures[]> {
  const { formats, module, seed, limits = LIMITS, kept = 3, onProgress } = options;
  const tried = formats.filter((format) => format.missing?.() === undefined);
  const table = formats.map((format): Figures => ({
    format: format.name,
    inputs: 0,
    accepted: 0,
    refused: new Map(),
    slowest: 0,
    memory: 0,
    findings: [],
    killed: 0,
    missing: format.missing?.(),
  }));
  const jobs = jobsOf({ ...options, formats: tried });
  const raw: { readonly format: Format; readonly answer: Answer }[] = [];
  const work = async (): Promise<void> => {
    await using watch = new Watch(module, limits);
    for (let job = jobs.shift(); job; job = jobs.shift()) {
      const format = formats.find(({ name }) => name === job!.format)!;
      const figures = table.find((row) => row.format === format.name)!;
      if (figures.killed >= MAX_KILLED) continue;
      for await (const answer of watch.read(job)) {
        figures.inputs++;
        if (answer.outcome === "hang" || answer.outcome === "crash") figures.killed++;
        figures.slowest = Math.max(figures.slowest, answer.ms);
        if (answer.outcome !== "memory") figures.memory = Math.max(figures.memory, answer.bytes);
        if (answer.outcome === "ok") figures.accepted++;
        else if (answer.outcome === "refused") {
          figures.refused.set(answer.detail, (figures.refused.get(answer.detail) ?? 0) + 1);
        } else raw.push({ format, answer });
        if (figures.killed >= MAX_KILLED) break;
      }
      onProgress?.(`${format.name}: ${figures.inputs} inputs`);
    }
  };
  await Promise.all(Array.from({ length: Math.min(options.processes ?? 2, jobs.length) }, work));

  await using watch = new Watch(module, limits);
  raw.sort((a, b) => a.answer.index - b.answer.index);
  for (const { format, answer } of raw) {
    const { findings } = table.find((row) => row.format === format.name)!;
    const same = findings.filter((other) => other.outcome === answer.outcome && other.detail === answer.detail);
    if (same.length >= kept) {
      same[0].times++;
      continue;
    }
    const bytes = format.generate(new Random(seed, format.name, answer.index));
    const short = await confirm(watch, format, bytes, answer);
    if (short === undefined) continue;
    const file = options.out && await keep(options.out, format, short);
    findings.push({ ...answer, format: format.name, seed, input: short, file, times: 1 });
    onProgress?.(
      `${format.name}: ${answer.outcome}, ${answer.detail}, input ${answer.index}${file ? ` as ${file}` : ""}`,
    );
  }
  return table;
}

/** The finding once more, in a process where nothing else was read, and made short; undefined if it does not show again. */
async function confirm(
  watch: Watch,
  format: Format,
  bytes: Uint8Array,
  seen: Answer,
): Promise<Uint8Array | undefined> {
  const shows = async (input: Uint8Array): Promise<boolean> => {
    // Memory that was taken once is there for the next input: what takes much shows in new processes only.
    if (seen.outcome === "memory") await watch[Symbol.asyncDispose]();
    for await (const { outcome, detail } of watch.read({ format: format.name, bytes: input.toBase64() })) {
      return outcome === seen.outcome && (outcome === "memory" || detail === seen.detail);
    }
    return false;
  };
  if (!await shows(bytes)) return undefined;
  return await minimise(bytes, shows, EFFORT);
}

/** Writes a finding as a file whose name says its format and what it holds. */
async function keep(folder: string, format: Format, bytes: Uint8Array): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(bytes))).toHex().slice(0, 8);
  const file = `${folder}/${format.name}-${hash}${format.suffix}`;
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeFile(file, bytes);
  return file;
}

/** The kept findings in a folder, with what reading them gives now: the same process, one file after the other. */
export async function* replay(
  folder: string,
  formats: readonly Format[],
  module: string,
): AsyncGenerator<{ readonly file: string; readonly answer: Answer }, void, void> {
  await using watch = new Watch(module);
  const files = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name).catch(() => []);
  for (const file of files.sort()) {
    const format = formats.find(({ name }) => new RegExp(`^${name}-[0-9a-f]{8}`).test(file));
    if (format === undefined) throw new Error(`${file} is of no format that the fuzzer knows`);
    if (format.missing?.() !== undefined) continue;
    const bytes = (await Deno.readFile(`${folder}/${file}`)).toBase64();
    for await (const answer of watch.read({ format: format.name, bytes })) yield { file, answer };
  }
}
