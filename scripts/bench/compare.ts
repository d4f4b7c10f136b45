/**
 * What the benchmarks share: cases that two programs measure in turns, each in processes of its own, and the table of both.
 *
 * vkmx is measured by worker.ts, native llama.cpp by bench_peer.mjs through node-llama-cpp with its own build, and
 * llama.cpp in WebAssembly by bench_wllama.mjs, both on a Q4_0 model of the same shape that is written here. All run the same
 * cases and print times in milliseconds. A ratio above 1 says that vkmx is better.
 *
 * @module
 */

import { note } from "../../src/cli/output.ts";
import type { Profile } from "../../mod.ts";
import type { Form } from "./sequences.ts";
import { writeGguf } from "../gguf.ts";
import { SHAPES, writeModel } from "../synthetic.ts";
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
  /** Tokens in a row whose shortest time counts; all of them unless given. */
  readonly window?: number;
  /** Sequences that advance together; a token's time is then that of any of them. 1 unless given. */
  readonly rows?: number;
  /** The form of their steps, without times where there is none; "any" asks which one is taken. Of vkmx only. */
  readonly form?: Form | "any";
  /** Temperature 0.6, top-k 20, top-p 0.95; greedy otherwise. */
  readonly sampled?: boolean;
  /** Runs that are not counted. */
  readonly warmUps: number;
  readonly repeats: number;
}

/** What a side is asked to do. */
export interface SideSettings {
  readonly cases: readonly Case[];
  /** Name of vkmx's device. */
  readonly device?: string;
  /** Activations and cache of vkmx. */
  readonly dtype?: "float32" | "float16" | "bfloat16";
  /** Adds {@link Details}. */
  readonly details?: boolean;
}

/** What the peer is asked to do. */
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

/** What a side answers. */
export interface Answer {
  readonly device: string;
  readonly times: Times;
  /** Of vkmx's cases that have a form, the one that ran; null of steps that were not fused. */
  readonly forms?: Readonly<Record<string, Form | null>>;
  /** Highest resident bytes of the process up to the first token. */
  readonly memory: number;
  readonly details?: Details;
}

/** Tokens of the prompt whose host work is measured. */
export const PROMPT = 512;

/** Where vkmx's time goes. */
export interface Details {
  /** Microseconds of host work for a token, waiting excluded. */
  readonly hostUs: number;
  /** The same for a prompt of {@link PROMPT}: until it is submitted, and from its end to the first token. */
  readonly promptUs: { readonly before: number; readonly behind: number };
  /** For one token. */
  readonly dispatches: number;
  readonly barriers: number;
  readonly submissions: number;
  /** Timed runs: of tokens behind 128, or of a prompt. */
  readonly profiles: readonly { readonly name: string; readonly tokens: number; readonly profile: Profile }[];
  /** GB/s of a copy of an array, bytes read and written. */
  readonly copyRate: number;
}

/** A row of the result. */
export interface Row {
  readonly case: string;
  readonly vkmx: number | null;
  readonly peer: string | null;
  readonly peer_value: number | null;
  readonly unit: Unit;
  readonly ratio: number | null;
}

type Unit = "tok/s" | "s" | "ms" | "us" | "MB" | "";

/** A row of both values; of rates the higher is better, of all else the lower. */
export function row(name: string, vkmx: number | null, peer: string | null, value: number | null, unit: Unit): Row {
  const ratio = vkmx === null || value === null ? null : unit === "tok/s" ? vkmx / value : value / vkmx;
  return { case: name, vkmx, peer: value === null ? null : peer, peer_value: value, unit, ratio };
}

/** Rows as a table. */
export function describeRows(rows: readonly Row[]): string {
  const width = Math.max(...rows.map((r) => r.case.length));
  const figure = (value: number | null, unit: string): string =>
    (value === null ? "-" : `${value.toFixed(value < 10 ? 2 : value < 1000 ? 1 : 0)} ${unit}`).padEnd(16);
  const head = `${"case".padEnd(width)}  ${"vkmx".padEnd(16)}${"peer".padEnd(16)}ratio\n`;
  return head +
    rows.map(({ case: name, vkmx, peer, peer_value: value, unit, ratio }) =>
      `${name.padEnd(width)}  ${figure(vkmx, unit)}${figure(value, unit)}${
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

/** The folder of a synthetic model, made at its first use. */
export function modelFolder(shape: string): Promise<string> {
  return made(`${TOOLS}/models/${shape}`, (path) => writeModel(path, SHAPES[shape]));
}

/** A GGUF file of the same shape, made at its first use. */
export function ggufFile(shape: string): Promise<string> {
  return made(`${TOOLS}/models/${shape}-q4_0.gguf`, (path) => writeGguf(path, SHAPES[shape]));
}

async function made(path: string, make: (path: string) => Promise<unknown>): Promise<string> {
  if (await exists(path)) return path;
  note(`Making ${path}\n`);
  await Deno.mkdir(`${TOOLS}/models`, { recursive: true });
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
    script: "bench_peer.mjs",
    longest: Infinity,
  },
  wasm: {
    name: "llama.cpp in WASM (wllama, Q4_0)",
    package: "@wllama/wllama",
    version: "3.8.1",
    folder: "peer-wasm",
    script: "bench_wllama.mjs",
    longest: 128,
  },
} as const;

/** One of {@link PEERS}. */
export type Peer = typeof PEERS[keyof typeof PEERS];

/** The folder that a peer is installed in; undefined, said on stderr, where it cannot be. */
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

/** Runs vkmx in a process of its own. */
export async function runSide(
  dir: string,
  settings: SideSettings,
  env: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const command = ["--no-lock", `${ROOT}scripts/bench/worker.ts`, dir, JSON.stringify(settings)];
  const { answer, error } = await answerOf(command, { cwd: ROOT, env });
  if (!answer) throw new Error(`vkmx could not be measured: ${error}`);
  return answer;
}

/** Runs a peer in a process of its own; undefined, said on stderr, where it does not run. */
export async function runPeer(
  folder: string,
  gguf: string,
  settings: PeerSettings,
  { name, script }: Peer = PEERS.native,
): Promise<Answer | undefined> {
  const flags = ["--no-lock", "--node-modules-dir=manual", "--no-config"];
  const command = [...flags, `${ROOT}scripts/${script}`, gguf, JSON.stringify(settings)];
  const { answer, error } = await answerOf(command, { cwd: folder });
  if (!answer) note(`no ${name} beside: ${error}\n`);
  return answer;
}

async function answerOf(
  args: readonly string[],
  { cwd, env }: { readonly cwd: string; readonly env?: Readonly<Record<string, string>> },
): Promise<{ readonly answer?: Answer; readonly error?: string }> {
  const options = { args: ["run", "-A", ...args], cwd, env: { NO_COLOR: "1", ...env } };
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), options).output();
  const lines = (bytes: Uint8Array): string[] => new TextDecoder().decode(bytes).trim().split("\n");
  if (success) return { answer: JSON.parse(lines(stdout).at(-1)!) };
  const said = lines(stderr);
  return { error: said.find((line) => /error:/i.test(line)) ?? said.at(-1) };
}
