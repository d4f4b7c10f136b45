/**
 * `bench` around the measuring: which devices, which tests, and the table.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { shownPath } from "../../graph/error.ts";
import { checkOneOf, type Flags, type Values } from "../flags.ts";
import { loadOptions, onInterrupt } from "../loading.ts";
import { DEVICES_FLAGS, MODEL_FLAG, placeOf, WEIGHT_BYTES_FLAG, weightBytesOf } from "../model_flags.ts";
import { print, printJson } from "../output.ts";
import { JSON_FLAG } from "../program.ts";
import { describeBytes, describeCount, table } from "../table.ts";
import { readCounts } from "./figures.ts";
import { type Figures, measure, type Phase, type Work } from "./measure.ts";

/** Dtypes that a model computes in. */
const DTYPES = ["float32", "float16", "bfloat16"] as const;

/** Flags of `bench`. */
export const BENCH_FLAGS = {
  ...MODEL_FLAG,
  "prompt": { value: "N[,N…]", help: "tokens of the prompt (128)" },
  "tokens": { value: "M[,M…]", help: "tokens to generate after the first prompt (32)" },
  "runs": { value: "R", help: "runs to take the median of (3)", range: [1, 1000], whole: true },
  "device": { value: "A[,B…]", help: "devices (all but software drivers), one after another or with --split together" },
  "split": { ...DEVICES_FLAGS.split, help: "all devices share the layers: layers (by free memory), or as 20,16" },
  ...WEIGHT_BYTES_FLAG,
  "dtype": { value: "NAME", help: `dtype of activations and cache: ${DTYPES.join(", ")} (that of mx.lm.load)` },
  "all": { help: "software drivers too" },
  "profile": { help: "time of every kernel, in one more run" },
  ...JSON_FLAG,
} as const satisfies Flags;

/** Measures a model as flags say, and prints the table. Returns the exit code. */
export async function bench(values: Values<typeof BENCH_FLAGS>, model: string | URL): Promise<number> {
  const work: Work = {
    prompts: unique(readCounts("prompt", values.prompt ?? "128", 1)),
    tokens: unique(readCounts("tokens", values.tokens ?? "32", 1)),
    runs: values.runs ?? 3,
    profile: values.profile ?? false,
    dtype: values.dtype === undefined ? undefined : checkOneOf("--dtype", values.dtype, DTYPES),
  };
  await mx.prepareDevices(values.device?.split(",").find((name) => name.startsWith("vulkan")));
  const devices = chooseDevices(values.device, values.all ?? false);
  const path = await folderOf(model);
  const info = await mx.lm.inspect(path);
  const name = typeof model === "string" ? model : model.pathname.split("/").at(-2)!;
  const results: Figures[] = [];
  const places = values.split === undefined
    ? devices.map((device) => ({ device, ...weightBytesOf(values) }))
    : [placeOf({ ...values, device: devices.join() })];
  for (const place of places) results.push(await measure(path, place, work));
  if (values.json) {
    const { parameters, weightBytes } = info;
    printJson({ model: name, size_bytes: weightBytes, parameters, runs: work.runs, devices: results });
  } else {
    print(describe(name, info, results));
  }
  return 0;
}

const unique = (counts: readonly number[]): readonly number[] => [...new Set(counts)];

/** Names of the devices to measure. Throws if one is not there. */
function chooseDevices(named: string | undefined, all: boolean): string[] {
  if (named !== undefined) return [...new Set(named.split(",").map((name) => mx.deviceInfo(name).name))];
  return mx.devices().filter(({ usable, type }) => usable && (all || type !== "cpu")).map(({ name }) => name);
}

/** The folder of a model; one of the hub is downloaded first, if it is not whole in the cache. */
async function folderOf(model: string | URL): Promise<string | URL> {
  if (typeof model !== "string") return model;
  const { onDownload } = loadOptions(undefined);
  return await mx.lm.hub.locate(model, { signal: onInterrupt(), ...(onDownload && { onProgress: onDownload }) });
}

function describe(name: string, { weightBytes, parameters }: mx.lm.ModelInfo, results: readonly Figures[]): string {
  const head = ["MODEL", "SIZE", "PARAMETERS", "DEVICE", "TEST", "TOK/S", "SPREAD"];
  const rows = results.flatMap(({ device, tests }) =>
    tests.map(({ test, tokens, tps, spread }) => [
      shownPath(name),
      describeBytes(weightBytes),
      describeCount(parameters),
      device,
      `${test} ${tokens}`,
      tps.toFixed(1),
      spread === null ? "-" : `± ${spread.toFixed(1)}`,
    ])
  );
  const devices = results.map((
    { device, description, dtype, load_s, peak_memory_bytes, host_weight_bytes: host, profile = [] },
  ) =>
    `${device}: ${description}; activations of ${dtype}, loaded in ${load_s.toFixed(2)} s, ${
      describeBytes(peak_memory_bytes)
    } of memory at most${host > 0 ? `, ${describeBytes(host)} of experts in host memory` : ""}\n` +
    profile.map(describePhase).join("")
  );
  return `${table([head, ...rows], [1, 2, 5, 6])}\n${devices.join("")}`;
}

function describePhase({ phase, tokens_in, tokens_out, profile }: Phase): string {
  return `\n${phase}: ${tokens_in} tokens in, ${tokens_out} out\n${mx.describeProfile(profile)}\n`;
}
