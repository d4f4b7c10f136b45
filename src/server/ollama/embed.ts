/**
 * POST /api/embed and /api/embeddings of ollama: vectors of texts. Those of /api/embed have the length 1.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type Context, jsonReply } from "../context.ts";
import { fieldError } from "../errors.ts";
import { EMBED, EMBEDDINGS } from "./fields.ts";
import { modelName, nanoseconds } from "./names.ts";

/** Vectors of texts, and the tokens that were read. */
interface Embedded {
  readonly model: string;
  readonly vectors: number[][];
  readonly tokens: number;
  readonly loadMs: number;
}

/** POST /api/embed: a vector for each text. `dimensions` keeps the first numbers of each. */
export async function embed(context: Context): Promise<HttpReply> {
  const started = performance.now();
  const { model: given, input, dimensions, keep_alive: keepAlive } = await context.read(EMBED);
  const texts = typeof input === "string" ? [input] : input;
  const { model, vectors, tokens, loadMs } = await embedded(context, given, texts, keepAlive);
  return jsonReply(200, {
    model: given ?? model,
    embeddings: vectors.map((vector) => normalized(vector.slice(0, dimensions))),
    total_duration: nanoseconds(performance.now() - started),
    load_duration: nanoseconds(loadMs),
    prompt_eval_count: tokens,
  });
}

/** POST /api/embeddings, which is older: the vector of one text, as the model gives it. */
export async function embedOne(context: Context): Promise<HttpReply> {
  const { model, prompt = "", keep_alive: keepAlive } = await context.read(EMBEDDINGS);
  const { vectors } = await embedded(context, model, prompt === "" ? [] : [prompt], keepAlive);
  return jsonReply(200, { embedding: vectors[0] ?? [] });
}

async function embedded(
  { models, request }: Context,
  given: string | undefined,
  texts: readonly string[],
  keepAlive: number | undefined,
): Promise<Embedded> {
  const model = modelName(models, given);
  const started = performance.now();
  using lease = await models.lease(model, keepAlive);
  const loadMs = performance.now() - started;
  const { tokenizer, engine } = lease.served;
  const counts = texts.map((text) => tokenizer.encode(text).length);
  const empty = counts.indexOf(0);
  if (empty >= 0) throw fieldError("input", `input[${empty}] is empty`);
  if (texts.length === 0) return { model, vectors: [], tokens: 0, loadMs };
  using vectors = await engine.embed(texts, { signal: request.signal });
  return { model, vectors: vectors.tolist(), tokens: counts.reduce((sum, count) => sum + count, 0), loadMs };
}

/** A vector of the same direction and the length 1. */
function normalized(vector: readonly number[]): number[] {
  const length = Math.hypot(...vector);
  return length === 0 ? [...vector] : vector.map((value) => value / length);
}
