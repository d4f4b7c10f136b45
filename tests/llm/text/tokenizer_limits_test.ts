/**
 * Tokenizer files that mean harm, and texts that are slow to read: each ends soon, with a typed error or with the right ids.
 */

import process from "node:process";
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { LlmError } from "../../../src/llm/error.ts";
import { normalize } from "../../../src/llm/tokenizer/normalizer.ts";
import { Tokenizer } from "../../../src/llm/tokenizer/tokenizer.ts";
import { tinySource } from "../../support/models/models.ts";
import { TIER } from "../../support/tier.ts";

/** Milliseconds that the process computed until now: unlike a clock, other processes do not move it. */
const cpuTime = (): number => process.cpuUsage().user / 1000;

const BASE = JSON.parse(new TextDecoder().decode(tinySource().tokenizer));
const BYTES = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };

/** The pre-tokenizer that splits by a pattern. */
function splitBy(pattern: string): unknown {
  const split = { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
  return { type: "Sequence", pretokenizers: [split, BYTES] };
}

/** The embedded model's tokenizer with another tokenizer.json, as text or bytes. */
function load(file: string | Uint8Array): Promise<Tokenizer> {
  const tokenizer = typeof file === "string" ? new TextEncoder().encode(file) : file;
  return Tokenizer.load({ ...tinySource(), tokenizer });
}

/** The text of its tokenizer.json with other fields. */
function changed(fields: Record<string, unknown>, model: Record<string, unknown> = {}): string {
  return JSON.stringify({ ...BASE, ...fields, model: { ...BASE.model, ...model } });
}

/** Text of `"{` and so on: a file of this vocabulary. */
function withVocab(vocab: string): string {
  return `{"model":{"type":"BPE","vocab":{${vocab}},"merges":[]},"decoder":{"type":"ByteLevel"}}`;
}

function deep(levels: number): string {
  return '{"type":"Sequence","normalizers":['.repeat(levels) + "]}".repeat(levels);
}

function added(count: number): unknown[] {
  return Array.from({ length: count }, (_, i) => ({ id: 4089 + i % 7, content: `<${i}>`, special: true }));
}

/** Bytes with one of them replaced. */
function bytesOf(text: string, from: number, to: number): Uint8Array {
  return new TextEncoder().encode(text).map((byte) => byte === from ? to : byte);
}

const HOSTILE: Readonly<Record<string, readonly [file: () => string | Uint8Array, message: string]>> = {
  "duplicate ids": [
    () => withVocab(Array.from({ length: 20_000 }, (_, i) => `"t${i}":0`).join()),
    'the id 0 occurs twice, the second time for "t1"',
  ],
  "a token twice": [() => withVocab('"a":1,"a":2'), 'the token "a" occurs twice'],
  "200,000 added tokens": [() => changed({ added_tokens: added(200_000) }), "the same id 4089"],
  "200,000 added tokens of their own": [
    () =>
      changed({ added_tokens: Array.from({ length: 200_000 }, (_, id) => ({ id: id + 4089, content: `<${id}>` })) }),
    "there are more than 100000 added tokens",
  ],
  "long added tokens": [
    () => changed({ added_tokens: [1, 2, 3].map((i) => ({ id: 4089 + i, content: `${i}`.repeat(1_000_000) })) }),
    "the added tokens have more than 2097152 characters in all",
  ],
  "20,000 nested normalizers": [
    () => changed({ normalizer: 0 }).replace('"normalizer":0', `"normalizer":${deep(20_000)}`),
    "values are nested deeper than 64 levels",
  ],
  "nesting in a field that does not count": [
    () => `{"x":${"[".repeat(1_000_000)}`,
    "values are nested deeper than 64 levels",
  ],
  "20,000 normalizers": [
    () => changed({ normalizer: { type: "Sequence", normalizers: Array(20_000).fill({ type: "NFC" }) } }),
    "normalizer has 20000 steps, at most 64",
  ],
  "invalid UTF-8 behind an escape": [
    () => bytesOf(withVocab(`"\\u0041${"@".repeat(1000)}":0`), 0x40, 0xff),
    "its text is not valid UTF-8",
  ],
  "half a surrogate pair": [() => withVocab('"\\ud800":0'), "expected a string of whole characters"],
  "a token of a megabyte": [() => withVocab(`"${"a".repeat(2 ** 20)}":0`), "has 1048576 bytes, at most 4096"],
  "a string of two megabytes": [() => `{"x":"${"a".repeat(2 ** 21)}"}`, "has more than 1048576 bytes"],
  "an id beyond all": [() => withVocab('"a":4294967295'), "ids up to 4294967295"],
  "text of the file in a message": [
    () => changed({ normalizer: { type: "\u001b[31m\nx".repeat(10_000) } }),
    'normalizer "\\u001b[31m\\nx',
  ],
  "a pattern that is not supported": [() => changed({ pre_tokenizer: splitBy("(a)\\1") }), "not supported: \\1"],
  "a long pattern": [() => changed({ pre_tokenizer: splitBy("a?".repeat(10_000)) }), "20000 characters, at most 10000"],
  "groups in groups": [() => changed({ pre_tokenizer: splitBy("(".repeat(5000)) }), "groups deeper than 50 levels"],
  "counts of counts": [
    () => changed({ pre_tokenizer: splitBy("((((a|b){999}){999}){999}){999}") }),
    "it is too large",
  ],
  "counts of nothing": [
    () => changed({ pre_tokenizer: splitBy("((((){999}){999}){999}){999}{1001}") }),
    "such a count",
  ],
  "a count that is none": [() => changed({ pre_tokenizer: splitBy("a{3,2}") }), "such a count"],
  "many classes": [
    () => changed({ pre_tokenizer: splitBy(Array.from({ length: 900 }, (_, i) => `[^${1000 + i}]`).join("")) }),
    "more than 48 classes",
  ],
  "two ids of one token": [() => changed({ added_tokens: [{ id: 4089, content: "a" }] }), 'the added token "a"'],
  "an id of two tokens": [() => changed({ added_tokens: [{ id: 1, content: "<a>" }] }), "is taken"],
  "ids around a text that the model lacks": [
    () =>
      changed({
        post_processor: {
          type: "TemplateProcessing",
          single: [{ SpecialToken: { id: "<s>" } }, { Sequence: { id: "A" } }],
          special_tokens: { "<s>": { ids: [4096] } },
        },
      }),
    "ids up to 4096",
  ],
  "a text that occurs twice": [
    () => changed({ post_processor: { type: "TemplateProcessing", single: Array(9).fill({ Sequence: { id: "A" } }) } }),
    'post_processor has {"Sequence":{"id":"A"}} in the template "single"',
  ],
};

/** Milliseconds that a refusal may take: 350, or on slow processors what reading 200,000 tokens five times as plain JSON does. */
function mostTime(): number {
  const text = JSON.stringify(added(200_000));
  const times = Array.from({ length: 3 }, () => {
    const start = cpuTime();
    JSON.parse(text);
    return cpuTime() - start;
  });
  return Math.max(350, 5 * Math.min(...times));
}

const MAX_TIME = mostTime();

for (const [what, [file, message]] of Object.entries(HOSTILE)) {
  Deno.test(`a tokenizer.json with ${what} is refused at once`, async () => {
    const made = file();
    const bytes = typeof made === "string" ? new TextEncoder().encode(made) : made;
    let time = Infinity; // the best of some: the garbage collector may work at any time
    for (let attempt = 0; attempt < 5 && time >= MAX_TIME; attempt++) {
      const start = cpuTime();
      const error = await assertRejects(() => load(bytes), LlmError, message);
      time = Math.min(time, cpuTime() - start);
      assertEquals(error.code, "tokenizer");
      assert(error.message.length < 500 && Array.from(error.message).every((char) => char >= " "), error.message);
    }
    assert(time < MAX_TIME, `${time} ms of ${MAX_TIME}`);
  });
}

Deno.test("tokenizer_config.json has the same limits", async () => {
  const broken = (config: string, message: string) =>
    assertRejects(() => Tokenizer.load({ ...tinySource(), config }), LlmError, message);
  await broken(`{"x":${"[".repeat(1_000_000)}`, "tokenizer_config.json: values are nested deeper than 64 levels");
  await broken(`{"chat_template":"${"a".repeat(2 ** 20)}"}`, "has more than 1048576 bytes");
  await broken('{"bos_token":"a"} x', "tokenizer_config.json is not valid JSON: expected the end");
  await broken('{"x":[1,}', "tokenizer_config.json is not valid JSON");
  await broken('{"x":tru}', "tokenizer_config.json is not valid JSON");
  await broken('{"x":"\\q"}', "tokenizer_config.json is not valid JSON: expected a character or an escape");
});

Deno.test("a pattern that would never end is an error of the text", async () => {
  for (const pattern of ["(a+)+$", "(a|a)*c", "(?:a*)*b", "((a{0,50}){0,50}){0,9}c", "(?:(?=(a+)+c)b|a)*d"]) {
    const tokenizer = await load(changed({ pre_tokenizer: splitBy(pattern) }));
    const start = cpuTime();
    const error = assertThrows(
      () => tokenizer.encode("a".repeat(5000) + "!"),
      LlmError,
      "steps a character on this text",
    );
    assertEquals(error.code, "tokenizer");
    assert(cpuTime() - start < 1000);
    assertEquals(tokenizer.decode(tokenizer.encode("a!")), "a!"); // texts that take less are none
  }
});

/** Patterns of published tokenizers. */
const PUBLISHED: Readonly<Record<string, readonly string[]>> = {
  Qwen3: [
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  "GPT-4": [
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
  ],
  "GPT-4o": [
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  "DeepSeek-V3": [
    "\\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
};

/** A quarter of a megabyte before the full tier: time that grows faster than the text is still far above the limit. */
const CHARS = TIER === "full" ? 1_000_000 : 250_000;
/** Milliseconds of a processor for them. */
const LIMIT = TIER === "full" ? 2500 : 1000;
const SOME = [..." \n\t\rA1é日😀.?'s\u0301/"];
const mixed = Array.from({ length: 1000 }, (_, i) => SOME[i * i * 7919 % SOME.length]).join("");
const LONG_TEXTS: Readonly<Record<string, string>> = {
  spaces: " ",
  "lower-case letters": "a",
  "upper-case letters": "A",
  digits: "1",
  "line breaks": "\n",
  emoji: "😀",
  "punctuation marks": "!",
  "spaces and line breaks": "  \r\n",
  apostrophes: "'",
  "Chinese letters": "日",
  "combining marks": "\u0301",
  "marks out of order": "\u0301\u0327",
  "letters with marks": "a\u0327\u0301",
  "mixed characters": mixed,
};

for (const [name, patterns] of Object.entries(PUBLISHED)) {
  Deno.test(`any megabyte of text is soon encoded with the patterns of ${name}`, async () => {
    const split = (pattern: string) => ({
      type: "Split",
      pattern: { Regex: pattern },
      behavior: "Isolated",
      invert: false,
    });
    const tokenizer = await load(
      changed({ pre_tokenizer: { type: "Sequence", pretokenizers: [...patterns.map(split), BYTES] } }),
    );
    for (const [kind, unit] of Object.entries(LONG_TEXTS)) {
      const text = `${unit.repeat(CHARS / unit.length)}z`;
      const start = cpuTime();
      const ids = tokenizer.encode(text);
      const time = cpuTime() - start;
      assert(time < LIMIT, `${kind}: ${time} ms`);
      assert(ids.length > 0);
      const part = `${unit.repeat(5000 / unit.length)}z`;
      assert(tokenizer.decode(tokenizer.encode(part)) === part.normalize("NFC"), kind);
    }
  });
}

Deno.test("a megabyte of text is soon searched for added tokens", async () => {
  const token = (content: string, i: number) => ({ id: 4089 + i, content, lstrip: true, rstrip: true });
  for (const contents of [["<a>"], ["aaaab", "a".repeat(100_000) + "b", "aa"], [" ", "  "], ["\u0301"]]) {
    const tokenizer = await load(changed({ added_tokens: contents.map(token) }));
    for (const unit of [" ", "a", "<", " <a>", "<a> ", "a ", "\u0301"]) {
      const start = cpuTime();
      tokenizer.encode(unit.repeat(CHARS / unit.length));
      const time = cpuTime() - start;
      assert(time < LIMIT, `${contents[0]}, ${unit}: ${time} ms`);
    }
  }
});

Deno.test("100,000 added tokens are read and found", async () => {
  const count = 100_000;
  const tokens = Array.from({ length: count }, (_, i) => ({ id: 4089 + i, content: `<|s_${i}|>`, special: true }));
  const tokenizer = await Tokenizer.load({
    ...tinySource(),
    tokenizer: new TextEncoder().encode(changed({ added_tokens: tokens })),
    vocabSize: 4089 + count,
  });
  assertEquals(tokenizer.encode("<|s_99999|><|s_0|>"), [4089 + 99_999, 4089]);
});

Deno.test("normalize() gives normal forms, also where marks are many", () => {
  const marks = ["\u0301", "\u0327", "\u0345", "\u0334", "\u0f71", "\u0344", "\u05b0", "\u3099", "\u0903"];
  let state = 7;
  const random = (below: number): number => (state = state * 48271 % 0x7fffffff) % below;
  for (let i = 0; i < 300; i++) {
    const run = (): string => Array.from({ length: random(150) }, () => marks[random(marks.length)]).join("");
    const text = `a${run()}é${run()}か${run()}${run()} `;
    for (const form of ["NFC", "NFD", "NFKC", "NFKD"] as const) {
      assertEquals(normalize(text, form), text.normalize(form));
    }
  }
});
