/**
 * Tokenizers of GGUF files give the ids that llama.cpp's vocabularies were published with. reference/gguf/vocabularies.py keeps of each
 * what its texts can meet.
 */

import { assertEquals, assertRejects } from "@std/assert";
import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";
import { readGguf } from "../../../src/array/files/gguf.ts";
import { Metadata } from "../../../src/llm/checkpoint/gguf/metadata.ts";
import { endIds, readTokenizer } from "../../../src/llm/checkpoint/gguf/tokenizer.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { Tokenizer } from "../../../src/llm/tokenizer/tokenizer.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** A vocabulary, texts, and their ids without those around them. */
interface Vocabulary {
  readonly metadata: Readonly<Record<string, string | number | boolean>>;
  readonly tokens: readonly string[];
  readonly kinds: readonly number[];
  readonly merges: readonly string[];
  /** Of pieces only. */
  readonly scores?: readonly number[];
  readonly texts: readonly string[];
  readonly ids: readonly (readonly number[])[];
}

const golden = Deno.readFileSync(new URL("../../golden/tokenizers/gguf_vocabularies.json.gz", import.meta.url));
const VOCABULARIES: Readonly<Record<string, Vocabulary>> = JSON.parse(new TextDecoder().decode(gunzipSync(golden)));

/** The metadata of a file with a vocabulary and no tensors. */
async function metadataOf(
  { metadata, tokens, kinds, merges, scores }: Omit<Vocabulary, "texts" | "ids">,
): Promise<Metadata> {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    const values = Object.entries(metadata).map(([key, value]) => [
      `tokenizer.ggml.${key}`,
      typeof value === "number" ? mx.array(value, mx.uint32) : value,
    ]);
    mx.tidy(() =>
      mx.saveGguf(path, {}, {
        ...Object.fromEntries(values),
        "tokenizer.ggml.tokens": [...tokens],
        "tokenizer.ggml.token_type": mx.array([...kinds], mx.int32),
        ...(scores
          ? { "tokenizer.ggml.scores": mx.array([...scores], mx.float32) }
          : { "tokenizer.ggml.merges": [...merges] }),
      })
    );
    return new Metadata(path, readGguf(path));
  } finally {
    await Deno.remove(path);
  }
}

async function tokenizerOf(vocabulary: Omit<Vocabulary, "texts" | "ids">): Promise<Tokenizer> {
  const metadata = await metadataOf(vocabulary);
  const dir = metadata.path;
  return await Tokenizer.load({
    ...readTokenizer(metadata, vocabulary.tokens.length),
    dir,
    vocabSize: vocabulary.tokens.length,
    eosTokenIds: endIds(metadata),
  });
}

for (const [name, vocabulary] of Object.entries(VOCABULARIES)) {
  Deno.test(`the vocabulary ${name} gives the published ids`, async () => {
    const tokenizer = await tokenizerOf(vocabulary);
    const { texts, ids, metadata } = vocabulary;
    for (const [i, text] of texts.entries()) {
      assertEquals(tokenizer.encode(text, { addSpecialTokens: false }), ids[i], JSON.stringify(text));
      assertEquals(tokenizer.decode(ids[i]), name === "qwen2" ? text.normalize("NFC") : text, "decoded");
    }
    const bos = metadata.add_bos_token ?? name === "llama-bpe"; // llama.cpp's default of a pre-tokenizer
    assertEquals(tokenizer.encode("", {}), bos ? [metadata.bos_token_id] : []);
    assertEquals(tokenizer.eosTokenIds.has(Number(metadata.eos_token_id)), true);
  });
}

Deno.test("tokens that end an answer are found by their texts, as far as they end all of it", async () => {
  const { metadata, tokens, kinds, merges } = VOCABULARIES["gpt-2"];
  const ends = async (...added: readonly string[]): Promise<string[]> => {
    const all = [...tokens, ...added];
    const found = await metadataOf({ metadata, tokens: all, kinds: [...kinds, ...added.map(() => 3)], merges });
    return endIds(found).map((id) => all[id]).sort();
  };
  assertEquals(await ends("<|user|>", "<|end|>"), ["<|endoftext|>", "<|end|>"]);
  assertEquals(await ends("<turn|>", "<turn>"), ["<turn|>", "<|endoftext|>"]);
  assertEquals(await ends("<|end|>", "<|return|>", "<|call|>"), ["<|call|>", "<|endoftext|>", "<|return|>"]);
});

Deno.test("a vocabulary with a token twice or an id without a token is refused", async () => {
  const { metadata, tokens, kinds, merges } = VOCABULARIES["gpt-2"];
  const twice = { metadata, tokens: [...tokens, "a"], kinds: [...kinds, 1], merges };
  await assertRejects(() => tokenizerOf(twice), LlmError, 'the token "a" has the ids');
  const outside = { metadata: { ...metadata, bos_token_id: 99999 }, tokens, kinds, merges };
  await assertRejects(() => tokenizerOf(outside), LlmError, '"tokenizer.ggml.bos_token_id" is 99999, and there are');
});
