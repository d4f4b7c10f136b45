/**
 * The common part of the benchmarks: cases that two programs measure in turns, each in processes of its own, and the table of both.
 *
 * worker.ts measures vkmx. llama_cpp.mjs measures native llama.cpp through node-llama-cpp with its own build, and wllama.mjs llama.cpp in
 * WebAssembly. Both use a Q4_0 model of the same shape that is written here. All run the same cases and print times in milliseconds. A
 * ratio above 1 says that vkmx is better.
 *
 * @module
 */

import { note } from "../../src/cli/output.ts";
import type { PipelineCode, Profile } from "../../mod.ts";
import type { StepVariant } from "./step_variants.ts";
import { writeGguf } from "../synthetic/gguf.ts";
import { SHAPES, writeModel } from "../synthetic/synthetic.ts";
import { exists, ROOT, run, TOOLS } from "../tools.ts";

/** Something that both sides time. */
export interface Case {
  readonly name: string;
  /** "prefill" times a prompt up to the first token, "decode" the tokens after it. */
  readonly kind: "prefill" | "decode";
  /** Tokens of the prompt. */
  readonly prompt: number;
  /** Tokens to generate after the first. */
  readonly tokens?: number;
  /** Tokens in a row whose shortest time counts; default all of them. */
  readonly window?: number;
  /** Sequences that advance together; a token's time is then that of any of them. Default 1. */
  readonly rows?: number;
  /** Tokens before a prompt. Default 0; of vkmx only. */
  readonly behind?: number;
  /** The variant of their steps, without times if there is none; "any" asks which one is taken. Of vkmx only. */
  readonly variant?: StepVariant | "any";
  /** Only where the steps that are taken have kernels of the same kind. */
  readonly sameKind?: boolean;
  /** Temperature 0.6, top-k 20, top-p 0.95; greedy otherwise. */
  readonly sampled?: boolean;
  /** Drafts the answer that comes, with so large a share of its tokens as they are. Default: nothing is drafted. Of vkmx only. */
  readonly drafted?: number;
  /** The model's head drafts too, whose tokens give way to those. */
  readonly head?: boolean;
  /** N-grams draft the answer, which the drafter has from the beginning. Of vkmx only. */
  readonly copied?: boolean;
  /** Runs that are not counted. */
  readonly warmUps: number;
  readonly repeats: number;
}

/** Work for a side. */
export interface SideSettings {
  readonly cases: readonly Case[];
  /** Name of vkmx's device. */
  readonly device?: string;
  /** Activations and cache of vkmx; default that of `mx.lm.load`. */
  readonly dtype?: "float32" | "float16" | "bfloat16";
  /** Whether what the device can do is measured before the cases. */
  readonly rates?: boolean;
  /** Variants whose code is asked for after them. Of one sequence those with kernels of the kind that is taken, or of every kind. */
  readonly code?: readonly StepVariant[];
  readonly everyKind?: boolean;
  /** Adds {@link HostTimes}. */
  readonly host?: boolean;
  /** Adds timed runs. */
  readonly profiles?: boolean;
}

/** Work for the peer. */
export interface PeerSettings {
  readonly cases: readonly Case[];
  /** All layers on the GPU, through Vulkan; otherwise the CPU. */
  readonly gpu: boolean;
  readonly threads?: number;
  /** Most tokens of one pass. */
  readonly batch: number;
}

/** Milliseconds by case: of a whole prompt or of one token, one value a repeat; and "load" from the first file to the first token. */
export type Times = Readonly<Record<string, readonly number[]>>;

/** Abilities of a device. */
export interface Rates {
  /** GB/s of a copy of an array, bytes read and written. */
  readonly copy: number;
  /** TFLOP/s of matrix units whose operands lie in registers; null if there are none. */
  readonly matrix: number | null;
}

/** Tokens of the prompt whose host work is measured. */
export const PROMPT = 512;

/** The host's time for a token and a prompt, and its submissions. */
export interface HostTimes {
  /** Microseconds of host work for a token, waiting excluded. */
  readonly hostUs: number;
  /** The same for a prompt of {@link PROMPT}: until it is submitted, and from its end to the first token. */
  readonly promptUs: { readonly before: number; readonly after: number };
  /** For one token. */
  readonly dispatches: number;
  readonly barriers: number;
  readonly submissions: number;
}

/** A timed run: of tokens after 128, or of a prompt. */
export interface TimedRun {
  readonly name: string;
  readonly tokens: number;
  readonly profile: Profile;
}

/** The report of worker.ts on a case: its times, or why it has none. */
export interface CaseResult {
  readonly case: string;
  readonly times: readonly number[];
  /** Of a case that has a variant, the one that ran; null of steps that were not fused. */
  readonly variant?: StepVariant | null;
  /** Why there are no times: "not supported" where kernels do not serve it, "left out", or an error. */
  readonly why?: string;
}

/** A line that worker.ts prints: each as soon as it is known. */
export type Line =
  | { readonly load: { readonly device: string; readonly times: Times; readonly memory: number } }
  | { readonly rates: Rates }
  | { readonly result: CaseResult }
  | { readonly code: { readonly variant: StepVariant; readonly pipelines: readonly PipelineCode[] } }
  | { readonly host: HostTimes }
  | { readonly profiles: readonly TimedRun[] };

/** The answer of a side. */
export interface Answer {
  readonly device: string;
  readonly times: Times;
  /** Highest resident bytes of the process up to the first token. */
  readonly memory: number;
}

/** A row of the result. */
export interface ComparedRow {
  readonly case: string;
  readonly vkmx: number | null;
  readonly peer: string | null;
  readonly peer_value: number | null;
  readonly unit: Unit;
  readonly ratio: number | null;
}

/** The unit of a figure. */
export type Unit = "tok/s" | "GB/s" | "TFLOP/s" | "s" | "ms" | "us" | "MB" | "KB" | "";

/** How many times as good as another figure one is: of rates the higher is better, of all else the lower. */
export function ratioOf(value: number | null, other: number | null, unit: Unit): number | null {
  if (value === null || other === null) return null;
  return unit.endsWith("/s") ? value / other : other / value;
}

/** A row of both values. */
export function row(
  name: string,
  vkmx: number | null,
  peer: string | null,
  value: number | null,
  unit: Unit,
): ComparedRow {
  return {
    case: name,
    vkmx,
    peer: value === null ? null : peer,
    peer_value: value,
    unit,
    ratio: ratioOf(vkmx, value, unit),
  };
}

/** A figure with its unit. */
export function figure(value: number | null, unit: string): string {
  return value === null ? "-" : `${value.toFixed(value < 10 ? 2 : value < 1000 ? 1 : 0)} ${unit}`.trimEnd();
}

/** Rows as a table. */
export function describeRows(rows: readonly ComparedRow[]): string {
  const width = Math.max(...rows.map((r) => r.case.length));
  const head = `${"case".padEnd(width)}  ${"vkmx".padEnd(16)}${"peer".padEnd(16)}ratio\n`;
  return head +
    rows.map(({ case: name, vkmx, peer, peer_value: value, unit, ratio }) =>
      `${name.padEnd(width)}  ${figure(vkmx, unit).padEnd(16)}${figure(value, unit).padEnd(16)}${
        ratio === null ? "-" : `${ratio.toFixed(2)}  ${peer}`
      }\n`
    ).join("");
}

/** All answers' times by case. */
export function joinTimes(answers: readonly Pick<Answer, "times">[]): Times {
  const all: Record<string, number[]> = {};
  for (const { times } of answers) {
    for (const [name, values] of Object.entries(times)) (all[name] ??= []).push(...values);
  }
  return all;
}

/** The folder of a synthetic model in so many bits, made at its first use. */
export function modelFolder(shape: string, folder: string = MODELS, bits: number = 4): Promise<string> {
  return made(folder, bits === 4 ? shape : `${shape}-${bits}bit`, (path) => writeModel(path, SHAPES[shape], { bits }));
}

/** A GGUF file of the same shape, made at its first use. */
export function ggufFile(shape: string, folder: string = MODELS): Promise<string> {
  return made(folder, `${shape}-q4_0.gguf`, (path) => writeGguf(path, SHAPES[shape]));
}

/** Where models are kept. */
const MODELS = `${TOOLS}/models`;

/** The kept folder of a name, or the one that `make` fills. */
async function made(folder: string, name: string, make: (path: string) => Promise<unknown>): Promise<string> {
  const kept = `${MODELS}/${name}`;
  if (await exists(kept)) return kept;
  const path = `${folder}/${name}`;
  if (await exists(path)) return path;
  note(`Making ${path}\n`);
  await Deno.mkdir(folder, { recursive: true });
  const partial = `${path}.partial`; // so that what was interrupted is not taken for the whole
  await Deno.remove(partial, { recursive: true }).catch(() => {});
  await make(partial);
  await Deno.rename(partial, path);
  return path;
}

/** Programs to be measured beside vkmx: an npm package, its version, its script, and the longest prompt that it gets. */
export const PEERS = {
  native: {
    name: "llama.cpp (node-llama-cpp, Q4_0)",
    package: "node-llama-cpp",
    version: "3.22.1",
    folder: "peer",
    script: "llama_cpp.mjs",
    longest: Infinity,
  },
  wasm: {
    name: "llama.cpp in WASM (wllama, Q4_0)",
    package: "@wllama/wllama",
    version: "3.8.1",
    folder: "peer-wasm",
    script: "wllama.mjs",
    longest: 128,
  },
} as const;

/** One of {@link PEERS}. */
export type Peer = typeof PEERS[keyof typeof PEERS];

/** The folder that a peer is installed in; undefined, said on stderr, if it cannot be. */
export async function installPeer(peer: Peer = PEERS.native): Promise<string | undefined> {
  const { name, package: npm, version } = peer;
  const folder = `${TOOLS}/${peer.folder}`;
  if (await exists(`${folder}/node_modules/${npm}`)) return folder;
  await Deno.mkdir(folder, { recursive: true });
  note(`Installing ${npm}\n`);
  const flags = ["--prefix", folder, "--no-audit", "--no-fund", "--no-save"];
  const { ok, stderr } = await run(["npm", "install", ...flags, `${npm}@${version}`]);
  if (ok) return folder;
  note(`no ${name} beside: ${stderr.trim().split("\n")[0]}\n`);
  return undefined;
}

/** Runs vkmx in a process of its own. Throws where a case fails. */
export async function runSide(
  dir: string,
  settings: SideSettings,
  env: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const answer = { device: "", memory: 0, times: {} as Record<string, readonly number[]> };
  try {
    for await (const line of sideLines(dir, settings, env)) {
      if ("load" in line) Object.assign(answer, line.load, { times: { ...line.load.times } });
      if (!("result" in line)) continue;
      const { case: name, times, why } = line.result;
      if (why !== undefined) throw new Error(`${name}: ${why}`);
      answer.times[name] = times;
    }
  } catch (cause) {
    throw new Error(`vkmx could not be measured: ${(cause as Error).message}`, { cause });
  }
  return answer;
}

/**
 * The lines of vkmx in a process of its own, as they come. The process is ended if `limit` milliseconds pass without a word, at `until` (of
 * performance.now()) and when the caller stops reading. Throws an Error that says why where it fails or was ended.
 */
export async function* sideLines(
  dir: string,
  settings: SideSettings,
  env: Readonly<Record<string, string>> = {},
  { limit = Infinity, until = Infinity }: { readonly limit?: number; readonly until?: number } = {},
): AsyncGenerator<Line, void, void> {
  const args = ["run", "-A", "--no-lock", `${ROOT}scripts/bench/worker.ts`, dir, JSON.stringify(settings)];
  const child = new Deno.Command(Deno.execPath(), {
    args,
    cwd: ROOT,
    env: { NO_COLOR: "1", ...env },
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let ended: string | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = (why: string): void => {
    ended ??= why;
    try {
      child.kill("SIGKILL");
    } catch { /* it ended by itself */ }
  };
  const watch = (): void => {
    clearTimeout(timer);
    const left = until - performance.now();
    const ms = Math.max(Math.min(limit, left), 0);
    const why = limit < left ? `it said nothing for ${Math.round(limit / 1000)} s` : "the time was over";
    if (ms < Infinity) timer = setTimeout(() => end(why), ms);
  };
  const said = new Response(child.stderr).text();
  watch();
  try {
    let rest = "";
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        clearTimeout(timer);
        yield JSON.parse(line);
        watch();
      }
    }
    clearTimeout(timer);
    const { success } = await child.status;
    if (!success) throw new Error(ended ?? errorOf(await said));
  } finally {
    clearTimeout(timer);
    end("nobody reads on");
    await child.status;
    await said;
  }
}

/** Runs a peer in a process of its own; undefined, said on stderr, if it does not run. */
export async function runPeer(
  folder: string,
  gguf: string,
  settings: PeerSettings,
  { name, script }: Peer = PEERS.native,
): Promise<Answer | undefined> {
  const flags = ["--no-lock", "--node-modules-dir=manual", "--no-config"];
  const args = ["run", "-A", ...flags, `${ROOT}scripts/bench/${script}`, gguf, JSON.stringify(settings)];
  const options = { args, cwd: folder, env: { NO_COLOR: "1" } };
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), options).output();
  const decoder = new TextDecoder();
  if (success) return JSON.parse(decoder.decode(stdout).trim().split("\n").at(-1)!);
  note(`no ${name} beside: ${errorOf(decoder.decode(stderr))}\n`);
  return undefined;
}

/** The line of stderr that says what was wrong. */
function errorOf(stderr: string): string {
  const lines = stderr.trim().split("\n");
  return lines.find((line) => /error:/i.test(line)) ?? lines.at(-1)!;
}
