/**
 * The metadata of a GGUF file: those that a decoder's config and a tokenizer stand for.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { SavedMetadata } from "../../array/files/gguf_file.ts";
import { quoted } from "../../graph/error.ts";
import type { TokenizerTexts } from "../checkpoint/checkpoint.ts";
import { PRE_TOKENIZERS, type PreTokenizerRow } from "../checkpoint/gguf/pre_tokenizers.ts";
import { attentionOf, type DecoderConfig } from "../config/decoder.ts";
import type { RopeScaling } from "../config/rope.ts";
import { LlmError } from "../error.ts";

/** Architectures by "model_type". */
const ARCHITECTURES: Readonly<Record<string, string>> = {
  gemma: "gemma",
  gemma2: "gemma2",
  gemma3_text: "gemma3",
  gpt_oss: "gpt-oss",
  granite: "granite",
  granitemoe: "granitemoe",
  llama: "llama",
  ministral3: "mistral3",
  mistral: "llama",
  mixtral: "llama",
  olmo2: "olmo2",
  olmo3: "olmo2",
  phi3: "phi3",
  qwen2: "qwen2",
  qwen2_moe: "qwen2moe",
  qwen3: "qwen3",
  qwen3_moe: "qwen3moe",
  smollm3: "smollm3",
};

/** The attention of the first layer with a window, and of the first without. */
function kindsOf(config: DecoderConfig): Readonly<Record<"sliding" | "whole", number>> {
  const windows = Array.from({ length: config.layers }, (_, layer) => attentionOf(config, layer).window);
  return { sliding: windows.findIndex((window) => window !== undefined), whole: windows.indexOf(undefined) };
}

/** Whole numbers by key, as a config has them. */
const COUNTS: readonly (readonly [key: string, value: (config: DecoderConfig) => number | undefined])[] = [
  ["block_count", ({ layers }) => layers],
  ["context_length", ({ maxPositionEmbeddings }) => maxPositionEmbeddings],
  ["embedding_length", ({ hiddenSize }) => hiddenSize],
  ["feed_forward_length", ({ intermediateSize }) => intermediateSize],
  ["attention.head_count", ({ heads }) => heads],
  ["attention.head_count_kv", ({ kvHeads }) => kvHeads],
  ["attention.key_length", ({ headDim }) => headDim],
  ["attention.value_length", ({ headDim }) => headDim],
  ["rope.dimension_count", ({ headDim, ropeDims = headDim }) => ropeDims],
  ["attention.sliding_window", (config) => attentionOf(config, kindsOf(config).sliding).window],
  ["attention.sliding_window_pattern", (config) => {
    const { sliding, whole } = kindsOf(config);
    return sliding === 0 ? whole + 1 : undefined;
  }],
  ["expert_count", ({ experts }) => experts?.count],
  ["expert_used_count", ({ experts }) => experts?.chosen],
  ["expert_feed_forward_length", ({ experts }) => experts?.size],
  ["expert_shared_feed_forward_length", ({ experts }) => experts?.sharedSize],
  [
    "rope.scaling.original_context_length",
    ({ ropeScaling }) =>
      "originalMaxPositionEmbeddings" in ropeScaling ? ropeScaling.originalMaxPositionEmbeddings : undefined,
  ],
];

/** Numbers of rotary positions that are stretched in all layers alike. */
const stretched =
  (of: (scaling: Extract<RopeScaling, { type: "yarn" }>) => number | undefined) =>
  ({ ropeScaling }: DecoderConfig): number | undefined => ropeScaling.type === "yarn" ? of(ropeScaling) : undefined;

/** Other numbers by key. */
const FLOATS: readonly (readonly [key: string, value: (config: DecoderConfig) => number | undefined])[] = [
  ["attention.layer_norm_rms_epsilon", ({ rmsNormEps }) => rmsNormEps],
  ["rope.freq_base", ({ ropeTheta }) => ropeTheta],
  ["rope.freq_base_swa", (config) => {
    const { sliding, whole } = kindsOf(config);
    const bases = [sliding, whole].map((layer) => attentionOf(config, layer).rope?.ropeTheta);
    return sliding >= 0 && bases[0] !== bases[1] ? bases[0] : undefined;
  }],
  ["rope.scaling.factor", ({ ropeScaling }) => "factor" in ropeScaling ? ropeScaling.factor : undefined],
  ["rope.scaling.yarn_beta_fast", stretched(({ betaFast }) => betaFast)],
  ["rope.scaling.yarn_beta_slow", stretched(({ betaSlow }) => betaSlow)],
  ["rope.scaling.yarn_attn_factor", stretched(({ attentionFactor }) => attentionFactor)],
  ["attention.temperature_scale", ({ queryGrowth }) => queryGrowth?.beta],
  ["attention.scale", ({ scoreScale }) => scoreScale],
  ["embedding_scale", ({ embeddingScale }) => embeddingScale],
  ["residual_scale", ({ residualScale }) => residualScale],
  ["logit_scale", ({ logitDivisor }) => logitDivisor],
  ["attn_logit_softcapping", ({ scoreCap }) => scoreCap],
  ["final_logit_softcapping", ({ logitCap }) => logitCap],
];

/** The metadata that a config stands for. Throws an {@link LlmError} if there is no architecture of its family. */
export function configMetadata(config: DecoderConfig, path: string): SavedMetadata {
  if (!Object.hasOwn(ARCHITECTURES, config.modelType)) {
    const known = Object.keys(ARCHITECTURES).join(", ");
    throw new LlmError(
      "option",
      `${path} is a ${quoted(config.modelType)}, which is not written as GGUF: ${known} are`,
    );
  }
  const architecture = ARCHITECTURES[config.modelType];
  const { type } = config.ropeScaling;
  const numbers = (rows: typeof COUNTS, dtype: mx.Dtype): (readonly [string, mx.Tensor])[] =>
    rows.flatMap(([key, value]) => {
      const number = value(config);
      return number === undefined ? [] : [[`${architecture}.${key}`, mx.array(number, dtype)] as const];
    });
  return {
    "general.architecture": architecture,
    ...Object.fromEntries([...numbers(COUNTS, mx.uint32), ...numbers(FLOATS, mx.float32)]),
    ...((type === "linear" || type === "yarn") && { [`${architecture}.rope.scaling.type`]: type }),
  };
}

/** The parts of a tokenizer.json that count here. */
interface TokenizerJson {
  readonly model?: {
    readonly type?: string;
    readonly vocab?: Readonly<Record<string, number>>;
    readonly merges?: readonly (string | readonly [string, string])[];
    readonly ignore_merges?: boolean;
  };
  readonly normalizer?: unknown;
  readonly pre_tokenizer?: unknown;
  readonly post_processor?: unknown;
  readonly added_tokens?: readonly { readonly id: number; readonly content: string; readonly special?: boolean }[];
}

/** Kinds of tokens. */
const [NORMAL, CONTROL, USER_DEFINED, UNUSED] = [1, 3, 4, 5];

/** Names that are looked for first: others have the same rows. */
const COMMON = ["llama-bpe", "qwen2", "gpt-2", "smollm"];

/** The metadata of a tokenizer for a model of `count` embeddings. Throws an {@link LlmError} if GGUF has no name for its kind. */
export function tokenizerMetadata(texts: TokenizerTexts, count: number, path: string): SavedMetadata {
  const isJson = "tokenizer" in texts && (texts.format ?? "tokenizer.json") === "tokenizer.json";
  const { model, added_tokens: added = [], ...json }: TokenizerJson = isJson
    ? JSON.parse(new TextDecoder().decode(texts.tokenizer))
    : {};
  const row = rowOf(json, model?.ignore_merges ?? false);
  const names = [...COMMON, ...Object.keys(PRE_TOKENIZERS)];
  const pre = names.find((name) => keyOf(PRE_TOKENIZERS[name]) === row);
  if (model?.type !== "BPE" || pre === undefined) {
    throw new LlmError(
      "tokenizer",
      `${path} has a tokenizer that GGUF has no name for here: byte-level BPE is written`,
    );
  }
  const tokens = Array.from({ length: count }, (_, id) => `[PAD${id}]`);
  const kinds = new Int32Array(count).fill(UNUSED);
  const put = (text: string, id: number, kind: number): void => {
    if (id < count) [tokens[id], kinds[id]] = [text, kind];
  };
  for (const [text, id] of Object.entries(model.vocab ?? {})) put(text, id, NORMAL);
  for (const { content, id, special } of added) put(content, id, special ? CONTROL : USER_DEFINED);
  const config = JSON.parse(texts.config ?? "{}");
  const idOf = (name: string): number => {
    const token = config[name];
    return tokens.indexOf(typeof token === "object" ? token?.content : token);
  };
  const ids = [["bos_token_id", idOf("bos_token")], ["eos_token_id", idOf("eos_token")]] as const;
  const template = texts.chatTemplate ?? templateOf(config.chat_template);
  return {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": pre,
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": mx.array(kinds),
    "tokenizer.ggml.merges": (model.merges ?? []).map((merge) => typeof merge === "string" ? merge : merge.join(" ")),
    ...Object.fromEntries(
      ids.flatMap(([key, id]) => id < 0 ? [] : [[`tokenizer.ggml.${key}`, mx.array(id, mx.uint32)]]),
    ),
    "tokenizer.ggml.add_bos_token": /"single":\[\{"SpecialToken"/.test(JSON.stringify(json.post_processor ?? null)),
    ...(template !== undefined && { "tokenizer.chat_template": template }),
  };
}

/** The template without a name. */
function templateOf(template: unknown): string | undefined {
  if (typeof template === "string") return template;
  if (!Array.isArray(template)) return undefined;
  return template.find(({ name }) => name === "default")?.template;
}

/** A row as a text: equal for rows that cut alike. */
function keyOf({ steps = [], gpt2 = false, nfc = false, wholeWords = false }: PreTokenizerRow): string {
  return JSON.stringify([steps.map(stepKey), gpt2, nfc, wholeWords]);
}

function stepKey(step: Readonly<Record<string, unknown>>): unknown {
  const { type, pattern, behavior, invert = false, individual_digits: each } = step;
  return type === "Digits" ? [type, each ?? false] : [type, (pattern as { Regex?: unknown })?.Regex, behavior, invert];
}

/** The same text of a tokenizer.json; "" if it has steps that rows have not. */
function rowOf({ normalizer, pre_tokenizer }: TokenizerJson, wholeWords: boolean): string {
  const flat = (pipeline: unknown, list: string): Readonly<Record<string, unknown>>[] => {
    const step = (pipeline ?? undefined) as Readonly<Record<string, unknown>> | undefined;
    if (step === undefined) return [];
    return step.type === "Sequence" ? (step[list] as unknown[]).flatMap((one) => flat(one, list)) : [step];
  };
  const forms = flat(normalizer, "normalizers");
  const steps = flat(pre_tokenizer, "pretokenizers");
  const last = steps.pop();
  if (last?.type !== "ByteLevel" || last.add_prefix_space !== false) return "";
  if (forms.some(({ type }) => type !== "NFC")) return "";
  return keyOf({ steps, gpt2: last.use_regex !== false, nfc: forms.length > 0, wholeWords });
}
