/**
 * `deno task bench:gpu`: a GPU through vkmx beside llama.cpp's Vulkan backend, in turns in one run.
 *
 *     deno task bench:gpu                     Qwen3-0.6B shape, 4 bits, on the default device
 *     deno task bench:gpu --json              an array of { case, vkmx, peer, peer_value, unit, ratio }
 *     deno task bench:gpu --sequences 2,8     so many sequences together in each form that vkmx has, nothing else
 *
 * Every figure is the median of several runs after warming up, of the whole generation loop with the host in it: decode counts
 * tokens after the first, prefill the time to the first token, load the time from the first file to the first token. Without
 * --json it then prints where the time goes: every region, op and kernel by the device's timestamps, the bytes that it moves, and
 * shares of what a copy and a large product reach on the same device.
 *
 * @module
 */

import { median, readCounts } from "../../src/cli/bench/figures.ts";
import { type Flags, UsageError, type Values } from "../../src/cli/flags.ts";
import { note, print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { describeSequences, sequenceCells, sequenceRows } from "./sequences.ts";
import {
  type Answer,
  type Case,
  describeRows,
  type Details,
  ggufFile,
  installPeer,
  joinTimes,
  modelFolder,
  PROMPT,
  type Row,
  row,
  runPeer,
  runSide,
} from "./compare.ts";
import type { ModelShape } from "../synthetic.ts";

const FLAGS = {
  "device": { value: "NAME", help: "GPU to measure (the default device)" },
  "dtype": { value: "NAME", help: "vkmx's activations and cache: float16, bfloat16 or float32 (float16)" },
  "rounds": { value: "N", help: "turns of both sides (3)", range: [1, 100], whole: true },
  "model": { value: "DIR", help: "model directory (a synthetic Qwen3-0.6B)" },
  "gguf": { value: "FILE", help: "the peer's model (written with random weights)" },
  "peer": { value: "DIR", help: "folder that node-llama-cpp is installed in (.tools/peer)" },
  "no-peer": { help: "vkmx alone" },
  "sequences": {
    value: "LIST",
    help: "only so many sequences together, numbers separated by commas, in each form that vkmx has, without the peer",
  },
  "json": { help: "print a JSON array" },
} as const satisfies Flags;

const SHAPE = "qwen3-0.6b";
const PEER = "llama.cpp Vulkan (node-llama-cpp, Q4_0)";
const DTYPES = ["float16", "bfloat16", "float32"] as const;
/** Most tokens of one pass of the peer. */
const PEER_BATCH = 2048;
/** Kernels that multiply all rows of a prompt. */
const PRODUCTS = /matmul|coopmat_(heads|gated)/;

const decode = (prompt: number, more: Partial<Case> = {}): Case => ({
  name: `decode @${prompt}`,
  kind: "decode",
  prompt,
  tokens: 128,
  warmUps: 2,
  repeats: 3,
  ...more,
});
const prefill = (prompt: number): Case => ({
  name: `prefill ${prompt}`,
  kind: "prefill",
  prompt,
  warmUps: 3,
  repeats: 5,
});

const GREEDY = [128, 1024, 3500].map((prompt) => decode(prompt));
const CASES: readonly Case[] = [
  ...GREEDY,
  decode(128, { name: "decode @128, sampled", sampled: true }),
  decode(128, { name: "decode @128, 8 sequences, total", rows: 8 }),
  ...[64, 512, 2048].map(prefill),
];

/** The peer, whose runs take longer: its figures hardly move. */
const PEER_CASES = CASES.map((c) => ({ ...c, warmUps: 1, repeats: 1 }));

const PROGRAM = { name: "bench:gpu", about: "Measures a GPU beside llama.cpp's Vulkan backend.", flags: FLAGS };

await runMain(PROGRAM, async (values) => {
  const dtype = DTYPES.find((name) => name === (values.dtype ?? DTYPES[0]));
  if (!dtype) throw new UsageError(`--dtype is "${values.dtype}", expected one of ${DTYPES.join(", ")}`);
  const device = values.device === undefined ? mx.defaultDevice() : mx.deviceInfo(values.device).name;
  const counts = values.sequences === undefined ? undefined : readCounts("sequences", values.sequences, 2);
  if (!device.startsWith("vulkan:")) {
    throw new UsageError(
      `${device} is no GPU: \`deno task devices\` says what is here, \`deno task bench\` measures it`,
    );
  }
  const dir = values.model ?? await modelFolder(SHAPE);
  // The first start on a machine finds no pipelines and no verdicts; later ones do.
  const kept = { VKMX_CACHE: await Deno.makeTempDir() };
  const run = { ...values, dir, device, dtype, rounds: values.rounds ?? 3, kept };
  const { rows, head, tables } = counts ? await measureSequences(run, counts) : await measureBoth(run);
  await Deno.remove(kept.VKMX_CACHE, { recursive: true });
  if (values.json) print(JSON.stringify(rows, null, 2) + "\n");
  else {
    const first = `${head[0]}, activations and cache ${dtype}, ${run.rounds} rounds`;
    print([first, ...head.slice(1), tables].join("\n"));
  }
  return 0;
});

/** What is measured, and how. */
interface Run extends Values<typeof FLAGS> {
  readonly dir: string;
  readonly device: string;
  readonly dtype: typeof DTYPES[number];
  readonly rounds: number;
  /** Environment of a folder that vkmx's processes share. */
  readonly kept: { readonly VKMX_CACHE: string };
}

/** What is printed: rows as JSON, or else lines in front of tables. */
interface Printed {
  readonly rows: readonly Row[];
  readonly head: readonly string[];
  readonly tables: string;
}

/** A turn of a round, and a note of how long it took. */
async function turn<T>(round: number, { rounds }: Run, name: string, work: Promise<T>): Promise<T> {
  const start = performance.now();
  const result = await work;
  note(`round ${round} of ${rounds}: ${name} took ${((performance.now() - start) / 1000).toFixed(1)} s\n`);
  return result;
}

/** Several sequences together, in each form. */
async function measureSequences(run: Run, counts: readonly number[]): Promise<Printed> {
  const { dir, device, dtype, rounds, kept } = run;
  const cells = sequenceCells(counts, decode(128));
  const cases = cells.map((cell) => cell.case);
  const own: Answer[] = [];
  for (let round = 1; round <= rounds; round++) {
    own.push(await turn(round, run, "vkmx", runSide(dir, { device, dtype, cases }, kept)));
  }
  const rows = sequenceRows(cells, joinTimes(own), own.at(-1)!.forms!);
  return { rows, head: [own[0].device, "decode @128, tok/s in all (and us a step)"], tables: describeSequences(rows) };
}

/** All cases beside the peer, and where the time goes. */
async function measureBoth(run: Run): Promise<Printed> {
  const { dir, device, dtype, rounds, kept } = run;
  const folder = run["no-peer"] ? undefined : run.peer ?? await installPeer();
  const gguf = folder && (run.gguf ?? await ggufFile(SHAPE));
  const own: Answer[] = [];
  const portable: Answer[] = [];
  const peers: Answer[] = [];
  const settings = { device, dtype, cases: CASES };
  const cold = await runSide(dir, { ...settings, cases: [] }, { ...kept, __GL_SHADER_DISK_CACHE: "0" });
  let peer = folder;
  for (let round = 1; round <= rounds; round++) {
    own.push(await turn(round, run, "vkmx", runSide(dir, { ...settings, details: round === rounds }, kept)));
    const plain = runSide(dir, { ...settings, cases: GREEDY }, { ...kept, VKMX_FAST: "0" });
    portable.push(await turn(round, run, "VKMX_FAST=0", plain));
    const answer = peer && gguf &&
      await turn(round, run, "llama.cpp", runPeer(peer, gguf, { gpu: true, batch: PEER_BATCH, cases: PEER_CASES }));
    if (answer) peers.push(answer);
    else peer = undefined;
  }
  const rows = rowsOf(own, portable, peers, cold);
  return {
    rows,
    head: [own[0].device, ...(peers.length > 0 ? [`beside ${PEER} on ${peers[0].device}`, ""] : [])],
    tables: describeRows(rows) + describeDetails(own.at(-1)!.details!, await shapeOf(dir)),
  };
}

/** Sizes of a model directory. */
async function shapeOf(dir: string): Promise<ModelShape> {
  const config = JSON.parse(await Deno.readTextFile(`${dir}/config.json`));
  return {
    hidden: config.hidden_size,
    intermediate: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headDim: config.head_dim,
    tied: config.tie_word_embeddings,
    vocab: config.vocab_size,
  };
}

function rowsOf(own: Answer[], portable: Answer[], peers: Answer[], cold: Answer): Row[] {
  const [ours, plain, theirs] = [own, portable, peers].map(joinTimes);
  const rate = (times: typeof ours, { name, kind, prompt }: Case): number | null => {
    const ms = median(times[name]);
    return ms === null ? null : (kind === "prefill" ? prompt : 1) * 1000 / ms;
  };
  const seconds = (times: typeof ours): number | null => times.load ? median(times.load)! / 1000 : null;
  const { hostUs, promptUs, dispatches, barriers, submissions } = own.at(-1)!.details!;
  return [
    ...CASES.map((c) => row(c.name, rate(ours, c), PEER, rate(theirs, c), "tok/s")),
    ...GREEDY.map((c) => row(`${c.name}, VKMX_FAST=0`, rate(plain, c), PEER, rate(theirs, c), "tok/s")),
    row("prefill 64, time", median(ours["prefill 64"]), PEER, median(theirs["prefill 64"]), "ms"),
    row("host time a token", hostUs, null, null, "us"),
    row(`host time in front of a prompt of ${PROMPT}`, promptUs.before, null, null, "us"),
    row(`host time behind a prompt of ${PROMPT}`, promptUs.behind, null, null, "us"),
    row("dispatches a token", dispatches, null, null, ""),
    row("barriers a token", barriers, null, null, ""),
    row("submissions a token", submissions, null, null, ""),
    row("load to first token", seconds(ours), PEER, seconds(theirs), "s"),
    row("load to first token, first start", seconds(joinTimes([cold])), null, null, "s"),
  ];
}

/** Operations of the products of a prompt in all layers, the last of which needs keys and values only. */
function productWork(shape: ModelShape, tokens: number): number {
  const { hidden, intermediate, layers, heads, kvHeads, headDim } = shape;
  const cached = 2 * kvHeads * headDim * hidden;
  const others = 2 * heads * headDim * hidden + 3 * intermediate * hidden;
  return 2 * tokens * (layers * cached + (layers - 1) * others);
}

/** Time, bytes and shares of what the device can do, of one token or one prompt. */
function describeDetails({ profiles, copyRate }: Details, shape: ModelShape): string {
  const lines = [`\na copy moves ${copyRate.toFixed(0)} GB/s`];
  for (const { name, tokens, profile } of profiles) {
    const perToken = name.startsWith("token");
    const steps = perToken ? tokens : 1;
    lines.push(`\n${name}`);
    const kernels = profile.kernels.filter(({ op }) => op !== "layout");
    for (const keys of [["region"], ["region", "op", "kernel"]] as const) {
      lines.push(`  ${keys.join(", ").padEnd(64)}    calls         us      KB    GB/s  of copy`);
      for (const sum of mx.sumKernels(kernels, keys)) {
        const title = keys.map((key) => sum[key] ?? "op by op").join("  ");
        const rate = sum.bytes / sum.nanoseconds;
        lines.push([
          `  ${title.padEnd(64)}`,
          (sum.calls / steps).toFixed(1).padStart(8),
          (sum.nanoseconds / steps / 1000).toFixed(2).padStart(10),
          (sum.bytes / steps / 1000).toFixed(0).padStart(7),
          rate.toFixed(0).padStart(7),
          `${(100 * rate / copyRate).toFixed(1)} %`.padStart(8),
        ].join(" "));
      }
    }
    const products = kernels.filter(({ region, kernel }) => region !== "decoder step" && PRODUCTS.test(kernel));
    const time = products.reduce((sum, { nanoseconds }) => sum + nanoseconds, 0);
    if (!perToken && time > 0) {
      const rate = productWork(shape, tokens) / time / 1000;
      lines.push(`  products: ${(time / 1000).toFixed(1)} us, ${rate.toFixed(1)} TFLOP/s`);
    }
    lines.push(`  ${mx.describeProfile({ ...profile, kernels: [] }).split("\n").slice(-3).join("\n  ")}`);
  }
  return lines.join("\n") + "\n";
}
