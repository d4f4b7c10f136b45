/**
 * POST /v1/embeddings.
 *
 * @module
 */

import type { HttpReply } from "../../../ffi/http/server.ts";
import { type Context, jsonReply } from "../context.ts";
import { fieldError } from "../errors.ts";
import { type Kind, list, object, oneOf, required, text, whole } from "../fields.ts";

/** Most texts of a request, as OpenAI has it. */
const MAX_TEXTS = 2048;

/** A text or a list of texts. */
const INPUT: Kind<readonly string[]> = {
  read: (value, at) => {
    const first: unknown = Array.isArray(value) ? value[0] : undefined;
    if (typeof first === "number" || Array.isArray(first)) {
      throw fieldError(at, `${at} has token ids, which are not supported: send texts`, "unsupported_parameter");
    }
    return typeof value === "string" ? [value] : list(text, { min: 1, max: MAX_TEXTS }).read(value, at);
  },
};

const BODY = object({
  model: text,
  input: required(INPUT),
  encoding_format: oneOf("float", "base64"),
  dimensions: whole(1),
});

/** The vectors of texts. */
export async function embeddings(context: Context): Promise<HttpReply> {
  const { model: id, input, encoding_format: format = "float", dimensions } = await context.read(BODY);
  using lease = await context.models.lease(id);
  const { served } = lease;
  const counts = input.map((one) => served.tokenizer.encode(one).length);
  const empty = counts.findIndex((count) => count === 0);
  if (empty >= 0) throw fieldError("input", `input[${empty}] is empty`);
  using vectors = await served.engine.embed(input, { signal: context.request.signal });
  const size = vectors.shape[1];
  if (dimensions !== undefined && dimensions !== size) {
    throw fieldError("dimensions", `dimensions is ${dimensions}, and the model has ${size}`, "unsupported_parameter");
  }
  const encode = format === "float" ? (vector: number[]): unknown => vector : base64;
  const tokens = counts.reduce((sum, count) => sum + count, 0);
  return jsonReply(200, {
    object: "list",
    data: vectors.tolist().map((vector, index) => ({ object: "embedding", index, embedding: encode(vector) })),
    model: served.id,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

/** The float32 numbers of a vector, least byte first, in base64. */
function base64(vector: readonly number[]): string {
  const bytes = new DataView(new ArrayBuffer(4 * vector.length));
  vector.forEach((value, i) => bytes.setFloat32(4 * i, value, true));
  return new Uint8Array(bytes.buffer).toBase64();
}
