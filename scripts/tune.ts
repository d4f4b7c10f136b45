/**
 * `deno task tune`: measures by which numbers a device should choose its kernels, and prints them as a record of src/schedule/tuning.
 *
 *     deno task tune --device vulkan:0              all of it, within 180 seconds
 *     deno task tune --device vulkan:0 --budget 60  what 60 seconds give; the rest stays that of the device's class
 *     deno task tune --small                        sizes for software drivers
 *
 * It measures the costs of quantized products, and the split of products without matrix units. It finds the hidden size from which
 * row-parallel GEMV is faster than split-K, and the number of sequences from which a batch is faster. Progress goes to stderr.
 *
 * @module
 */

import * as mx from "../mod.ts";
import { type Flags, UsageError } from "../src/cli/flags.ts";
import { note, print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { closeDevices, getBackend } from "../src/backend/devices.ts";
import { tuningOf } from "../src/schedule/tuning/choose.ts";
import { SHAPES } from "./synthetic/synthetic.ts";
import { measureSteps, readSteps } from "./tune/decode.ts";
import { LAYER_SIZES, measureCosts, measureCuts, SMALL_SIZES } from "./tune/products.ts";
import { recordSource } from "./tune/record.ts";

const FLAGS = {
  "device": { value: "NAME", help: "device to measure (the default device)" },
  "budget": { value: "SECONDS", help: "end by then, with what is there (180)", range: [1, 86400] },
  "small": { help: "small sizes, for software drivers" },
} as const satisfies Flags;

/** Seconds, and the share of them that single products may take. */
const BUDGET = 180;
const PRODUCTS_SHARE = 0.4;

/** Models, numbers of sequences, tokens and repeats. */
const EFFORTS = {
  full: { shapes: ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"], sequences: [2, 3, 4, 6, 8], tokens: 48, repeats: 3 },
  small: { shapes: ["tiny"], sequences: [2], tokens: 4, repeats: 1 },
} as const;

const PROGRAM = {
  name: "tune",
  about:
    "Measures by which numbers a device should choose its kernels, and prints them as a record of src/schedule/tuning.",
  flags: FLAGS,
};

await runMain(PROGRAM, async ({ device: given, budget = BUDGET, small = false }) => {
  const start = performance.now();
  const device = given === undefined ? mx.defaultDevice() : mx.deviceInfo(given).name;
  if (!device.startsWith("vulkan:")) {
    throw new UsageError(`${device} is no Vulkan device: \`deno task devices\` says what is here`);
  }
  const say = (line: string): void => note(`${line}\n`);
  const backend = getBackend(device);
  const base = tuningOf(backend);
  const sizes = small ? SMALL_SIZES : LAYER_SIZES;
  const isOver = (): boolean => performance.now() - start > 1000 * budget * PRODUCTS_SHARE;
  const cuts = measureCuts(backend, sizes, say);
  const costs = measureCosts(backend, base.computeUnits, sizes, isOver, say);
  const { description, limits } = backend;
  closeDevices(); // the processes that measure steps have the device to themselves
  const { shapes, ...effort } = EFFORTS[small ? "small" : "full"];
  const models = shapes.map((name) => SHAPES[name]);
  const until = start + 1000 * budget;
  const { times, copy } = await measureSteps({ ...effort, device, shapes: models, until, say });
  const date = new Date().toISOString().slice(0, 10);
  print(recordSource({ description, limits, date, costs, cuts, decode: readSteps(times, base.decode), copy }));
  return 0;
});
