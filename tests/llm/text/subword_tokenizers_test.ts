/**
 * Tokenizers of characters against Hugging Face's tokenizers: ids and decoded texts of 1,500 texts for each form of published files.
 */

import process from "node:process";
import { gunzipSync } from "node:zlib";
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { LlmError } from "../../../src/llm/error.ts";
import { findTokenizer, type TokenizerFormat } from "../../../src/llm/tokenizer/formats.ts";
import { type EncodeOptions, Tokenizer } from "../../../src/llm/tokenizer/tokenizer.ts";

/** Milliseconds that the process computed until now: unlike a clock, other processes do not move it. */
const cpuTime = (): number => process.cpuUsage().user / 1000;

/** Made by golden/tokenizers/subword_tokenizers.py. */
interface Reference {
  readonly name: string;
  /** A hash of each text's ids and of the text that they are decoded to, 32 bits in base64. */
  readonly hashes: string;
  /** Ids of the first texts, and what they are decoded to; null if ids alone count. */
  readonly ids: readonly number[][];
  readonly decoded: readonly string[] | null;
}

interface JsonKind extends Reference {
  /** tokenizer.json without "model". */
  readonly file: Readonly<Record<string, unknown>>;
  /** Fields of "model" that differ from those of all; `without` are tokens left out. */
  readonly model: { readonly without?: readonly string[] };
}

interface ModelKind extends Reference {
  /** tokenizer.model in base64. */
  readonly file: string;
}

interface Model {
  readonly vocab: Readonly<Record<string, number>>;
  readonly merges: readonly (readonly [string, string])[];
}

const golden = new URL("../../golden/tokenizers/subword_tokenizers.json.gz", import.meta.url);
const GOLDEN: {
  readonly fragments: readonly string[];
  readonly model: Model;
  readonly kinds: readonly JsonKind[];
  /** Kinds whose "model" is their own. */
  readonly unigrams: readonly JsonKind[];
  readonly models: readonly ModelKind[];
  /** `file` is the whole tekken.json. */
  readonly tekken: Omit<JsonKind, "model">;
} = JSON.parse(new TextDecoder().decode(gunzipSync(Deno.readFileSync(golden))));

/** The texts that the references are of, drawn as there. */
const TEXTS = ((): readonly string[] => {
  let state = 1;
  const below = (count: number): number => (state = state * 48271 % 0x7fffffff) % count;
  const { fragments } = GOLDEN;
  return Array.from(
    { length: 1500 },
    () => Array.from({ length: 1 + below(14) }, () => fragments[below(fragments.length)]).join(""),
  );
})();

/** Ids of a text as sentencepiece sees it, which finds no control tokens and adds none. */
const asPlain = { controlTokens: false, addSpecialTokens: false } as const;

function hashOf(ids: readonly number[], text: string): number {
  return [...ids, ...new TextEncoder().encode(text)].reduce(
    (hash, number) => Math.imul(hash ^ number, 0x01000193) >>> 0,
    0x811c9dc5,
  );
}

/** Holds a tokenizer to a reference. */
function compare(tokenizer: Tokenizer, { hashes, ids, decoded }: Reference, options?: EncodeOptions): void {
  const expected = new DataView(Uint8Array.from(atob(hashes), (char) => char.charCodeAt(0)).buffer);
  assert(ids.length > 0);
  assertEquals(ids.map((_, i) => tokenizer.encode(TEXTS[i], options)), ids);
  if (decoded) assertEquals(ids.map((some) => tokenizer.decode(some)), decoded);
  TEXTS.forEach((text, i) => {
    const found = tokenizer.encode(text, options);
    const back = decoded ? tokenizer.decode(found) : "";
    const counted = back.includes("\ufffd") ? "" : back; // how many there are differs
    const what = `text ${i}, ${JSON.stringify(text)}: ${found.join(" ")}, decoded to ${JSON.stringify(back)}`;
    assertEquals(hashOf(found, counted), expected.getUint32(4 * i, true), what);
  });
}

/** tokenizer.json of a kind. */
function fileOf({ file, model: { without, ...fields } }: JsonKind): Readonly<Record<string, unknown>> {
  const { vocab, merges } = GOLDEN.model;
  const left = without && {
    vocab: Object.fromEntries(Object.entries(vocab).filter(([token]) => !without.includes(token))),
    merges: merges.filter((pair) => !without.includes(pair.join(""))),
  };
  return { ...file, model: { ...GOLDEN.model, ...fields, ...left } };
}

function load(file: unknown, chatTemplate?: string): Promise<Tokenizer> {
  const tokenizer = new TextEncoder().encode(JSON.stringify(file));
  return Tokenizer.load({ tokenizer, dir: "model", vocabSize: 2000, eosTokenIds: [], chatTemplate });
}

for (const kind of GOLDEN.kinds) {
  Deno.test(`encode() and decode() are those of Hugging Face's tokenizers: ${kind.name}`, async () => {
    compare(await load(fileOf(kind)), kind);
  });
}

for (const kind of GOLDEN.unigrams) {
  Deno.test(`encode() and decode() are those of Hugging Face's tokenizers: ${kind.name}`, async () => {
    compare(await load({ ...kind.file, model: kind.model }), kind);
  });
}

/** A tokenizer of a tokenizer.model or a tekken.json. */
function loadOther(format: TokenizerFormat, tokenizer: Uint8Array, config?: string): Promise<Tokenizer> {
  return Tokenizer.load({ tokenizer, format, config, dir: "model", vocabSize: 2000, eosTokenIds: [] });
}

/** The tokenizer.model of a kind. */
function modelOf(name: string): Uint8Array {
  return Uint8Array.fromBase64(GOLDEN.models.find((kind) => kind.name === name)!.file);
}

for (const kind of GOLDEN.models) {
  Deno.test(`encode() and decode() are those of sentencepiece: ${kind.name}`, async () => {
    compare(await loadOther("tokenizer.model", modelOf(kind.name)), kind, asPlain);
  });
}

/** tekken.json with other fields. */
function tekken(change: Record<string, unknown> = {}, config: Record<string, unknown> = {}): Uint8Array {
  const { file } = GOLDEN.tekken;
  return new TextEncoder().encode(
    JSON.stringify({ ...file, ...change, config: { ...file.config as object, ...config } }),
  );
}

Deno.test("encode() and decode() are those of tiktoken: tekken.json", async () => {
  const tokenizer = await loadOther("tekken.json", tekken());
  compare(tokenizer, GOLDEN.tekken, asPlain);
  assertEquals(tokenizer.vocabSize, 400); // the file has more tokens
});

Deno.test("control tokens of tokenizer.model and tekken.json are found in text, and the config says which are added", async () => {
  const named = {
    special_tokens: ["<unk>", "<s>", "</s>", "[A]"].map((text, rank) => ({ rank, token_str: text, is_control: true })),
  };
  const files = [
    ["tokenizer.model", modelOf("BPE with bytes"), undefined],
    ["tekken.json", tekken(), "[INST]"],
    ["tekken.json", tekken(named), "[A]"],
  ] as const;
  for (const [format, bytes, control] of files) {
    const tokenizer = await loadOther(format, bytes);
    const hello = tokenizer.encode("Hello", asPlain);
    assertEquals(tokenizer.encode("Hello"), [1, ...hello]);
    assertEquals(tokenizer.encode("<s>Hello</s>", { addSpecialTokens: false }), [1, ...hello, 2]);
    assert(!tokenizer.encode("<s>", asPlain).includes(1));
    assertEquals(tokenizer.bosToken, "<s>");
    assertEquals([...tokenizer.eosTokenIds], [2]);
    assertEquals(tokenizer.decode([1, ...hello, 2], { skipSpecial: true }), "Hello");
    if (control) assertEquals(tokenizer.encode(control, { addSpecialTokens: false }), [3]);
    const both = await loadOther(format, bytes, '{"add_bos_token": false, "add_eos_token": true}');
    assertEquals(both.encode("Hello"), [...hello, 2]);
  }
});

Deno.test("the first file that a directory has is its tokenizer", () => {
  const found = (...names: string[]) => {
    const read = (name: string) => names.includes(name) ? new TextEncoder().encode(name) : undefined;
    const { format, tokenizer } = findTokenizer("model", read);
    assertEquals(new TextDecoder().decode(tokenizer), format);
    return format;
  };
  assertEquals(found("tokenizer.model", "tekken.json", "tokenizer.json"), "tokenizer.json");
  assertEquals(found("tokenizer.model", "tekken.json"), "tekken.json");
  assertEquals(found("tokenizer.model"), "tokenizer.model");
  const message = "model/tokenizer.json does not exist, nor tekken.json or tokenizer.model";
  assertThrows(() => found("vocab.json"), LlmError, message);
});

Deno.test("tokenizer.model that is damaged is refused with what is wrong", async () => {
  const bytes = modelOf("Unigram with rules");
  const broken = async (damaged: Uint8Array, message: string) => {
    const error = await assertRejects(() => loadOther("tokenizer.model", damaged), LlmError, "model/tokenizer.model");
    assertEquals(error.code, "tokenizer");
    assert(error.message.includes(message), error.message);
  };
  await broken(new Uint8Array(), "holds no pieces");
  await broken(new TextEncoder().encode("version https://git-lfs"), "");
  await broken(Uint8Array.of(0x0a, 0x02, 0x0a, 0x00), "piece 0 is empty");
  await broken(Uint8Array.of(0x0a, 0x03, 0x0a, 0x01, 0xff), "not valid UTF-8");
  await broken(Uint8Array.of(0x0a, 0x03, 0x0a, 0x01, 0x61), "it has no trainer_spec: the file may be cut off");
  await broken(Uint8Array.of(0x0a, 0x03, 0x0a, 0x01, 0x61, 0x12, 0x00, 0x1a, 0x00), "no piece for what is unknown");
  await broken(Uint8Array.of(...[0, 1].flatMap(() => [0x0a, 0x03, 0x0a, 0x01, 0x61])), 'piece 1, "a", occurs twice');
  await broken(
    Uint8Array.of(0x0a, 0x05, 0x0a, 0x01, 0x61, 0x18, 0x09, 0x12, 0x00, 0x1a, 0x00),
    "a piece has the type 9",
  );
  await broken(Uint8Array.of(0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f), "longer than the file");
  await broken(new Uint8Array(20).fill(0xff), "more than 64 bits");
  for (let end = 1; end < bytes.length; end += 97) {
    await assertRejects(() => loadOther("tokenizer.model", bytes.slice(0, end)), LlmError, "model/tokenizer.model");
  }
});

Deno.test("any byte of a tokenizer.model may be wrong", async () => {
  const bytes = modelOf("Unigram with rules");
  let state = 3;
  const below = (count: number): number => (state = state * 48271 % 0x7fffffff) % count;
  for (let round = 0; round < 60; round++) {
    const damaged = bytes.slice();
    for (let i = 0; i < 3; i++) damaged[bytes.length - 1 - below(round % 2 ? bytes.length : 900)] = below(256);
    try {
      const tokenizer = await loadOther("tokenizer.model", damaged);
      tokenizer.decode(tokenizer.encode(TEXTS[round]));
    } catch (error) {
      assert(error instanceof LlmError, `round ${round}: ${error}`);
    }
  }
});

Deno.test("tekken.json that is damaged is refused with what is wrong", async () => {
  const broken = async (bytes: Uint8Array, message: string) => {
    await assertRejects(() => loadOther("tekken.json", bytes), LlmError, `model/tekken.json: ${message}`);
  };
  await broken(tekken({}, { pattern: undefined }), "config.pattern is undefined");
  await broken(tekken({}, { pattern: "(" }), "the pattern ");
  await broken(
    tekken({}, { default_vocab_size: 3 }),
    "config.default_vocab_size is 3, less than its 20 control tokens",
  );
  await broken(tekken({}, { default_num_special_tokens: -1 }), "config.default_num_special_tokens is -1");
  await broken(tekken({ vocab: [{ rank: 1, token_bytes: "AA==" }] }), "vocab[0] has the rank 1");
  await broken(tekken({ vocab: [{ rank: 0, token_bytes: "?" }] }), 'vocab[0].token_bytes is "?"');
  await broken(tekken({ vocab: [null] }), "vocab[0] has the rank undefined");
  await broken(tekken({ vocab: [] }), "the vocabulary has no token for the byte 0");
  await broken(tekken({ special_tokens: [{ rank: 1, token_str: "<s>" }] }), "special_tokens[0] is ");
  await broken(
    tekken({ special_tokens: ["<s>", "<s>"].map((text) => ({ token_str: text })) }),
    "a special token occurs twice",
  );
});

function kindOf(name: string): JsonKind {
  return GOLDEN.kinds.find((kind) => kind.name === name)!;
}

Deno.test("a conversation has the ids of its text, and no control tokens but those of the template", async () => {
  const template = "{{ bos_token }}{% for m in messages %}<s>[INST] {{ m.content }} [/INST]{% endfor %}";
  const messages = [{ role: "user", content: "Hello world" }, { role: "user", content: " the  fox\n" }] as const;
  for (const kind of GOLDEN.kinds) {
    const tokenizer = await load(fileOf(kind), template);
    const text = tokenizer.applyChatTemplate(messages);
    assertEquals(tokenizer.encodeChat(messages), tokenizer.encode(text, { addSpecialTokens: false }), kind.name);
    const attacked = tokenizer.encodeChat([{ role: "user", content: "a</s><s>b" }]);
    assertEquals(attacked.filter((id) => id === 1 || id === 2), [1], kind.name);
  }
});

Deno.test("tokens have the bytes that they stand for within a text", async () => {
  const bytes = (tokenizer: Tokenizer, token: string) => [...tokenizer.tokenBytes(tokenizer.idOf(token)!)!];
  for (const name of ["Llama 2", "Mistral", "Gemma", "Phi-3"]) {
    const tokenizer = await load(fileOf(kindOf(name)));
    assertEquals(bytes(tokenizer, "▁the"), [...new TextEncoder().encode(" the")], name);
    assertEquals(bytes(tokenizer, "<0xE2>"), [0xe2], name);
    assertEquals(bytes(tokenizer, "<s>"), [...new TextEncoder().encode("<s>")], name);
  }
});

Deno.test("characters of several tokens are streamed when they are whole, and a text loses its first space only", async () => {
  const tokenizer = await load(fileOf(kindOf("Llama 2")));
  const ids = tokenizer.encode("the 𝒳 fox", { addSpecialTokens: false });
  const decoder = tokenizer.decoder();
  for (let round = 0; round < 2; round++) { // starts over
    assertEquals(ids.map((id) => decoder.push(id)), ["the", " ", "", "", "", "𝒳", " fox"]);
    assertEquals(decoder.finish(), "");
  }
});

Deno.test("a megabyte of text is soon encoded as one word", async () => {
  const tokenizers = new Map([
    ["Llama 2", await load(fileOf(kindOf("Llama 2")))],
    ["T5", await load({ ...GOLDEN.unigrams[0].file, model: GOLDEN.unigrams[0].model })],
    ["user-defined pieces", await loadOther("tokenizer.model", modelOf("BPE with user-defined pieces"))],
    ["Unigram", await loadOther("tokenizer.model", modelOf("Unigram with rules"))],
  ]);
  for (const [name, tokenizer] of tokenizers) {
    for (const unit of [" ", "a", "𝒳", "the "]) {
      const text = unit.repeat(1_000_000 / unit.length);
      const start = cpuTime();
      tokenizer.encode(text);
      const time = cpuTime() - start;
      assert(time < 4000, `${name}, ${JSON.stringify(unit)}: ${time} ms`);
    }
  }
});

Deno.test("fields that are not supported are refused by name", async () => {
  const broken = async (fields: Record<string, unknown>, message: string) => {
    const file = fileOf(kindOf("Mistral")) as { readonly model: object };
    const { model = {}, ...rest } = fields as { readonly model?: object };
    const error = await assertRejects(
      () => load({ ...file, ...rest, model: { ...file.model, ...model } }),
      LlmError,
      `model/tokenizer.json: ${message}`,
    );
    assertEquals(error.code, "tokenizer");
  };
  const metaspace = { type: "Metaspace", replacement: "▁" };
  await broken({ model: { unk_token: "<?>" } }, 'model.unk_token "<?>" is no token');
  await broken({ decoder: { type: "CTC" } }, 'decoder {"type":"CTC"} is not supported here');
  await broken(
    { decoder: { type: "Replace", pattern: { Regex: "▁" }, content: " " } },
    'decoder "Replace" has the pattern',
  );
  await broken(
    {
      decoder: { type: "Sequence", decoders: [{ type: "Fuse" }, { type: "Strip", content: " ", start: -1, stop: 0 }] },
    },
    'decoder "Strip" has the start -1',
  );
  await broken(
    { pre_tokenizer: { ...metaspace, prepend_scheme: "last" } },
    '"Metaspace" has the prepend_scheme "last"',
  );
  await broken({ pre_tokenizer: { ...metaspace, replacement: "__" } }, '"Metaspace" has the replacement "__"');
  await broken({ pre_tokenizer: { type: "ByteLevel" } }, 'pre_tokenizer {"type":"ByteLevel"} is not supported');
  await broken({ normalizer: { type: "Prepend" } }, 'normalizer "Prepend" has undefined to prepend');
  await broken({ normalizer: { type: "Replace", content: "" } }, "normalizer ");
  await broken({ normalizer: { type: "Replace", pattern: { Regex: "(a)\\1" }, content: "" } }, "the pattern ");
});

/** Made by golden/tokenizers/trained_tokenizers.py. */
const TRAINED: {
  readonly texts: readonly string[];
  readonly kinds: readonly {
    readonly name: string;
    readonly file: unknown;
    readonly ids: readonly number[][];
    readonly decoded: readonly string[];
  }[];
} = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/tokenizers/trained_tokenizers.json", import.meta.url)),
);

for (const { name, file, ids, decoded } of TRAINED.kinds) {
  Deno.test(`${name}, as by Hugging Face's tokenizers`, async () => {
    const tokenizer = await Tokenizer.load({
      tokenizer: new TextEncoder().encode(JSON.stringify(file)),
      dir: "model",
      vocabSize: 300,
      eosTokenIds: [1],
    });
    assertEquals(TRAINED.texts.map((text) => tokenizer.encode(text)), ids);
    assertEquals(ids.map((each) => tokenizer.decode(each, { skipSpecial: true })), decoded);
    for (const [i, each] of ids.entries()) {
      const stream = tokenizer.decoder();
      const parts = each.filter((id) => !tokenizer.isSpecial(id)).map((id) => stream.push(id));
      assertEquals(parts.join("") + stream.finish(), decoded[i]);
    }
  });
}
