/** Checkpoints in several files: with an index, without one, and with one that does not fit or means harm. */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { INDEX_FILE, missingShards, weightFiles } from "../../../src/llm/checkpoint/shards.ts";
import { TINY_DIR } from "../../support/models/models.ts";

mx.devices(); // opens the Vulkan library outside of any test

const WEIGHTS = "model.safetensors";

/** Runs `fn` with a folder of the embedded model in `shards`, a tensor each in turn, with or without an index. */
async function withShards(
  shards: readonly string[],
  indexed: boolean,
  fn: (dir: string) => Promise<void>,
): Promise<void> {
  const dir = await Deno.makeTempDir();
  try {
    for (const { name } of Deno.readDirSync(TINY_DIR)) {
      if (name !== WEIGHTS) Deno.copyFileSync(new URL(name, TINY_DIR), `${dir}/${name}`);
    }
    const parts: Record<string, mx.Tensor>[] = shards.map(() => ({}));
    const map: Record<string, string> = {};
    for (
      const [i, [name, tensor]] of Object.entries(mx.loadSafetensors(new URL(WEIGHTS, TINY_DIR).pathname)).entries()
    ) {
      parts[i % shards.length][name] = tensor;
      map[name] = shards[i % shards.length];
    }
    for (const [i, name] of shards.entries()) mx.saveSafetensors(`${dir}/${name}`, parts[i]);
    mx.dispose(parts.flatMap((part) => Object.values(part)));
    if (indexed) writeIndex(dir, { metadata: { total_size: 1 }, weight_map: map });
    await fn(dir);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

function writeIndex(dir: string, content: unknown): void {
  Deno.writeTextFileSync(`${dir}/${INDEX_FILE}`, typeof content === "string" ? content : JSON.stringify(content));
}

async function loads(dir: string): Promise<string> {
  const { model, tokenizer } = await mx.lm.load(dir, { device: "wasm" });
  using _model = model;
  return await mx.lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 4, temp: 0 });
}

async function refuses(dir: string, message: string): Promise<void> {
  const error = await assertRejects(() => loads(dir), LlmError, message);
  assertEquals(error.code, "weights");
  assert(!/\p{Cc}/u.test(error.message), error.message);
}

const numbered = (i: number): string => `model-0000${i}-of-00003.safetensors`;

Deno.test("a checkpoint in parts loads by its index, also under other names, and without one by its numbers", async () => {
  const expected = await loads(TINY_DIR.pathname);
  const three = [1, 2, 3].map(numbered);
  const other = ["weights.00.safetensors", "weights.01.safetensors"];
  for (const [shards, indexed] of [[three, true], [three, false], [other, true], [[WEIGHTS], true]] as const) {
    await withShards(shards, indexed, async (dir) => assertEquals(await loads(dir), expected));
  }
  // Files that the index does not name are left alone.
  await withShards(three, true, async (dir) => {
    Deno.copyFileSync(new URL(WEIGHTS, TINY_DIR), `${dir}/model-old.safetensors`);
    assertEquals(await loads(dir), expected);
    Deno.removeSync(`${dir}/${INDEX_FILE}`);
    await refuses(dir, "is in both");
  });
  // The index of the layout that a conversion began with.
  await withShards([WEIGHTS], false, async (dir) => {
    writeIndex(dir, { weight_map: { "model.norm.weight": numbered(1), "lm_head.weight": numbered(2) } });
    assertEquals(await loads(dir), expected);
  });
});

Deno.test("a missing part is named", async () => {
  for (const indexed of [true, false]) {
    await withShards([1, 2, 3].map(numbered), indexed, async (dir) => {
      Deno.removeSync(`${dir}/${numbered(2)}`);
      await refuses(dir, `${dir} lacks ${numbered(2)}: download the model again`);
    });
  }
  await withShards(["a.safetensors", "b.safetensors"], true, async (dir) => {
    Deno.removeSync(`${dir}/b.safetensors`);
    await refuses(dir, `${dir} lacks b.safetensors: download`);
    Deno.removeSync(`${dir}/a.safetensors`);
    await refuses(dir, `${dir} lacks a.safetensors, b.safetensors: download`);
  });
  assertEquals(missingShards([numbered(1)], [numbered(1)]), [numbered(2), numbered(3)]);
  assertEquals(missingShards([WEIGHTS], [WEIGHTS]), []);
});

Deno.test("an index that is none, or leads out of the folder, is refused", async () => {
  const file = (name: unknown): unknown => ({ weight_map: { "a\n": name } });
  const cases: readonly (readonly [unknown, string])[] = [
    [
      file("../model.safetensors"),
      'puts "a\\n" into "../model.safetensors", expected a .safetensors file of the same folder',
    ],
    [file("/etc/model.safetensors"), "expected a .safetensors file of the same folder"],
    [file("sub/model.safetensors"), "expected a .safetensors file of the same folder"],
    [file("C:\\model.safetensors"), "expected a .safetensors file of the same folder"],
    [file("\x1b[2J.safetensors"), 'into "\\u001b[2J.safetensors"'],
    [file(".safetensors"), "expected a .safetensors file"],
    [file("pytorch_model.bin"), "expected a .safetensors file"],
    [file(7), 'has no file of "a\\n"'],
    [{ weight_map: [] }, 'has a "weight_map" that is not files by name'],
    [{}, 'has no "weight_map"'],
    [[], 'is no object with a "weight_map"'],
    ['{"weight_map": {}, "weight_map": {}}', 'has "weight_map" twice'],
    ['{"weight_map": {"a": "model.safetensors"', "is not valid JSON"],
    [`{"x": ${"[".repeat(1e6)}`, "too many objects and lists"],
  ];
  await withShards([WEIGHTS], true, async (dir) => {
    for (const [content, message] of cases) {
      writeIndex(dir, content);
      await refuses(dir, message);
    }
    using index = Deno.openSync(`${dir}/${INDEX_FILE}`, { write: true });
    index.truncateSync(2 ** 30);
    const start = performance.now();
    await refuses(dir, `${INDEX_FILE} has 1073741824 bytes, at most 33554432 are allowed`);
    assert(performance.now() - start < 20_000);
  });
});

Deno.test("weightFiles() takes what is there where the index is of another layout", () => {
  const dir = Deno.makeTempDirSync();
  try {
    writeIndex(dir, { weight_map: { a: numbered(1), b: numbered(2) } });
    assertEquals(weightFiles(dir, [WEIGHTS]), [WEIGHTS]); // not even listed
    assertEquals(weightFiles(dir, [INDEX_FILE, WEIGHTS]), [WEIGHTS]);
    assertEquals(weightFiles(dir, [INDEX_FILE, WEIGHTS, numbered(2)]), [numbered(1), numbered(2)]);
    assertEquals(weightFiles(dir, [INDEX_FILE]), [numbered(1), numbered(2)]);
    assertEquals(weightFiles(dir, ["other.safetensors", "model.txt"]), []);
    assertThrows(() => weightFiles(`${dir}/none`, [INDEX_FILE]), LlmError, "does not exist");
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});
