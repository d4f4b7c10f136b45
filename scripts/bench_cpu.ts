/**
 * `deno task bench:cpu`: the CPU path beside native llama.cpp, in turns in one run.
 *
 *     deno task bench:cpu                     Qwen3-0.6B shape, 4 bits, with 2 threads and with 1
 *     deno task bench:cpu --json              an array of { case, vkmx, peer, peer_value, unit, ratio }
 *
 * Both sides run in processes of their own, one after the other, several rounds; the best figure of each counts, since other
 * work on the machine only ever slows one down. A decode figure is the shortest time of a few tokens in a row, a prompt figure
 * the shortest time of a prompt. The peer is node-llama-cpp with its own build, installed by npm into .tools, with a Q4_0 model that is
 * written here. A ratio above 1 says that vkmx is better.
 *
 * @module
 */

import { describeFlags, type Flags, note, print, readCommandLine, runMain } from "../examples/cli.ts";
import * as mx from "../mod.ts";
import { writeGguf } from "./gguf.ts";
import { SHAPES, writeModel } from "./synthetic.ts";
import { exists, ROOT, run, TOOLS } from "./tools.ts";

const FLAGS = {
  "threads": { value: "LIST", help: "numbers of threads, separated by commas (2,1)" },
  "rounds": { value: "N", help: "turns of both sides (2)", range: [1, 100], whole: true },
  "no-peer": { help: "vkmx alone" },
  "json": { help: "print a JSON array" },
  "side": { value: "DIR", help: "measure a model directory here and print JSON; used by the program itself" },
  "help": { help: "show this text" },
} as const satisfies Flags;

const SHAPE = "qwen3-0.6b";
const TINY = "examples/models/tiny-qwen3";
const PEER = "llama.cpp (node-llama-cpp, Q4_0)";

type Values = Readonly<Record<string, number>>;

/** A row of the result. */
interface Row {
  readonly case: string;
  readonly vkmx: number;
  readonly peer: string | null;
  readonly peer_value: number | null;
  readonly unit: "tok/s" | "s";
  readonly ratio: number | null;
}

await runMain(async () => {
  const { values } = readCommandLine(FLAGS, Deno.args);
  if (values.help) {
    print(`usage: bench:cpu [flags]\n\nMeasures the CPU path beside native llama.cpp.\n\n${describeFlags(FLAGS)}\n`);
    return 0;
  }
  if (values.side) {
    print(JSON.stringify(await measure(values.side)) + "\n");
    return 0;
  }
  const rows: Row[] = [];
  const dir = await made(`${TOOLS}/models/${SHAPE}`, (path) => writeModel(path, SHAPES[SHAPE]));
  const gguf = values["no-peer"]
    ? undefined
    : await made(`${TOOLS}/models/${SHAPE}.gguf`, (path) => writeGguf(path, SHAPES[SHAPE]));
  const peer = gguf && await installPeer();
  for (const threads of (values.threads ?? "2,1").split(",").map(Number)) {
    const [own, other]: Values[][] = [[], []];
    for (let round = 0; round < (values.rounds ?? 2); round++) {
      own.push(await side(dir, threads));
      if (peer) other.push(await native(peer, gguf!, threads));
    }
    for (const name of ["decode@16", "decode@1024", "prefill128"]) {
      rows.push(row(`${name} threads=${threads}`, best(own, name), peer ? best(other, name) : null, "tok/s"));
    }
    rows.push(row(`load threads=${threads}`, Math.min(...own.map((o) => o.load)), null, "s"));
  }
  rows.push(row("tiny decode@16", (await side(ROOT + TINY, 1))["decode@16"], null, "tok/s"));
  rows.push(row("tiny first token", await firstToken(), null, "s"));
  if (values.json) print(JSON.stringify(rows, null, 2) + "\n");
  else rows.forEach((r) => print(describe(r)));
  return 0;
});

function row(name: string, vkmx: number, peer: number | null, unit: Row["unit"]): Row {
  const ratio = peer === null ? null : unit === "s" ? peer / vkmx : vkmx / peer;
  return { case: name, vkmx, peer: peer === null ? null : PEER, peer_value: peer, unit, ratio };
}

function describe({ case: name, vkmx, peer_value: peer, unit, ratio }: Row): string {
  const figure = (v: number): string => `${v.toFixed(v < 10 ? 2 : 1)} ${unit}`.padStart(14);
  const beside = peer === null ? "" : `${figure(peer)} native   ratio ${ratio!.toFixed(2)}`;
  return `${name.padEnd(24)}${figure(vkmx)}${beside}\n`;
}

function best(runs: readonly Values[], name: string): number {
  return Math.max(...runs.map((values) => values[name]));
}

async function made(path: string, make: (path: string) => Promise<unknown>): Promise<string> {
  if (await exists(path)) return path;
  note(`Making ${path}\n`);
  await Deno.mkdir(`${TOOLS}/models`, { recursive: true });
  await make(path);
  return path;
}

/** The folder that node-llama-cpp is installed in; undefined, said on stderr, where it cannot be. */
async function installPeer(): Promise<string | undefined> {
  const folder = `${TOOLS}/peer`;
  if (await exists(`${folder}/node_modules/node-llama-cpp`)) return folder;
  await Deno.mkdir(folder, { recursive: true });
  note("Installing node-llama-cpp\n");
  const flags = ["--prefix", folder, "--no-audit", "--no-fund", "--no-save"];
  const { ok, stderr } = await run(["npm", "install", ...flags, "node-llama-cpp@3"]);
  if (ok) return folder;
  note(`bench:cpu: no native peer: ${stderr.trim().split("\n")[0]}\n`);
  return undefined;
}

async function output(command: readonly string[], options: Deno.CommandOptions): Promise<Values> {
  const [program, ...args] = command;
  const { success, stdout } = await new Deno.Command(program, { ...options, args, stderr: "inherit" }).output();
  if (!success) throw new Error(`${command.join(" ")} failed`);
  return JSON.parse(new TextDecoder().decode(stdout).trim().split("\n").at(-1)!);
}

function side(dir: string, threads: number): Promise<Values> {
  const script = `${ROOT}scripts/bench_cpu.ts`;
  return output([Deno.execPath(), "run", "-A", "--no-lock", script, "--side", dir], {
    cwd: ROOT,
    env: { VKMX_THREADS: String(threads) },
  });
}

function native(folder: string, gguf: string, threads: number): Promise<Values> {
  return output(["node", `${ROOT}scripts/bench_cpu_peer.mjs`, gguf, String(threads), "5"], { cwd: folder });
}

/** Seconds from the start of a process to the first token of the embedded model: the best of five. */
async function firstToken(): Promise<number> {
  let shortest = Infinity;
  const args = ["run", "-A", "--no-lock", "examples/generate.ts", "--device", "wasm", "--max-tokens", "1", "Hi"];
  for (let i = 0; i < 5; i++) {
    const start = performance.now();
    await new Deno.Command(Deno.execPath(), { args, cwd: ROOT, stdout: "null", stderr: "null" }).output();
    shortest = Math.min(shortest, performance.now() - start);
  }
  return shortest / 1000;
}

/** Best figures of a model directory on the CPU device of this process. */
async function measure(dir: string): Promise<Values> {
  mx.setDefaultDevice("wasm");
  mx.deviceMemory("wasm"); // opens it: not part of loading
  const started = performance.now();
  const { model } = await mx.lm.load(dir, { device: "wasm" });
  const load = (performance.now() - started) / 1000;
  const { vocabSize } = model.config;
  const ids = (n: number): number[] => Array.from({ length: n }, (_, i) => (i * 7919 + 13) % vocabSize);
  const tiny = vocabSize < 10000;
  // Tokens of a small model arrive several at a time: a run of them counts, not a single gap.
  const window = tiny ? 128 : 8;
  /** Milliseconds to the first token, and per token of the fastest run after it. */
  const tokens = async (at: number, count: number): Promise<[number, number]> => {
    using cache = model.makeCache();
    const start = performance.now();
    const times: number[] = [];
    const steps = mx.lm.generateStep(ids(at), model, {
      cache,
      maxTokens: count,
      sampler: mx.lm.makeSampler(),
      processors: [],
      contextSize: 0,
      prefillStepSize: 2048,
    });
    for await (const _ of steps) times.push(performance.now());
    const runs = times.slice(window).map((t, i) => (t - times[i]) / window);
    return [times[0] - start, Math.min(...runs)];
  };
  await tokens(32, 8); // compiled code
  let fill = Infinity;
  // The first token comes with one decode step, which is not part of the prompt.
  for (let i = 0; i < 5; i++) {
    const [first, step] = await tokens(128, window + 2);
    fill = Math.min(fill, first - step);
  }
  const figures = { load, prefill128: 128e3 / fill, "decode@16": 1e3 / (await tokens(12, tiny ? 500 : 32))[1] };
  const long: Values = tiny ? {} : { "decode@1024": 1e3 / (await tokens(1005, 16))[1] };
  model[Symbol.dispose]();
  return { ...figures, ...long };
}
