/**
 * How users of the package come by the embedded model: from the served tree into the cache folder, once. A file that is not the published
 * one is never loaded.
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { createHash } from "node:crypto";
import * as mx from "../../mod.ts";
import { target, VERSION } from "../../ffi/version.ts";
import { TARGETS } from "../../scripts/release.ts";
import { devices } from "../../src/backend/devices.ts";
import { EMBEDDED_FILES } from "../../src/llm/checkpoint/embedded.ts";
import { type Answer, flipped, PackageServer, type RunOptions } from "../support/processes/package_server.ts";
import { type Finished, LIBRARY } from "../support/processes/programs.ts";

const NAMES = Object.keys(EMBEDDED_FILES).sort();
const BARE = { variant: "bare" } as const;

let server: PackageServer;

Deno.test.beforeAll(async () => {
  server = await PackageServer.start(LIBRARY);
});

Deno.test.afterAll(async () => await server?.[Symbol.asyncDispose]());

/** Loads and generates; threads of their own on the CPU are workers. */
const STORY = `
  import * as mx from "TREE/mod.ts";
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device: "wasm" });
  console.log(await mx.lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 32 }));
`;

/** Provides the files and nothing else. */
const PROVIDE = `
  const { provideEmbedded } = await import("TREE/src/llm/checkpoint/embedded.ts");
  try {
    using folder = await provideEmbedded();
    console.log(folder.path);
  } catch (error) {
    console.error(error.message);
    Deno.exitCode = 1;
  }
`;

/** Runs a program while the server answers for the model's files as told. */
async function run(code: string, model: Answer, options: Omit<RunOptions, "variant">): Promise<Finished> {
  server.model = model;
  server.requests.length = 0;
  return await server.run(code, { ...BARE, ...options });
}

/** Files of the model that were asked for. */
function asked(): string[] {
  return server.requests.filter((path) => path.includes("/tiny-qwen3/")).map((path) => path.split("/").at(-1)!).sort();
}

/** The story that the embedded model tells here. */
async function storyHere(): Promise<string> {
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device: "wasm" });
  try {
    return `${await mx.lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 32 })}\n`;
  } finally {
    model[Symbol.dispose]();
  }
}

const keptIn = (cache: string): string => `${cache}/${VERSION}/tiny-qwen3`;

/** A cache folder that has the model, with one file damaged. */
async function damagedCache(): Promise<string> {
  const cache = server.folder();
  await Deno.mkdir(keptIn(cache), { recursive: true });
  for (const name of NAMES) {
    const bytes = await Deno.readFile(new URL(name, mx.lm.EMBEDDED_MODEL));
    await Deno.writeFile(`${keptIn(cache)}/${name}`, name === "tokenizer.json" ? flipped(bytes) : bytes);
  }
  return cache;
}

/** Throws unless a folder has the published files and nothing else. */
async function assertKept(folder: string): Promise<void> {
  assertEquals(Array.from(Deno.readDirSync(folder), ({ name }) => name).sort(), NAMES);
  for (const [name, { bytes, sha256 }] of Object.entries(EMBEDDED_FILES)) {
    const found = await Deno.readFile(`${folder}/${name}`);
    assertEquals([found.length, createHash("sha256").update(found).digest("hex")], [bytes, sha256], name);
  }
}

Deno.test("the table in the source is that of the files", async () => {
  const folder = server.folder();
  for (const { name } of Deno.readDirSync(mx.lm.EMBEDDED_MODEL)) {
    if (name !== "README.md") await Deno.copyFile(new URL(name, mx.lm.EMBEDDED_MODEL), `${folder}/${name}`);
  }
  await assertKept(folder);
});

Deno.test("a program imported over HTTP tells the story of a clone, and again when the server has no model", async () => {
  const expected = { code: 0, stdout: await storyHere(), stderr: "" };
  const cache = server.folder();
  assertEquals(await run(STORY, "good", { cache, env: { VKMX_THREADS: "2" } }), expected);
  assertEquals(asked(), NAMES);
  await assertKept(keptIn(cache));
  assertEquals(await run(STORY, "404", { cache, env: { VKMX_THREADS: "1", VKMX_OFFLINE: "1" } }), expected);
  assertEquals(asked(), []);
});

for (const { name, usable } of devices()) {
  if (!usable || (name !== "wasm" && (LIBRARY === undefined || !(target() in TARGETS)))) continue;

  Deno.test(`the command line of the served tree tells the story of a clone on ${name}, also without a network`, async () => {
    const args = ["generate", "--temp", "0", "--max-tokens", "24", "--device", name];
    const here = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-lock", new URL("../../src/cli/mod.ts", import.meta.url).href, ...args],
      env: { VKMX_DEVICE: "", NO_COLOR: "1" },
    }).output();
    const expected = [0, new TextDecoder().decode(here.stdout)];
    server.model = "good";
    const options = { variant: "full", cache: server.folder(), env: { VKMX_THREADS: "2" } } as const;
    const first = await server.runFile("src/cli/mod.ts", args, options);
    assertEquals([first.code, first.stdout], expected, first.stderr);
    server.model = "404";
    server.requests.length = 0;
    const second = await server.runFile("src/cli/mod.ts", args, { ...options, env: { VKMX_OFFLINE: "1" } });
    assertEquals([second.code, second.stdout], expected, second.stderr);
    assertEquals(server.requests.filter((path) => /tiny-qwen3|packaged/.test(path)), []);
  });
}

Deno.test("a damaged file in the cache is fetched again, and no other one", async () => {
  const cache = await damagedCache();
  const finished = await run(PROVIDE, "good", { cache });
  assertEquals([finished.code, finished.stderr, asked()], [0, "", ["tokenizer.json"]]);
  await assertKept(finished.stdout.trimEnd());
});

Deno.test("eight programs that start at once on a damaged cache all have the model, and leave its files alone", async () => {
  const cache = await damagedCache();
  server.model = "good";
  const started = await Promise.all(Array.from({ length: 8 }, () => server.run(PROVIDE, { ...BARE, cache })));
  for (const finished of started) assertEquals([finished.code, finished.stderr], [0, ""]);
  await assertKept(keptIn(cache));
});

const FAILURES: readonly (readonly [string, Answer, Omit<RunOptions, "variant">, RegExp])[] = [
  ["files that are not there", "404", {}, /^http:\S+\/config\.json: the server answers HTTP 404; load it once/],
  ["a flipped bit", "flipped", {}, /^http:\S+\/config\.json: it is damaged: its SHA-256 [^;]*; load/],
  ["a cut file", "cut", {}, /^http:\S+\/config\.json: it is damaged: [^;]*; load/],
  [
    "VKMX_OFFLINE=1",
    "good",
    { env: { VKMX_OFFLINE: "1" } },
    /^the embedded model is not in \S+tiny-qwen3 and http:\S+: VKMX_OFFLINE=1 forbids the network; load/,
  ],
  [
    "no permission for the network",
    "good",
    { flags: ["--no-prompt", "--allow-env", "--allow-read", "--allow-write", "--allow-import"] },
    /^the embedded model is not in \S+ and http:\S+: Requires net access to localhost:\d+, run again with the --allow-net/,
  ],
];

Deno.test("what cannot be fetched whole is not loaded, and one line says why", async () => {
  for (const [what, model, options, expected] of FAILURES) {
    const cache = server.folder();
    const { code, stdout, stderr } = await run(PROVIDE, model, { cache, ...options });
    assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [1, "", 1], `${what}: ${stderr}`);
    assertMatch(stderr, expected, what);
    assertEquals(Array.from(Deno.readDirSync(cache)).length, 0, what);
  }
});

Deno.test("where the cache cannot be written, a temporary folder has the model while it is loaded, and one line says so", async () => {
  const [file, temporary] = [`${server.folder()}/file`, server.folder()];
  await Deno.writeTextFile(file, "");
  const cache = `${file}/cache`;
  const { code, stdout, stderr } = await run(PROVIDE, "good", { cache, env: { TMPDIR: temporary, TEMP: temporary } });
  assertEquals([code, stderr.trimEnd().split("\n").length], [0, 1], stderr);
  assertStringIncludes(stderr, `vkmx: cannot write ${cache}`);
  assertStringIncludes(stdout, temporary);
  assertEquals(Array.from(Deno.readDirSync(temporary)).length, 0);

  const nowhere = await run(PROVIDE, "good", { cache, env: { TMPDIR: `${file}/t`, TEMP: `${file}/t` } });
  assertEquals([nowhere.code, nowhere.stderr.trimEnd().split("\n").length], [1, 1], nowhere.stderr);
  assertStringIncludes(nowhere.stderr, `${file}/t`);
});
