/**
 * Flags of commands that generate text, and the options that they become.
 *
 * @module
 */

import type { lm } from "../../mod.ts";
import { quoted } from "../graph/error.ts";
import { type Flags, UsageError, type Values } from "./flags.ts";
import { note } from "./output.ts";

/** The flag of commands that take one model. */
export const MODEL_FLAG = {
  "model": {
    value: "DIR",
    help: "model directory, GGUF file, or name of the hub (default: the embedded tiny-qwen3)",
    meant: ["hf", "hf-repo", "repo"],
  },
} as const satisfies Flags;

/** The flag of commands that take a fine-tuned model. */
export const ADAPTER_FLAG = {
  "adapter-path": {
    value: "DIR",
    help: "folder of adapters that vkmx train or mlx-lm wrote for the model",
    meant: ["lora", "adapter", "adapters"],
  },
} as const satisfies Flags;

/** The flag of commands that compute. */
export const DEVICE_FLAG = {
  "device": {
    value: "NAME",
    help: "gpu, cpu, a name such as vulkan:1, or list (default: VKMX_DEVICE, else the best one)",
    meant: ["dev", "ngl", "gpu-layers", "n-gpu-layers", "gpu", "cpu"],
  },
} as const satisfies Flags;

/** The flag of how much of a model a device takes. */
export const WEIGHT_BYTES_FLAG = {
  "weight-bytes": {
    value: "N",
    help: "most bytes of weights on a GPU; other experts on the host (all that fit, else 3/4)",
    range: [0, Number.MAX_SAFE_INTEGER],
    whole: true,
    unit: "bytes",
    meant: ["n-cpu-moe", "ncmoe", "cpu-moe", "cmoe", "override-tensor", "ot", "cpu-offload-gb"],
  },
} as const satisfies Flags;

/** What {@link WEIGHT_BYTES_FLAG} says. */
export function weightBytesOf(
  { "weight-bytes": weightBytes }: Values<typeof WEIGHT_BYTES_FLAG>,
): Pick<lm.LoadOptions, "weightBytes"> {
  return weightBytes === undefined ? {} : { weightBytes };
}

/** Where the weights of a model go. */
export type ModelPlace = Pick<lm.LoadOptions, "device" | "devices" | "split" | "weightBytes">;

/** The flags of commands whose models several devices may share. */
export const DEVICES_FLAGS = {
  "device": {
    ...DEVICE_FLAG.device,
    value: "A[,B…]",
    help: "gpu, cpu, vulkan:1 …, or list; several share the layers (VKMX_DEVICE, else the best)",
  },
  "split": {
    value: "HOW",
    help: "layers (by free memory), or how many layers each device has, as 20,16 (layers)",
    meant: ["sm", "split-mode", "ts", "tensor-split", "pipeline-parallel-size", "pp"],
  },
  ...WEIGHT_BYTES_FLAG,
} as const satisfies Flags;

/** Flags of what a model on several devices does not have. */
interface OneDeviceValues {
  readonly speculate?: string | undefined;
  readonly "adapter-path"?: string | undefined;
}

/** Where the model of {@link DEVICES_FLAGS} is loaded to. Throws a {@link UsageError} for flags that do not fit the devices. */
export function placeOf(
  { device, split = "layers", speculate, "adapter-path": adapters, ...rest }:
    & Values<typeof DEVICES_FLAGS>
    & OneDeviceValues,
): ModelPlace {
  const limit = weightBytesOf(rest);
  const devices = device?.split(",") ?? [];
  if (devices.length < 2) {
    if (split !== "layers") throw new UsageError(`--split ${quoted(split)} needs several devices: --device A,B`);
    return { ...(device !== undefined && { device }), ...limit };
  }
  const refused = speculate === "mtp" ? "--speculate mtp" : adapters === undefined ? undefined : "--adapter-path";
  if (refused) throw new UsageError(`${refused} needs one device, and --device names ${devices.length}`);
  if (split === "layers") return { devices, ...limit };
  const twice = devices.find((name, i) => devices.indexOf(name) < i);
  if (twice !== undefined) {
    throw new UsageError(`--split needs devices that differ: --device names ${quoted(twice)} twice`);
  }
  const shares = split.split(",").map(Number);
  if (shares.length !== devices.length || !shares.every((share) => share > 0 && Number.isFinite(share))) {
    throw new UsageError(
      `--split is ${quoted(split)}, expected layers or ${devices.length} positive numbers, one for each device`,
    );
  }
  return { devices, split: shares, ...limit };
}

/** The flag of the bits of keys and values. */
export const KV_BITS_FLAG = {
  "kv-bits": {
    value: "N",
    help: "8 keeps keys and values in half of the bytes of float16 (default: as the model computes)",
    meant: ["cache-type-k", "cache-type-v", "kv-cache-dtype"],
  },
} as const satisfies Flags;

/** What {@link KV_BITS_FLAG} says. Throws a {@link UsageError} for other bits. */
export function kvBitsOf({ "kv-bits": bits }: Values<typeof KV_BITS_FLAG>): { kvBits?: 8 } {
  if (bits === undefined) return {};
  if (bits !== "8") throw new UsageError(`--kv-bits is ${quoted(bits)}, expected 8`);
  return { kvBits: 8 };
}

/** Flags of speculation. */
export const SPECULATION_FLAGS = {
  "speculate": {
    value: "HOW",
    help: "ngrams drafts what followed before, mtp the head of the model; answers stay the same",
    meant: [
      "speculative-config",
      "spec-type",
      "lookup",
      "prompt-lookup-num-tokens",
      "draft-model",
      "model-draft",
      "md",
    ],
  },
  "num-draft-tokens": {
    value: "N",
    help: "most drafted tokens that a step verifies (7, of mtp 3)",
    range: [1, 7],
    whole: true,
    meant: ["draft", "draft-max", "draft-n", "num-speculative-tokens"],
  },
} as const satisfies Flags;

/** The flag of a draft model. */
export const DRAFT_MODEL_FLAG = {
  "draft-model": {
    value: "DIR",
    help: "a smaller model with the same tokens, which drafts in place of --speculate",
    meant: ["model-draft", "md"],
  },
} as const satisfies Flags;

/** Throws a {@link UsageError} if two flags say what drafts. */
export function checkDrafter(
  { speculate, "draft-model": draft }: Values<typeof SPECULATION_FLAGS & typeof DRAFT_MODEL_FLAG>,
): void {
  if (speculate !== undefined && draft !== undefined) {
    throw new UsageError("--speculate and --draft-model exclude each other");
  }
}

/** Flags of commands that generate text. */
export const MODEL_FLAGS = {
  ...MODEL_FLAG,
  "system": {
    value: "TEXT",
    help: "system message; implies the chat template",
    aliases: ["system-prompt"],
    meant: ["sys"],
  },
  "max-tokens": {
    value: "N",
    short: "m",
    help: "most tokens to generate (default: as many as the model's context has room for)",
    range: [1, Number.MAX_SAFE_INTEGER],
    whole: true,
    meant: ["n", "n-predict", "predict", "num-predict"],
  },
  "temp": {
    value: "T",
    help: "temperature; 0 is greedy (generation_config)",
    range: [0, 100],
    aliases: ["temperature"],
  },
  "top-p": { value: "P", help: "keep the most probable tokens up to this share (generation_config)", range: [0, 1] },
  "top-k": {
    value: "K",
    help: "keep this many tokens, 0 keeps all (generation_config)",
    range: [0, Number.MAX_SAFE_INTEGER],
    whole: true,
  },
  "min-p": {
    value: "P",
    help: "drop tokens below this share of the top probability (generation_config)",
    range: [0, 1],
  },
  "repetition-penalty": {
    value: "P",
    help: "divide the logits of recent tokens by this (1)",
    range: [0.01, 100],
    meant: ["repeat-penalty"],
  },
  "presence-penalty": { value: "P", help: "subtract this from the logits of recent tokens (0)", range: [-100, 100] },
  "frequency-penalty": { value: "P", help: "the same for each time that they occur (0)", range: [-100, 100] },
  "stop": { value: "TEXT", help: "end before this text; may be given several times", many: true },
  "seed": {
    value: "N",
    help: "make sampling repeatable",
    range: [0, Number.MAX_SAFE_INTEGER],
    whole: true,
    meant: ["s"],
  },
  "no-think": {
    help: "switch thinking off; implies the chat template",
    meant: ["think", "thinking", "enable-thinking", "reasoning-budget", "chat-template-config"],
  },
  "prefill-step-size": {
    value: "N",
    help: "most prompt tokens of one forward pass (2048)",
    range: [1, Number.MAX_SAFE_INTEGER],
    whole: true,
    meant: ["b", "batch-size", "ub", "ubatch-size"],
  },
  ...SPECULATION_FLAGS,
  ...KV_BITS_FLAG,
  ...DEVICES_FLAGS,
} as const satisfies Flags;

/** What drafts where no draft model does. */
const DRAFTERS = ["ngrams", "mtp"] as const;

/** What the flags of speculation say. */
interface FlaggedSpeculation {
  readonly speculation?: {
    readonly drafter: typeof DRAFTERS[number] | lm.DraftModel;
    readonly numDraftTokens?: number;
  };
}

/** What the flags of speculation say, with a draft model if there is one. Throws a {@link UsageError} for flags that do not fit. */
export function speculationOf(
  { speculate, "num-draft-tokens": numDraftTokens }: Values<typeof SPECULATION_FLAGS>,
  draft: lm.DraftModel | undefined,
): FlaggedSpeculation {
  const named = DRAFTERS.find((name) => name === speculate);
  if (speculate !== undefined && named === undefined) {
    throw new UsageError(`--speculate is ${quoted(speculate)}, expected ${DRAFTERS.join(" or ")}`);
  }
  const drafter = draft ?? named;
  if (drafter) return { speculation: { drafter, ...(numDraftTokens !== undefined && { numDraftTokens }) } };
  if (numDraftTokens !== undefined) {
    throw new UsageError(`--num-draft-tokens needs --speculate ${DRAFTERS.join(" or ")}, or a draft model`);
  }
  return {};
}

/** Whether the flags have the head of the model draft, which is loaded for that. */
export function draftHeadOf({ speculate }: Values<typeof SPECULATION_FLAGS>): { readonly draftHead?: true } {
  return speculate === "mtp" ? { draftHead: true } : {};
}

/** Generation options from {@link MODEL_FLAGS}; missing flags take the model's defaults. */
export function generateOptions(
  values: Values<typeof MODEL_FLAGS>,
  wishes: lm.GenerationConfig,
  draft?: lm.DraftModel,
): lm.GenerateOptions {
  return {
    maxTokens: values["max-tokens"] ?? Number.MAX_SAFE_INTEGER, // the context ends it
    temp: values.temp ?? wishes.temperature ?? 0,
    topP: values["top-p"] ?? wishes.topP,
    topK: values["top-k"] ?? wishes.topK,
    minP: values["min-p"] ?? wishes.minP,
    repetitionPenalty: values["repetition-penalty"],
    presencePenalty: values["presence-penalty"],
    frequencyPenalty: values["frequency-penalty"],
    stop: values.stop ?? [],
    seed: values.seed,
    enableThinking: !values["no-think"],
    ...speculationOf(values, draft),
    ...(values["prefill-step-size"] !== undefined && { prefillStepSize: values["prefill-step-size"] }),
  };
}

/** Says on stderr why an answer ended if the model had not ended it. */
export function tellEnd(last: lm.GenerationResponse, { maxTokens = Infinity }: lm.GenerateOptions): void {
  const { finishReason, generationTokens: count } = last;
  if (finishReason === "abort") note("[the answer was stopped by Ctrl-C]\n");
  if (finishReason !== "length") return;
  const why = count >= maxTokens
    ? `the limit of ${count} tokens: --max-tokens sets it`
    : "the end of the model's context";
  note(`[the answer was cut off at ${why}]\n`);
}
