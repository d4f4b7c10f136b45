/**
 * `deno task bench:gpu`: models on a GPU, beside llama.cpp's Vulkan backend in turns in one run, their floors and aims.
 *
 *     deno task bench:gpu                                        Qwen3-0.6B shape, 4 bits, on the default device
 *     deno task bench:gpu --shapes 0.6b,1.7b,4b,8b --no-peer     several shapes, each in a process of its own
 *     deno task bench:gpu --shapes 8b --rows decode,code         only some groups of rows (--help lists them)
 *     deno task bench:gpu --shapes 8b:16,8b:8                    weights of 16 bits, which are dense, and of 8
 *     deno task bench:gpu --rows batch --variants --sequences 2,8   so many sequences together, in every variant that vkmx has
 *     deno task bench:gpu --shapes 8b --rows split --no-peer    one GPU beside two that share the layers
 *     deno task bench:gpu --budget 300 --json                    the rows after 300 seconds, as an array
 *
 * Every figure is the median of several runs after warming up, of the whole generation loop with the host in it. Decode counts tokens after
 * the first. A prompt is the time to the first token, load the time from the first file to the first token. A row is printed as soon as it
 * is measured. Its floor is what the bytes of the work take at the rate of a copy, or its operations on the matrix units. Both are measured
 * here. Ratios above 1 say that vkmx is better than an aim (gpu/targets.ts) or the peer.
 *
 * @module
 */

import { readCounts } from "../../src/cli/bench/figures.ts";
import { checkOneOf, type Flags, UsageError, type Values } from "../../src/cli/flags.ts";
import { print } from "../../src/cli/output.ts";
import { runMain } from "../../src/cli/program.ts";
import * as mx from "../../mod.ts";
import { SHAPES } from "../synthetic/synthetic.ts";
import { PEERS } from "./compare.ts";
import { DEFAULT_GROUPS, type Effort, FULL, type Group, GROUPS } from "./gpu/cases.ts";
import { measureShape, type Target } from "./gpu/measure.ts";
import { describeRow, type Figure, type GpuRow, gpuRow, HEAD } from "./gpu/table.ts";

const FLAGS = {
  "device": { value: "NAME", help: "GPU to measure (the default device)" },
  "shapes": {
    value: "LIST",
    help: `synthetic models, separated by commas: 0.6b, 1.7b, 4b, 8b of Qwen3, tiny …, or 8b:16 in so many bits (0.6b)`,
  },
  "model": { value: "DIR", help: "a model directory instead" },
  "rows": { value: "LIST", help: `groups of rows: ${Object.keys(GROUPS).join(", ")} (all but where, mtp and split)` },
  "second": { value: "NAME", help: "device that shares the layers in rows split (the next GPU, else the CPU)" },
  "dtype": {
    value: "NAME",
    help: "vkmx's activations and cache: float16, bfloat16 or float32 (that of mx.lm.load); rows name it",
  },
  "positions": { value: "LIST", help: `tokens in the cache before decoding (${FULL.positions})` },
  "sequences": { value: "LIST", help: `numbers of sequences together (${FULL.sequences})` },
  "prompts": {
    value: "LIST",
    help: `tokens of prompts (${FULL.prompts}; ${FULL.sharedPrompts.at(-1)} too for --rows split)`,
  },
  "columns": { value: "LIST", help: `tokens of one sequence at once (${FULL.columns})` },
  "tokens": { value: "N", help: `tokens to decode (${FULL.tokens})`, range: [2, 4096], whole: true },
  "repeats": { value: "N", help: `runs of a figure (${FULL.repeats})`, range: [1, 100], whole: true },
  "variants": { help: "every variant, also in kernels that a shape does not take" },
  "rounds": { value: "N", help: "turns of both sides (1)", range: [1, 100], whole: true },
  "budget": { value: "SECONDS", help: "end by then, with what is there", range: [1, 86400] },
  "patience": {
    value: "SECONDS",
    help: "longest wait for a figure, whose process is ended then (120)",
    range: [1, 3600],
  },
  "gguf": { value: "FILE", help: "the peer's model (written with random weights)" },
  "peer": { value: "DIR", help: "folder that node-llama-cpp is installed in (.tools/peer)" },
  "no-peer": { help: "vkmx alone" },
  "json": { help: "print a JSON array" },
} as const satisfies Flags;

/** Bits of a weight, of which the peer has 4. */
const WIDTHS = ["2", "3", "4", "5", "6", "8", "16"] as const;
const DTYPES = ["float16", "bfloat16", "float32"] as const;

const PROGRAM = {
  name: "bench:gpu",
  about: "Measures models on a GPU beside llama.cpp's Vulkan backend.",
  flags: FLAGS,
};

await runMain(PROGRAM, async (values) => {
  const device = values.device === undefined ? mx.defaultDevice() : mx.deviceInfo(values.device).name;
  if (!device.startsWith("vulkan:")) {
    throw new UsageError(
      `${device} is no GPU: \`deno task devices\` says what is here, \`deno task bench\` measures it`,
    );
  }
  const targets = targetsOf(values);
  // The first start on a machine finds no pipelines and no verdicts; later ones do.
  const kept = { VKMX_CACHE: await Deno.makeTempDir() };
  const run = {
    device,
    dtype: values.dtype === undefined ? undefined : checkOneOf("--dtype", values.dtype, DTYPES),
    groups: groupsOf(values.rows),
    effort: effortOf(values),
    rounds: values.rounds ?? 1,
    patience: 1000 * (values.patience ?? 120),
    peer: values["no-peer"] ? undefined : { folder: values.peer, gguf: values.gguf },
    env: kept,
    second: values.second === undefined ? undefined : mx.deviceInfo(values.second).name,
  };
  const end = performance.now() + 1000 * (values.budget ?? Infinity);
  const rows: GpuRow[] = [];
  const put = (figure: Figure): void => {
    const row = gpuRow(figure, PEERS.native.name);
    if (values.json) print(`${rows.length === 0 ? "[" : ","}${JSON.stringify(row)}\n`);
    else print(`${rows.length === 0 ? HEAD : ""}${describeRow(row)}`);
    rows.push(row);
  };
  let text = "";
  try {
    for (const [i, target] of targets.entries()) {
      const until = performance.now() + (end - performance.now()) / (targets.length - i); // shapes to come have their share
      text += await measureShape({ ...run, until }, target, put);
    }
  } finally {
    await Deno.remove(kept.VKMX_CACHE, { recursive: true });
    if (values.json) print(rows.length === 0 ? "[]\n" : "]\n");
  }
  if (!values.json) print(text);
  return 0;
});

/** The measurements to make. */
function targetsOf({ model, shapes, gguf }: Values<typeof FLAGS>): readonly Target[] {
  if (model !== undefined && shapes !== undefined) throw new UsageError("--model and --shapes exclude each other");
  if (model !== undefined) return [{ name: model.split("/").findLast((part) => part !== "")!, dir: model }];
  const targets = (shapes ?? "0.6b").split(",").map((item) => {
    const [short, width = "4"] = item.split(":");
    const name = Object.hasOwn(SHAPES, `qwen3-${short}`) ? `qwen3-${short}` : short;
    const shape = checkOneOf("--shapes", name, Object.keys(SHAPES));
    const bits = Number(checkOneOf("--shapes: bits", width, WIDTHS));
    return bits === 4 ? { name: shape } : { name: `${shape} in ${bits} bits`, shape, bits };
  });
  if (gguf !== undefined && targets.length > 1) throw new UsageError("--gguf is the model of one shape");
  return targets;
}

function groupsOf(list: string | undefined): readonly Group[] {
  const names = Object.keys(GROUPS) as Group[];
  return list === undefined ? DEFAULT_GROUPS : list.split(",").map((name) => checkOneOf("--rows", name, names));
}

function effortOf(values: Values<typeof FLAGS>): Effort {
  const counts = (flag: "positions" | "sequences" | "prompts" | "columns", least: number): readonly number[] =>
    values[flag] === undefined ? FULL[flag] : readCounts(flag, values[flag], least);
  return {
    positions: counts("positions", 2),
    sequences: counts("sequences", 2),
    prompts: counts("prompts", 1),
    sharedPrompts: values.prompts === undefined ? FULL.sharedPrompts : counts("prompts", 1),
    columns: counts("columns", 1),
    tokens: values.tokens ?? FULL.tokens,
    variants: values.variants ?? false,
    repeats: values.repeats ?? FULL.repeats,
  };
}
