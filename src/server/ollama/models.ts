/**
 * The endpoints of ollama's API about models: /api/tags, /api/ps, /api/show, /api/pull and /api/version.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import type { lm } from "../../../mod.ts";
import { type Context, type FrontContext, jsonReply } from "../context.ts";
import { fieldError } from "../errors.ts";
import { ERROR_PIECES, line, lineReply } from "../sse.ts";
import type { Served } from "../served.ts";
import { MODEL } from "./fields.ts";
import { modelName } from "./names.ts";

/** The end of a model that stays. */
const NEVER = "9999-12-31T23:59:59Z";

/** GET /api/tags: all models. Of those whose files are not there yet, only names are known. */
export async function listTags(context: FrontContext): Promise<HttpReply> {
  const models = context.models.all.map(async ({ id, created }) => ({
    ...await tagOf(context, id),
    modified_at: new Date(1000 * created).toISOString(),
  }));
  return jsonReply(200, { models: await Promise.all(models) });
}

/** GET /api/ps: the models in memory. */
export async function listRunning(context: Context): Promise<HttpReply> {
  const models = context.models.loaded.map(async ({ id, bytes, hostBytes, config }) => {
    const expires = context.models.expiresAt(id);
    return {
      ...await tagOf(context, id),
      size: bytes + hostBytes,
      size_vram: bytes,
      expires_at: expires === Infinity ? NEVER : new Date(expires).toISOString(),
      context_length: config.maxPositionEmbeddings,
    };
  });
  return jsonReply(200, { models: await Promise.all(models) });
}

/** POST /api/show: what is known of a model. Its template is known from its first load on. */
export async function show(context: Context): Promise<HttpReply> {
  const { model: given, name } = await context.read(MODEL);
  const id = modelName(context.models, given ?? name);
  const info = await context.describe(id);
  const served = context.models.loaded.find((one) => one.id === id);
  const config = served?.config ?? info?.config;
  const { created } = context.models.all.find((one) => one.id === id)!;
  const architecture = config?.modelType ?? "";
  return jsonReply(200, {
    modelfile: `FROM ${id}\n`,
    parameters: served ? parametersOf(served.generationConfig) : "",
    template: served?.tokenizer.chatTemplate ?? "",
    details: detailsOf(info),
    model_info: {
      "general.architecture": architecture,
      ...(info && { "general.parameter_count": info.parameters }),
      ...(config && {
        [`${architecture}.context_length`]: config.maxPositionEmbeddings,
        [`${architecture}.vocab_size`]: config.vocabSize,
      }),
    },
    capabilities: capabilitiesOf(served),
    modified_at: new Date(1000 * created).toISOString(),
  });
}

/** POST /api/pull: a model that the server offers is there; no other can be had. */
export async function pull(context: FrontContext): Promise<HttpReply> {
  const { model, name, stream = true } = await context.read(MODEL);
  if (model === undefined && name === undefined) throw fieldError("model", "model is missing");
  modelName(context.models, model ?? name);
  const done = { status: "success" };
  if (!stream) return jsonReply(200, done);
  const lines = (async function* () {
    yield line(await Promise.resolve(done));
  })();
  return await lineReply(lines, ERROR_PIECES.ollama, context.report);
}

/** GET /api/version: that of this package. */
export function version({ version }: FrontContext): Promise<HttpReply> {
  return Promise.resolve(jsonReply(200, { version }));
}

/** A model in lists. Its digest is that of the names and sizes of its files. */
async function tagOf(context: FrontContext, id: string): Promise<Record<string, unknown>> {
  const info = await context.describe(id);
  const files = JSON.stringify(info?.files ?? [id]);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(files)));
  return { name: id, model: id, size: info?.weightBytes ?? 0, digest: digest.toHex(), details: detailsOf(info) };
}

function detailsOf(info: lm.ModelInfo | undefined): Record<string, unknown> {
  const family = info?.config.modelType ?? "";
  return {
    parent_model: "",
    format: info === undefined ? "" : info.files.some(({ name }) => name.endsWith(".gguf")) ? "gguf" : "safetensors",
    family,
    families: family === "" ? [] : [family],
    parameter_size: info ? countText(info.parameters) : "",
    quantization_level: info ? levelOf(info) : "",
  };
}

/** A count of parameters: "8.2B", "596M". */
function countText(count: number): string {
  return count >= 1e9 ? `${(count / 1e9).toFixed(1)}B` : `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)}M`;
}

/** How most weights are stored: "Q4" of four bits, else the dtype or the type of a GGUF file. */
function levelOf({ config, dtypes: [most = ""] }: lm.ModelInfo): string {
  const base = config.quantization?.base;
  if (most !== "uint32" || base === undefined) return most.toUpperCase();
  return base.mode === undefined || base.mode === "affine" ? `Q${base.bits}` : base.mode.toUpperCase();
}

function parametersOf({ temperature, topK, topP, minP }: lm.GenerationConfig): string {
  const given = { temperature, top_k: topK, top_p: topP, min_p: minP };
  return Object.entries(given).flatMap(([name, value]) => value === undefined ? [] : [`${name} ${value}`]).join("\n");
}

/** What a model can do, as its chat template tells. */
function capabilitiesOf(served: Served | undefined): string[] {
  const template = served?.tokenizer.chatTemplate ?? "";
  return [
    "completion",
    ...(/\btools\b/.test(template) ? ["tools"] : []),
    ...(/\b(enable_thinking|reasoning_effort|reasoning_content)\b/.test(template) ? ["thinking"] : []),
  ];
}
