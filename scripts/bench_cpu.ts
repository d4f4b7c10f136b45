/**
 * `deno task bench:cpu`: the CPU path beside native llama.cpp, in turns in one run.
 *
 *     deno task bench:cpu                     Qwen3-0.6B shape, 4 bits, with 2 threads and with 1
 *     deno task bench:cpu --json              an array of { case, vkmx, peer, peer_value, unit, ratio }
 *
 * The best figure of each side counts, since other work on the machine only ever slows one down. A decode figure is the
 * shortest time of a few tokens in a row, a prompt figure the shortest time of a prompt.
 *
 * @module
 */

import { describeFlags, type Flags, print, readCommandLine, runMain } from "../examples/cli.ts";
import {
  type Answer,
  type Case,
  describeRows,
  ggufFile,
  installPeer,
  joinTimes,
  modelFolder,
  type Row,
  row,
  runPeer,
  runSide,
  type Times,
} from "./bench_sides.ts";
import { ROOT } from "./tools.ts";

const FLAGS = {
  "threads": { value: "LIST", help: "numbers of threads, separated by commas (2,1)" },
  "rounds": { value: "N", help: "turns of both sides (2)", range: [1, 100], whole: true },
  "no-peer": { help: "vkmx alone" },
  "json": { help: "print a JSON array" },
  "help": { help: "show this text" },
} as const satisfies Flags;

const SHAPE = "qwen3-0.6b";
const TINY = "examples/models/tiny-qwen3";
const PEER = "llama.cpp (node-llama-cpp, Q4_0)";

const CASES: readonly Case[] = [
  { name: "prefill 128", kind: "prefill", prompt: 128, warmUps: 1, repeats: 5 },
  { name: "decode @16", kind: "decode", prompt: 12, tokens: 32, window: 8, warmUps: 0, repeats: 1 },
  { name: "decode @1024", kind: "decode", prompt: 1010, tokens: 16, window: 8, warmUps: 0, repeats: 1 },
];
/** Tokens of a small model arrive several at a time: a run of them counts, not a single gap. */
const TINY_CASE: Case = {
  name: "tiny decode @16",
  kind: "decode",
  prompt: 12,
  tokens: 500,
  window: 128,
  warmUps: 1,
  repeats: 1,
};

await runMain(async () => {
  const { values } = readCommandLine(FLAGS, Deno.args);
  if (values.help) {
    print(`usage: bench:cpu [flags]\n\nMeasures the CPU path beside native llama.cpp.\n\n${describeFlags(FLAGS)}\n`);
    return 0;
  }
  const rows: Row[] = [];
  const dir = await modelFolder(SHAPE);
  const folder = values["no-peer"] ? undefined : await installPeer();
  const gguf = folder && await ggufFile(SHAPE);
  for (const threads of (values.threads ?? "2,1").split(",").map(Number)) {
    const [own, peers]: Answer[][] = [[], []];
    for (let round = 0; round < (values.rounds ?? 2); round++) {
      own.push(await runSide(dir, { device: "wasm", cases: CASES }, { VKMX_THREADS: String(threads) }));
      const answer = folder && await runPeer(folder, gguf!, { gpu: false, threads, batch: 512, cases: CASES });
      if (answer) peers.push(answer);
    }
    const [ours, theirs] = [joinTimes(own), joinTimes(peers)];
    for (const c of CASES) {
      rows.push(row(`${c.name} threads=${threads}`, rate(ours, c), PEER, rate(theirs, c), "tok/s"));
    }
    const seconds = ({ load }: Times): number | null => load ? Math.min(...load) / 1000 : null;
    rows.push(row(`load to first token threads=${threads}`, seconds(ours), PEER, seconds(theirs), "s"));
  }
  const tiny = await runSide(ROOT + TINY, { device: "wasm", cases: [TINY_CASE] }, { VKMX_THREADS: "1" });
  rows.push(row(TINY_CASE.name, rate(tiny.times, TINY_CASE), null, null, "tok/s"));
  rows.push(row("tiny first token", await firstToken(), null, null, "s"));
  print(values.json ? JSON.stringify(rows, null, 2) + "\n" : describeRows(rows));
  return 0;
});

/** Tokens per second of the fastest run. */
function rate(times: Times, { name, kind, prompt }: Case): number | null {
  return times[name] ? (kind === "prefill" ? prompt : 1) * 1000 / Math.min(...times[name]) : null;
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
