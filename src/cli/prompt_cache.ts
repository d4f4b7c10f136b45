/**
 * Prompt caches of `generate`: read from a file before a prompt, and written to one after the answer.
 *
 * @module
 */

import { dirname } from "node:path";
import * as mx from "../../mod.ts";
import { quoted, shownPath } from "../graph/error.ts";
import type { Flags, Values } from "./flags.ts";
import { type KV_BITS_FLAG, kvBitsOf } from "./model_flags.ts";
import { note } from "./output.ts";

/** The flags of files of prompt caches. */
export const CACHE_FLAGS = {
  "prompt-cache": {
    value: "FILE",
    help: "a cache of the begin of the prompt, ours or mlx-lm's",
    aliases: ["prompt-cache-file"],
    meant: ["cache-file", "load-prompt-cache"],
  },
  "save-prompt-cache": {
    value: "FILE",
    help: "write the cache of prompt and answer; may be that of --prompt-cache, there or not",
    meant: ["prompt-cache-all", "prompt-cache-rw"],
  },
  "max-kv-size": {
    value: "N",
    help: "a token sees the first 4 positions and the last N - 4 (default: all)",
    range: [8, Number.MAX_SAFE_INTEGER],
    whole: true,
  },
} as const satisfies Flags;

type CacheValues = Values<typeof CACHE_FLAGS & typeof KV_BITS_FLAG> & { readonly model?: string };

/** The cache that the flags name, between loading the model and the end of its answer. */
export class PromptCacheFile implements Disposable {
  /** Generation options for the cache. */
  readonly options: Pick<mx.lm.GenerateOptions, "cache" | "cachePrompt" | "kvBits" | "maxKvSize">;
  readonly #values: CacheValues;
  readonly #cache: mx.lm.KvCache | undefined;

  private constructor(values: CacheValues, cache: mx.lm.KvCache | undefined) {
    this.#values = values;
    this.#cache = cache;
    this.options = cache ? { cache, cachePrompt: this.#knowsTokens } : sizesOf(values);
  }

  /** Reads the file of --prompt-cache. Throws if it cannot be used, or nothing can be saved to the file of the other flag. */
  static async open(values: CacheValues, model: mx.lm.LanguageModel): Promise<PromptCacheFile> {
    const { "prompt-cache": file, "save-prompt-cache": save } = values;
    if (save !== undefined && !await exists(dirname(save))) {
      throw new Error(`${shownPath(save)} cannot be written: its folder does not exist`);
    }
    if (file === undefined || (file === save && !await exists(file))) {
      return new PromptCacheFile(values, save === undefined ? undefined : model.makeCache(sizesOf(values)));
    }
    const { cache, metadata } = await mx.lm.loadPromptCache(file, model, sizesOf(values));
    if (metadata.model !== undefined && metadata.model !== nameOf(values)) {
      note(`${shownPath(file)} was saved with ${quoted(metadata.model)}\n`);
    }
    return new PromptCacheFile(values, cache);
  }

  /** Whether the file told which tokens it holds: those of mlx-lm do not. */
  get #knowsTokens(): boolean {
    return this.#cache !== undefined && this.#cache.tokens.length === this.#cache.offset;
  }

  /** Throws if a prompt cannot follow the cache: a conversation, after unknown tokens. */
  check(prompt: mx.lm.Prompt): void {
    if (this.#cache === undefined || this.#knowsTokens || typeof prompt === "string") return;
    throw new Error(
      `${
        shownPath(this.#values["prompt-cache"]!)
      } does not tell which tokens it holds: --raw puts the prompt after them`,
    );
  }

  /** Writes the file of --save-prompt-cache. */
  async save(): Promise<void> {
    const { "save-prompt-cache": file } = this.#values;
    if (file === undefined || this.#cache === undefined) return;
    // Metadata that mlx_lm.generate requires of a file.
    const metadata = { model: nameOf(this.#values), tokenizer_config: "{}" };
    await mx.lm.savePromptCache(file, this.#cache, { metadata });
  }

  /** Frees the cache. */
  [Symbol.dispose](): void {
    this.#cache?.dispose();
  }
}

/** Options of a cache. */
function sizesOf(values: CacheValues): Pick<mx.lm.GenerateOptions, "kvBits" | "maxKvSize"> {
  const { "max-kv-size": maxKvSize } = values;
  return { ...kvBitsOf(values), ...(maxKvSize !== undefined && { maxKvSize }) };
}

function nameOf({ model }: CacheValues): string {
  return model ?? "tiny-qwen3";
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}
