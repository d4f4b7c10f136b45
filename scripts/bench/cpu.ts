/**
 * `deno task bench:cpu`: the CPU path beside llama.cpp, native and in WebAssembly, in turns in one run.
 *
 *     deno task bench:cpu                     Qwen3-0.6B shape, 4 bits, with 2 threads and with 1
 *     deno task bench:cpu --json              an array of { case, vkmx, peer, peer_value, unit, ratio }
 *
 * The best figure of each side counts, since other work on the machine only ever slows one down. A decode figure is the
 * shortest time of a few tokens in a row, a prompt figure the shortest time of a prompt.
 *
 * @module
 */

import { readCounts } from "../../src/cli/bench/figures.ts";
import type { Flags } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import {
  type Answer,
  type Case,
  type ComparedRow,
  describeRows,
  ggufFile,
  installPeer,
  joinTimes,
  modelFolder,
  type Peer,
  PEERS,
  row,
  runPeer,
  runSide,
} from "./compare.ts";
import { ROOT } from "../tools.ts";

const FLAGS = {
  "threads": { value: "LIST", help: "numbers of threads, separated by commas (2,1)" },
  "rounds": { value: "N", help: "turns of both sides (2)", range: [1, 100], whole: true },
  "no-peer": { help: "vkmx alone" },
  "json": { help: "print a JSON array" },
} as const satisfies Flags;

const SHAPE = "qwen3-0.6b";
const TINY = "examples/models/tiny-qwen3";

const CASES: readonly Case[] = [
  { name: "prefill128", kind: "prefill", prompt: 128, warmUps: 1, repeats: 5 },
  { name: "decode@16", kind: "decode", prompt: 12, tokens: 32, window: 8, warmUps: 0, repeats: 1 },
  { name: "answer@128", kind: "decode", prompt: 128, tokens: 96, warmUps: 0, repeats: 2 },
  { name: "copied answer@128", kind: "decode", prompt: 128, tokens: 96, copied: true, warmUps: 1, repeats: 2 },
  { name: "decode@1024", kind: "decode", prompt: 1010, tokens: 16, window: 8, warmUps: 0, repeats: 1 },
];
/** The rows of one number of threads. */
const FIGURES: readonly {
  name: string;
  unit: ComparedRow["unit"];
  of: (answers: readonly Answer[]) => number | null;
}[] = [
  ...CASES.map((c) => ({ name: c.name, unit: "tok/s" as const, of: (answers: readonly Answer[]) => rate(answers, c) })),
  { name: "load", unit: "s", of: (answers) => seconds(answers, "loaded") },
  { name: "load to first token", unit: "s", of: (answers) => seconds(answers, "load") },
  { name: "peak memory", unit: "MB", of: (answers) => Math.min(...answers.map(({ memory }) => memory / 1e6)) },
];
/** Tokens of a small model arrive several at a time: a run of them counts, not a single gap. */
const TINY_CASE: Case = {
  name: "tiny decode",
  kind: "decode",
  prompt: 12,
  tokens: 500,
  window: 128,
  warmUps: 1,
  repeats: 1,
};

const PROGRAM = {
  name: "bench:cpu",
  about: "Measures the CPU path beside llama.cpp, native and in WebAssembly.",
  flags: FLAGS,
};

await runMain(PROGRAM, async (values) => {
  const counts = readCounts("threads", values.threads ?? "2,1", 1);
  const rows: ComparedRow[] = [];
  const dir = await modelFolder(SHAPE);
  const folders = new Map<Peer, string>();
  for (const peer of values["no-peer"] ? [] : Object.values(PEERS)) {
    const folder = await installPeer(peer);
    if (folder) folders.set(peer, folder);
  }
  const gguf = folders.size > 0 ? await ggufFile(SHAPE) : "";
  for (const threads of counts) {
    const own: Answer[] = [];
    const others = new Map<Peer, Answer[]>([...folders.keys()].map((peer) => [peer, []]));
    for (let round = 0; round < (values.rounds ?? 2); round++) {
      own.push(await runSide(dir, { device: "wasm", cases: CASES }, { VKMX_THREADS: String(threads) }));
      for (const [peer, folder] of folders) {
        const cases = CASES.filter(({ prompt, copied }) => prompt <= peer.longest && !copied);
        const answer = await runPeer(folder, gguf, { gpu: false, threads, batch: 512, cases }, peer);
        if (answer) others.get(peer)!.push(answer);
      }
    }
    const suffix = threads === counts[0] ? "" : ` threads=${threads}`;
    for (const { name, unit, of } of FIGURES) {
      const value = of(own);
      const beside = [...others].map(([peer, answers]) =>
        [peer.name, answers.length > 0 ? of(answers) : null] as const
      );
      const known = beside.filter(([, theirs]) => theirs !== null);
      for (const [peer, theirs] of known.length > 0 ? known : [[null, null]]) {
        rows.push(row(name + suffix, value, peer, theirs, unit));
      }
    }
  }
  const tiny = await runSide(ROOT + TINY, { device: "wasm", cases: [TINY_CASE] }, { VKMX_THREADS: "1" });
  rows.push(row(TINY_CASE.name, rate([tiny], TINY_CASE), null, null, "tok/s"));
  rows.push(row("first token", await firstToken(), null, null, "s"));
  print(values.json ? JSON.stringify(rows, null, 2) + "\n" : describeRows(rows));
  return 0;
});

/** Tokens per second of the fastest run; null for a case that a side did not run. */
function rate(answers: readonly Answer[], { name, kind, prompt }: Case): number | null {
  const { [name]: times } = joinTimes(answers);
  return times ? (kind === "prefill" ? prompt : 1) * 1000 / Math.min(...times) : null;
}

/** Seconds of the fastest run of a part of loading; null if a side does not tell. */
function seconds(answers: readonly Answer[], part: "load" | "loaded"): number | null {
  const { [part]: times } = joinTimes(answers);
  return times ? Math.min(...times) / 1000 : null;
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
