/**
 * Files of a model directory that are malicious or come from another tool. Each is refused at once with one line that
 * names it, or loads as its maker meant it.
 */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import * as process from "node:process";
import { FileError, InputFile, readFile } from "../../../ffi/file.ts";
import * as mx from "../../../mod.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { readModelBytes, readModelFile } from "../../../src/llm/checkpoint/model_files.ts";
import { TINY_DIR } from "../../support/models/models.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Runs `fn` with a folder that is gone afterwards. */
function withFolder(fn: (folder: string) => void): void {
  const folder = Deno.makeTempDirSync();
  try {
    fn(folder);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/** A file of `size` bytes that takes no room on the disk. */
function sparse(path: string, size: number): void {
  using file = Deno.openSync(path, { write: true, create: true });
  file.truncateSync(size);
}

Deno.test("readFile() reads regular files up to a size, and refuses everything else at once", () => {
  withFolder((folder) => {
    Deno.writeFileSync(`${folder}/x`, Uint8Array.of(1, 2, 3));
    Deno.writeFileSync(`${folder}/none`, new Uint8Array(0));
    Deno.symlinkSync(`${folder}/x`, `${folder}/link`);
    assertEquals([...readFile(`${folder}/x`, 3)], [1, 2, 3]);
    assertEquals([...readFile(`${folder}/link`, 3)], [1, 2, 3]);
    assertEquals(readFile(`${folder}/none`, 0).length, 0);
    sparse(`${folder}/big`, 1.5e9);
    const refused = [
      [`${folder}/x`, "size", "has 3 bytes, at most 2 are allowed"],
      [`${folder}/big`, "size", "has 1500000000 bytes, at most 2 are allowed"],
      [`${folder}`, "kind", "is a directory, expected a regular file"],
      [`${folder}/y`, "missing", "does not exist"],
      [`${folder}/x/y`, "missing", "does not exist"],
    ];
    if (Deno.build.os !== "windows") {
      const { success } = new Deno.Command("mkfifo", { args: [`${folder}/fifo`] }).outputSync();
      assert(success);
      Deno.symlinkSync(`${folder}/fifo`, `${folder}/link to fifo`);
      refused.push([`${folder}/fifo`, "kind", "is a FIFO, expected a regular file"]);
      refused.push([`${folder}/link to fifo`, "kind", "is a FIFO, expected a regular file"]);
      refused.push(["/dev/zero", "kind", "is a device, expected a regular file"]);
    }
    for (const [path, code, message] of refused) {
      const start = performance.now();
      const error = assertThrows(() => readFile(path, 2), FileError, message);
      assertEquals([error.code, error.message], [code, message]);
      assert(performance.now() - start < 5000, path);
    }
  });
});

Deno.test("InputFile reads ranges, and none that the file has not", () => {
  withFolder((folder) => {
    Deno.writeTextFileSync(`${folder}/x`, "0123456789");
    using file = new InputFile(`${folder}/x`);
    assertEquals(new TextDecoder().decode(file.read(3, 4)), "3456");
    assertEquals(file.read(10, 0).length, 0);
    assertThrows(() => file.read(8, 2 ** 50), FileError, "ends at byte 10");
    Deno.truncateSync(`${folder}/x`, 5);
    assertThrows(() => file.read(3, 4), FileError, "became shorter while it was read");
  });
});

Deno.test("readModelBytes() has a limit for every file, and an error that names it", () => {
  withFolder((folder) => {
    assertEquals(readModelBytes(folder, "config.json"), undefined);
    for (
      const [name, code, most] of [
        ["config.json", "config", 2 ** 20],
        ["generation_config.json", "config", 2 ** 20],
        ["tokenizer.json", "tokenizer", 2 ** 27],
        ["tokenizer_config.json", "tokenizer", 2 ** 24],
        ["chat_template.jinja", "template", 2 ** 18],
      ] as const
    ) {
      const path = `${folder}/${name}`;
      sparse(path, most + 1);
      const error = assertThrows(() => readModelBytes(folder, name), LlmError);
      assertEquals([error.code, error.message], [code, `${path} has ${most + 1} bytes, at most ${most} are allowed`]);
      Deno.writeFileSync(path, Uint8Array.of(0x22, 0xff, 0x22));
      assertThrows(() => readModelFile(folder, name), LlmError, `${path} is not valid UTF-8`);
    }
  });
});

/** Copies of the embedded model's files by name, changed; undefined leaves one out. */
type Changes = Readonly<Record<string, Uint8Array | string | undefined>>;

/** Runs `fn` with a folder that holds the embedded model with changes. */
async function withModel(changes: Changes, fn: (dir: string) => Promise<void>): Promise<void> {
  const dir = await Deno.makeTempDir();
  try {
    for (const { name } of Deno.readDirSync(TINY_DIR)) {
      if (!Object.hasOwn(changes, name)) Deno.copyFileSync(new URL(name, TINY_DIR), `${dir}/${name}`);
    }
    for (const [name, content] of Object.entries(changes)) {
      if (content !== undefined) Deno.writeFileSync(`${dir}/${name}`, bytesOf(content));
    }
    await fn(dir);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

function bytesOf(content: Uint8Array | string): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

const tiny = (name: string): Uint8Array => Deno.readFileSync(new URL(name, TINY_DIR));
const config = JSON.parse(new TextDecoder().decode(tiny("config.json")));
const edited = (change: Record<string, unknown>): string => JSON.stringify({ ...config, ...change });

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function gitId(bytes: Uint8Array): string {
  return createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
}

async function loads(dir: string, verify?: mx.lm.Verify): Promise<void> {
  const { model } = await mx.lm.load(dir, { device: "wasm", verify });
  model[Symbol.dispose]();
}

async function refuses(dir: string, verify: mx.lm.Verify, code: string, ...parts: string[]): Promise<void> {
  const before = mx.getActiveMemory();
  const error = await assertRejects(() => loads(dir, verify), LlmError);
  assertEquals(error.code, code, error.message);
  for (const part of parts) assert(error.message.includes(part), error.message);
  assert(!/\p{Cc}/u.test(error.message), error.message);
  assertEquals(mx.getActiveMemory(), before);
}

const WEIGHTS = "model.safetensors";
const weights = tiny(WEIGHTS);
/** The embedded weights with one bit turned. */
const damaged = weights.with(weights.length - 1, weights[weights.length - 1] ^ 1);

Deno.test("load({ verify }) takes sums by name", async () => {
  const right = sha256(weights);
  await withModel({}, async (dir) => {
    await loads(dir, false);
    await loads(dir, { [WEIGHTS]: right });
    await loads(dir, { [WEIGHTS]: right.toUpperCase(), "config.json": sha256(tiny("config.json")) });
    await refuses(dir, { [WEIGHTS]: right, "config.json": right }, "checksum", `${dir}/config.json`, right);
    await refuses(dir, {}, "checksum", "verify does not name the SHA-256 of model.safetensors");
    await refuses(dir, { [WEIGHTS]: right, "a\nb": right }, "checksum", 'verify names "a\\nb", which is not a file');
    await refuses(dir, { [WEIGHTS]: "abc" }, "option", "a SHA-256 of 64 hexadecimal digits");
    await refuses(dir, "yes" as unknown as boolean, "option", "verify: true or sums by name");
    await refuses(dir, true, "checksum", "no SHA256SUMS and no download of Hugging Face tells the SHA-256 of");
  });
  await withModel({ [WEIGHTS]: damaged }, async (dir) => {
    await loads(dir);
    const found = [`${dir}/${WEIGHTS} is not the file`, `SHA-256 is ${sha256(damaged)}`, `expected ${right} (verify)`];
    await refuses(dir, { [WEIGHTS]: right }, "checksum", ...found);
  });
});

Deno.test("load({ verify: true }) takes the sums that lie beside a model", async () => {
  const names = [...Deno.readDirSync(TINY_DIR)].map(({ name }) => name);
  const lines = names.map((name) => `${sha256(tiny(name))}  ${name}`).join("\n");
  const tagged = `# sums\r\nSHA256 (./${WEIGHTS}) = ${sha256(weights)}\r\n`;
  for (const [name, text] of [["SHA256SUMS", `${lines}\n`], ["sha256sums.txt", tagged]]) {
    await withModel({ [name]: text }, (dir) => loads(dir, true));
    await withModel(
      { [name]: text, [WEIGHTS]: damaged },
      (dir) => refuses(dir, true, "checksum", WEIGHTS, `(${name})`),
    );
  }
  await withModel(
    { SHA256SUMS: lines, "tokenizer.json": `${new TextDecoder().decode(tiny("tokenizer.json"))} ` },
    (dir) => {
      return refuses(dir, true, "checksum", `${dir}/tokenizer.json is not the file`);
    },
  );

  // The notes of `hf download --local-dir`, and the links of its cache.
  const tagOf = (name: string): string => name === WEIGHTS ? sha256(tiny(name)) : gitId(tiny(name));
  const note = (dir: string): void => {
    Deno.mkdirSync(`${dir}/.cache/huggingface/download`, { recursive: true });
    for (const name of names) {
      const text = `11c5a3d5811f50298f278a704980280950aedb10\n${tagOf(name)}\n1712656091.123\n`;
      Deno.writeTextFileSync(`${dir}/.cache/huggingface/download/${name}.metadata`, text);
    }
  };
  await withModel({}, async (dir) => {
    note(dir);
    await loads(dir, true);
  });
  await withModel({ "config.json": edited({ rope_theta: 10 }) }, async (dir) => {
    note(dir);
    await refuses(
      dir,
      true,
      "checksum",
      `${dir}/config.json`,
      `git object id is ${gitId(bytesOf(edited({ rope_theta: 10 })))}`,
    );
  });
  if (Deno.build.os === "windows") return; // links need a permission there
  await withModel({}, async (dir) => {
    Deno.mkdirSync(`${dir}/blobs`);
    Deno.mkdirSync(`${dir}/snapshot`);
    for (const name of names) {
      Deno.renameSync(`${dir}/${name}`, `${dir}/blobs/${tagOf(name)}`);
      Deno.symlinkSync(`../blobs/${tagOf(name)}`, `${dir}/snapshot/${name}`);
    }
    await loads(`${dir}/snapshot`, true);
    Deno.writeFileSync(`${dir}/blobs/${tagOf(WEIGHTS)}`, damaged);
    await refuses(`${dir}/snapshot`, true, "checksum", WEIGHTS, "the cache of Hugging Face");
  });
});

Deno.test("load({ verify }) ends on an abort, and while other code runs", async () => {
  await withModel({ [WEIGHTS]: undefined }, async (dir) => {
    sparse(`${dir}/${WEIGHTS}`, 2 ** 33);
    const controller = new AbortController();
    const start = performance.now();
    setTimeout(() => controller.abort(new Error("enough")), 20);
    const options = { device: "wasm", verify: { [WEIGHTS]: "0".repeat(64) }, signal: controller.signal };
    await assertRejects(() => mx.lm.load(dir, options), Error, "enough");
    assert(performance.now() - start < 7000); // eight seconds and more would be all of it
  });
});

/** A safetensors file with this header and holes for data. */
function headed(header: string): Uint8Array {
  const text = bytesOf(header);
  const bytes = new Uint8Array(8 + text.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

const empties = (count: number): string =>
  `{${Array.from({ length: count }, (_, i) => `"${i}":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`).join()}}`;
const yarn = { rope_scaling: { rope_type: "yarn", factor: 4 } };

/** Model directories that mean harm, with the code of the error and a part of its message. */
const HOSTILE: readonly (readonly [name: string, changes: Changes, code: string, message: string])[] = [
  [
    "a table of 4e8 positions",
    { "config.json": edited({ head_dim: 4e8, ...yarn }) },
    "config",
    '"head_dim" is 400000000',
  ],
  ["a table of 1e12", { "config.json": edited({ head_dim: 1e12, ...yarn }) }, "config", '"head_dim" is 1000000000000'],
  [
    "sizes of another model",
    { "config.json": edited({ head_dim: 4096, ...yarn }) },
    "weights",
    "do not fit config.json",
  ],
  ["half a megabyte of brackets", { "config.json": "[".repeat(2 ** 19) }, "config", "is not valid JSON"],
  ["a colourful config", { "config.json": "\x1b[2J\n" }, "config", "is not valid JSON"],
  ["a colourful type", { "config.json": edited({ model_type: "\x1b[2J\n".repeat(9999) }) }, "config", "is not known"],
  ["a million tensors", { [WEIGHTS]: headed(empties(1_000_000)) }, "weights", "has more than 100000 tensors"],
  ["deep fields", { [WEIGHTS]: headed(`{"a": {"x": ${"[".repeat(2e7)}`) }, "weights", "too many objects and lists"],
  ["white space", { [WEIGHTS]: headed(`{${" ".repeat(5e7)}}`) }, "weights", "too many bytes of white space"],
  ["a name without end", { [WEIGHTS]: headed(`{"${"\x1b".repeat(5e7)}`) }, "weights", "is not valid JSON"],
  ["a header without end", { [WEIGHTS]: headed(`{"a": "`) }, "weights", "is not described by an object"],
  ["a text as a tensor", { [WEIGHTS]: headed(`{"\\u001b[2J": 1}`) }, "weights", 'tensor "\\u001b[2J"'],
  [
    "a missing part",
    { "model-00002-of-00003.safetensors": weights },
    "weights",
    "lacks model-00001-of-00003.safetensors",
  ],
];

Deno.test("load() refuses directories that mean harm soon, with little memory and one line", async () => {
  await withModel({}, (dir) => loads(dir)); // work that a process does once is not counted
  for (const [name, changes, code, message] of HOSTILE) {
    await withModel(changes, async (dir) => {
      const before = Deno.memoryUsage();
      const start = process.cpuUsage();
      const error = await assertRejects(() => loads(dir), LlmError, message, name);
      const { user, system } = process.cpuUsage(start);
      const after = Deno.memoryUsage();
      assertEquals(error.code, code, name);
      assert(!/\p{Cc}/u.test(error.message) && error.message.length < 1000, error.message);
      // Milliseconds of all threads; the bound for one is a tenth of a second on a machine that does nothing else.
      assert((user + system) / 1000 < 500, `${name}: ${(user + system) / 1000} ms`);
      assert(after.external + after.heapUsed - before.external - before.heapUsed < 64e6, name);
    });
  }
});

Deno.test("load() refuses what is no regular file of a sensible size, whatever its name", async () => {
  const names = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
  ];
  for (const name of names) {
    await withModel({ [name]: undefined }, async (dir) => {
      sparse(`${dir}/${name}`, 1.5e9);
      const { message } = await assertRejects(() => loads(dir), LlmError, "1500000000 bytes, at most ");
      assert(message.startsWith(`${dir}/${name} `), message);
    });
  }
  if (Deno.build.os === "windows") return;
  for (const name of [...names, WEIGHTS]) {
    await withModel({ [name]: undefined }, async (dir) => {
      new Deno.Command("mkfifo", { args: [`${dir}/${name}`] }).outputSync();
      const { message } = await assertRejects(() => loads(dir), LlmError, "is a FIFO, expected a regular file");
      assert(message.startsWith(`${dir}/${name}`), message);
      Deno.removeSync(`${dir}/${name}`);
      Deno.symlinkSync("/dev/zero", `${dir}/${name}`);
      await assertRejects(() => loads(dir), LlmError, "is a device, expected a regular file");
    });
  }
});
