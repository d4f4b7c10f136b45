/**
 * The model that is part of the package: tiny-qwen3, small enough to travel in it, made to show that everything works.
 *
 * @module
 */

import { type ProvidedFolder, provideFolder, type PublishedFolder } from "../../../ffi/published_folder.ts";
import { LlmError } from "../error.ts";

/**
 * The model that is part of the package, for {@link load}. If the package came over a network, the first load fetches the model's
 * files into the cache folder. Each load compares them with their SHA-256.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
 * ```
 */
export const EMBEDDED_MODEL: URL = new URL("../../../examples/models/tiny-qwen3/", import.meta.url);

const FOLDER: PublishedFolder = {
  url: EMBEDDED_MODEL,
  what: "the embedded model",
  files: {
    "config.json": { bytes: 728, sha256: "b79b8b0e5851687ff24891443f2e5e9571718f76a523bfdf632844076de87312" },
    "generation_config.json": {
      bytes: 169,
      sha256: "cca10d2e0c2f4b3a4987e051d0c5c37012f74bb7d71e4c076a52e74a3681c416",
    },
    "model.safetensors": {
      bytes: 4769296,
      sha256: "6d1d468e4c0562438989a7ebb57781a4f735a6ec570aa71003efa266864c345c",
    },
    "tokenizer.json": { bytes: 375991, sha256: "68b71e02ccf57e06b660c864e9f1f0328305239860fa2cac91049d4fce1e4ee6" },
    "tokenizer_config.json": {
      bytes: 2050,
      sha256: "5fb7cde5c388bcaf7272e0ba590c4f19f43bc1adf3241dd53eb30cf246fd3f55",
    },
  },
};

/** SHA-256 and bytes of the files of {@link EMBEDDED_MODEL}. */
export const EMBEDDED_FILES: PublishedFolder["files"] = FOLDER.files;

/** Whether something names {@link EMBEDDED_MODEL}. */
export function isEmbedded(model: unknown): boolean {
  return model instanceof URL && model.href === EMBEDDED_MODEL.href;
}

/** The folder of {@link EMBEDDED_MODEL} on disk. Throws an {@link LlmError} that says what to do where there can be none. */
export async function provideEmbedded(signal: AbortSignal | undefined): Promise<ProvidedFolder> {
  try {
    return await provideFolder(FOLDER, signal);
  } catch (cause) {
    signal?.throwIfAborted();
    const { message } = cause as Error;
    throw new LlmError("hub", `${message}; load it once with network, or another model`);
  }
}
