/**
 * Every file format that the library reads, as the fuzzer tries it.
 *
 * @module
 */

import { recall, remember } from "../../ffi/device_probe_cache.ts";
import { findLibrary } from "../../ffi/library.ts";
import * as mx from "../../mod.ts";
import { closeDevices, devices } from "../../src/backend/devices.ts";
import * as bases from "./bases.ts";
import { mutateBytes, word } from "./bytes.ts";
import { folder, type Format, Wrong } from "./format.ts";
import { generateGguf, GGUF } from "./gguf.ts";
import { EDITING, growTemplate, mutateTemplate, TEMPLATES, userText } from "./jinja.ts";
import { bytesOf, type Json, leaf, mutateJson, put, REGEXES, treeOf } from "./json.ts";
import type { Random } from "./random.ts";
import { checkAccepted } from "./strict.ts";

const UTF8 = new TextEncoder();
/** As the library reads text files. */
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** A mutation that knows a format. */
type Aimed = (tree: Json, random: Random) => Json;

/** Mutations of a JSON file: mostly of its values, sometimes aimed, sometimes of its bytes, sometimes several. */
function json(value: unknown, aimed: readonly Aimed[] = []): Pick<Format, "base" | "generate"> {
  const tree = treeOf(value);
  const base = bytesOf(tree);
  return {
    base,
    generate: (random) => {
      if (random.once(6)) return mutateBytes(base, random);
      const aim = aimed.length > 0 && random.once(4);
      const start = aim ? random.pick(aimed)(tree, random) : tree;
      const bytes = bytesOf(aim && random.once(2) ? start : mutateJson(start, random));
      return random.once(6) ? mutateBytes(bytes, random) : bytes;
    },
  };
}

/** Parts of a tokenizer.json that can harm a reader: patterns, tables with equal ids, many or nested parts, tokens that begin with spaces. */
const TOKENIZER_AIMS: readonly Aimed[] = [
  (tree, random) =>
    put(
      tree,
      ["pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"],
      () => leaf(JSON.stringify(random.pick(REGEXES))),
    ),
  (tree, random) => {
    const id = random.once(2) ? random.below(bases.VOCAB) : undefined;
    const tokens = Array.from({ length: 1 + random.small(8000) }, (_, i) => [`t${i}`, id ?? i % bases.VOCAB] as const);
    return put(tree, ["model", "vocab"], (node) => joinJson(node, treeOf(Object.fromEntries(tokens))));
  },
  (tree, random) => {
    const special = { id: 267, lstrip: random.once(2), rstrip: random.once(2), special: random.once(2) };
    const tokens = Array.from(
      { length: 1 + random.small(4000) },
      (_, i) => ({ ...special, content: "<".repeat(1 + i % 40) + i }),
    );
    return put(tree, ["added_tokens"], (node) => joinJson(node, treeOf(tokens)));
  },
  (tree, random) => {
    const [field, list, end] = random.pick([
      ["normalizer", "normalizers", '{"type":"NFC"}'],
      ["pre_tokenizer", "pretokenizers", '{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}'],
      ["post_processor", "processors", '{"type":"ByteLevel"}'],
      ["decoder", "decoders", '{"type":"ByteLevel"}'],
    ]);
    const depth = 1 + random.small(4000);
    const open = `{"type":"Sequence","${list}":[`;
    return put(tree, [field], () => leaf(open.repeat(depth) + end + "]}".repeat(depth)));
  },
  (tree, random) => {
    const merges = Array.from(
      { length: 1 + random.small(8000) },
      () => random.pick([["h", "e"], ["Ġ", "Ġ"], ["ĠĠ", "ĠĠ"]]),
    );
    return put(tree, ["model", "merges"], (node) => joinJson(node, treeOf(merges)));
  },
  (tree, random) => {
    const single = [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: "<|endoftext|>", type_id: 0 } }];
    const post = {
      type: "TemplateProcessing",
      single: Array.from({ length: 1 + random.small(500) }, () => random.pick(single)),
      pair: single,
      special_tokens: { "<|endoftext|>": { id: "<|endoftext|>", ids: [267], tokens: ["<|endoftext|>"] } },
    };
    return put(tree, ["post_processor"], () => mutateJson(treeOf(post), random));
  },
];

/** Two lists, or two objects, as one. */
function joinJson(a: Json, b: Json): Json {
  if ("items" in a && "items" in b) return { items: [...a.items, ...b.items] };
  if ("members" in a && "members" in b) return { members: [...a.members, ...b.members] };
  return b;
}

/** Mutations of a safetensors file, or of one built like it: of its header, its data, the length in front, its bytes. */
function safetensors(base: bases.Safetensors, fileOf = bases.fileOf): Pick<Format, "base" | "generate"> {
  const whole = fileOf(base);
  const lengths = [
    0n,
    1n,
    2n,
    7n,
    8n,
    100_000_000n,
    100_000_001n,
    2n ** 31n,
    2n ** 32n,
    2n ** 53n,
    2n ** 63n,
    2n ** 64n - 1n,
  ];
  return {
    base: whole,
    generate: (random) => {
      if (random.once(5)) return mutateBytes(whole, random);
      const header = random.once(5) ? base.header : mutateJson(base.header, random);
      const data = random.once(4) ? mutateBytes(base.data, random) : base.data;
      const file = fileOf({ header, data }, random.once(12) ? random.pick(lengths) : undefined);
      return random.once(12) ? mutateBytes(file, random) : file;
    },
  };
}

/** Loads a model directory in which one file is another. */
function inDirectory(name: string): (bytes: Uint8Array) => Promise<void> {
  let dir: string | undefined;
  return async (bytes) => {
    dir ??= writeDirectory(name);
    Deno.writeFileSync(`${dir}/${name}`, bytes);
    const model = await modelOf(dir);
    model[Symbol.dispose]();
  };
}

/** A new model directory. */
function writeDirectory(name: string): string {
  const dir = `${folder()}/${name}.model`;
  Deno.mkdirSync(dir);
  for (const [file, content] of Object.entries(bases.modelDirectory())) Deno.writeFileSync(`${dir}/${file}`, content);
  return dir;
}

async function modelOf(dir: string): Promise<mx.lm.LanguageModel> {
  return (await mx.lm.load(dir, { device: "wasm" })).model;
}

/** The model that prompt caches are loaded for. */
let cacheModel: mx.lm.LanguageModel | undefined;

/** The files of a tokenizer, some of them changed. */
function tokenizer(files: Partial<mx.lm.TokenizerSource>): Promise<mx.lm.Tokenizer> {
  const tokenizer = bytesOf(treeOf(bases.TOKENIZER));
  return mx.lm.Tokenizer.load({ tokenizer, dir: "model", vocabSize: bases.VOCAB, eosTokenIds: [], ...files });
}

/** Texts that a pre-tokenizer may take long for, or that have many forms. */
const TEXTS: readonly string[] = [
  "hello <|im_start|>there, it's 12345 o'clock\n\n  <mask>",
  `${"a".repeat(64)}!`,
  `x${" ".repeat(500)}<mask>${"\n ".repeat(100)}`,
  "e\u0301\u1e9b\u0323 ｱﾞ 你好 🏴‍☠️ \ud800\u0000",
  "0123456789".repeat(20),
];

const CHAT: readonly mx.lm.ChatMessage[] = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "a b\nc <|im_end|>" },
  { role: "assistant", content: "<think>\nhm\n</think>\n\nd" },
  { role: "user", content: "e" },
];
const TOOLS = [{
  type: "function",
  function: { name: "add", parameters: { type: "object", properties: { x: { type: "number" } } } },
}];
const CALLS: readonly mx.lm.ChatMessage[] = [
  { role: "user", content: "f" },
  { role: "assistant", content: "", tool_calls: [{ function: { name: "add", arguments: { x: 1.5 } } }] },
  { role: "tool", content: "2" },
];

/** Renders and encodes conversations; a template may refuse one of them, such as one with tools that it does not know. */
function converse(reader: mx.lm.Tokenizer): void {
  if (!reader.hasChatTemplate) return;
  const refusals: unknown[] = [];
  const conversations = [[CHAT, {}], [CALLS, { tools: TOOLS }]] as const;
  for (const [messages, options] of conversations) {
    try {
      reader.encodeChat(messages, options);
    } catch (error) {
      if (!(error instanceof mx.lm.LlmError)) throw error;
      refusals.push(error);
    }
  }
  if (refusals.length === conversations.length) throw refusals[0];
}

let editing: readonly mx.lm.Tokenizer[] | undefined;

/** Control tokens of what a user wrote, by each template that edits it, must be those of an innocent text. */
async function chat(bytes: Uint8Array): Promise<void> {
  editing ??= await Promise.all(EDITING.map((chatTemplate) => tokenizer({ chatTemplate })));
  const idsOf = (reader: mx.lm.Tokenizer, content: string): string =>
    reader.encodeChat([{ role: "system", content }, { role: "user", content }]).filter((id) => id in bases.CONTROL)
      .join(" ");
  for (const [i, reader] of editing.entries()) {
    const ids = idsOf(reader, decode(bytes));
    if (ids !== idsOf(reader, "hello")) throw new Wrong(`a control id by editing template ${i}`);
  }
}

/** The Vulkan device whose file of compiled pipelines is tried: any will do. */
function vulkan(): string | undefined {
  return devices().find((device) => device.usable && device.type !== "wasm")?.name;
}

/** Opens the device and computes something, with what its file of pipelines holds; returns the file's path. */
function usePipelines(): string | undefined {
  const sum = mx.withDevice(vulkan(), () => mx.add(mx.array([1, 2]), 1).tolist());
  closeDevices();
  if (String(sum) !== "2,3") throw new Wrong(`1 + 1 and 2 + 1 are ${sum} by damaged pipelines`);
  const names = Array.from(Deno.readDirSync(folder()), ({ name }) => name);
  const name = names.find((name) => name.startsWith("pipelines-") && name.endsWith(".bin"));
  return name && `${folder()}/${name}`;
}

const pipelines = { path: undefined as string | undefined, whole: new Uint8Array() };
const DEVICE = "a device";
const finding = { path: undefined as string | undefined };

function findingFile(): string {
  if (finding.path === undefined) {
    remember(DEVICE, "question", "yes");
    const { name } = Array.from(Deno.readDirSync(folder())).find(({ name }) => name.startsWith("finding-"))!;
    finding.path = `${folder()}/${name}`;
  }
  return finding.path;
}

/** All formats. */
export const FORMATS: readonly Format[] = [
  {
    name: "safetensors",
    suffix: ".safetensors",
    share: 17,
    ...safetensors(bases.ARRAYS),
    read: (bytes) => {
      const path = `${folder()}/arrays.safetensors`;
      Deno.writeFileSync(path, bytes);
      mx.withDevice("wasm", () => {
        mx.safetensorsMetadata(path);
        const arrays = Object.values(mx.loadSafetensors(path));
        for (const array of arrays) if (array.nbytes < 2 ** 20) array.tolist();
        mx.dispose(arrays);
      });
      checkAccepted(bytes);
    },
  },
  {
    name: "functions",
    suffix: ".vkmxfn",
    share: 8,
    ...safetensors(bases.FUNCTIONS, bases.functionsOf),
    read: (bytes) => {
      const path = `${folder()}/function.vkmxfn`;
      Deno.writeFileSync(path, bytes);
      const [imported] = mx.importFunction(path, true);
      imported[Symbol.dispose]();
    },
  },
  {
    name: "weights",
    suffix: ".safetensors",
    share: 5,
    ...safetensors(bases.WEIGHTS),
    read: inDirectory("model.safetensors"),
  },
  {
    name: "prompt_cache",
    suffix: ".safetensors",
    share: 3,
    ...safetensors(bases.PROMPT_CACHE),
    read: async (bytes) => {
      const path = `${folder()}/cache.safetensors`;
      Deno.writeFileSync(path, bytes);
      cacheModel ??= await modelOf(writeDirectory("cache"));
      const { cache } = await mx.lm.loadPromptCache(path, cacheModel);
      using _cache = cache;
      const { tokens, offset: count } = cache;
      if (count < 1 || (tokens.length > 0 && tokens.length !== count)) {
        throw new Wrong(`${count} tokens, ${tokens.length} ids`);
      }
      using rows = cache.read(0, "keys");
      rows.toTypedArray();
    },
  },
  {
    name: "gguf",
    suffix: ".gguf",
    share: 8,
    base: GGUF,
    generate: generateGguf,
    read: async (bytes) => {
      const path = `${folder()}/model.gguf`;
      Deno.writeFileSync(path, bytes);
      const model = await modelOf(path);
      using out = mx.withDevice("wasm", () => model.forward(mx.array([[1, 2]], mx.int32)));
      out.toTypedArray();
      model[Symbol.dispose]();
    },
  },
  { name: "index", suffix: ".json", share: 3, ...json(bases.INDEX), read: inDirectory("model.safetensors.index.json") },
  { name: "config", suffix: ".json", share: 12, ...json(bases.CONFIG), read: inDirectory("config.json") },
  {
    name: "generation_config",
    suffix: ".json",
    share: 5,
    ...json(bases.GENERATION_CONFIG),
    read: inDirectory("generation_config.json"),
  },
  {
    name: "tokenizer",
    suffix: ".json",
    share: 20,
    ...json(bases.TOKENIZER, TOKENIZER_AIMS),
    read: async (bytes) => {
      const reader = await tokenizer({ tokenizer: bytes });
      for (const text of TEXTS) reader.decode(reader.encode(text));
    },
  },
  {
    name: "tokenizer_config",
    suffix: ".json",
    share: 7,
    ...json(bases.TOKENIZER_CONFIG),
    read: async (bytes) => converse(await tokenizer({ config: decode(bytes) })),
  },
  {
    name: "template",
    suffix: ".jinja",
    share: 15,
    base: UTF8.encode(TEMPLATES[0]),
    milliseconds: 1000,
    generate: (random) => {
      const text = random.once(3) ? growTemplate(random) : mutateTemplate(random.pick(TEMPLATES), random);
      return random.once(10) ? mutateBytes(UTF8.encode(text), random) : UTF8.encode(text);
    },
    read: async (bytes) => converse(await tokenizer({ chatTemplate: decode(bytes) })),
  },
  {
    name: "chat",
    suffix: ".txt",
    share: 10,
    base: UTF8.encode("hi"),
    generate: (random) => UTF8.encode(userText(random).slice(0, 4000)),
    read: chat,
  },
  {
    name: "findings",
    suffix: "",
    share: 2.5,
    base: UTF8.encode("key\nyes\n"),
    missing: () => findLibrary() === undefined ? "there is no Vulkan library" : undefined,
    generate: (random) => mutateBytes(Deno.readFileSync(findingFile()), random),
    read: (bytes) => {
      Deno.writeFileSync(findingFile(), bytes);
      recall(DEVICE, "question");
      remember(DEVICE, "question", "yes");
      if (recall(DEVICE, "question") !== "yes") throw new Wrong("an answer was not kept in place of a damaged one");
    },
  },
  {
    name: "pipelines",
    suffix: ".bin",
    share: 0.5,
    base: word(0n),
    milliseconds: 2000, // a driver compiles what the file does not hold
    missing: () => vulkan() === undefined ? "there is no Vulkan device" : undefined,
    generate: (random) => {
      if (pipelines.whole.length === 0) pipelines.whole = pipelinesFile();
      return mutatePipelines(pipelines.whole, random);
    },
    read: (bytes) => {
      pipelines.path ??= usePipelines();
      if (pipelines.path === undefined) throw new Wrong("no file of pipelines was written");
      Deno.writeFileSync(pipelines.path, bytes);
      usePipelines();
    },
  },
];

function pipelinesFile(): Uint8Array<ArrayBuffer> {
  pipelines.path ??= usePipelines();
  if (pipelines.path !== undefined) Deno.removeSync(pipelines.path);
  return Deno.readFileSync(usePipelines()!);
}

/** Damage of the header half of the time: magic, ABI, length and checksum lie in its first 16 bytes. */
function mutatePipelines(whole: Uint8Array, random: Random): Uint8Array {
  if (random.once(2)) return mutateBytes(whole, random);
  return new Uint8Array([...mutateBytes(whole.slice(0, 16), random), ...whole.subarray(16)]);
}
