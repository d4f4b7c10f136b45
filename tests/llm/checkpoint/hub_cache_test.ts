/** The cache of models: shared between processes, used without a network, listed, verified and emptied; and `load` by name from it. */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { join } from "node:path";
import { link, Lock } from "../../../ffi/store.ts";
import * as mx from "../../../mod.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { hubCache, isOffline } from "../../../src/llm/hub/places.ts";
import { HubBench, NAME, smallModel } from "../../support/models/hub_models.ts";
import { COMMIT, hashOf, large, type ServedFile, text } from "../../support/processes/hub_server.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { withOptions } from "../../../scripts/support/options.ts";

mx.devices(); // opens the Vulkan library outside of any test

const WEIGHTS = "model.safetensors";
const NEWER = "f00dface".repeat(5);

/** Asserts that a call fails with an LlmError of one line and returns its message. */
async function fails(call: () => unknown, code = "hub"): Promise<string> {
  const { message, code: found } = await assertRejects(async () => await call(), LlmError);
  assertEquals(found, code, message);
  assert(!message.includes("\n"), message);
  return message;
}

/** A process that downloads the model. */
function download(): Deno.ChildProcess {
  const script = new URL("../../support/processes/hub_process.ts", import.meta.url).href;
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", script, NAME],
    env: { VKMX_DEVICE: "wasm" },
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

Deno.test("the folder and the switch come from the variables that Python reads", () => {
  const none = Object.fromEntries(
    ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "USERPROFILE"].map((name) =>
      [name, undefined] as const
    ),
  );
  const folder = (env: Readonly<Record<string, string>>): string => {
    using _options = withOptions({ env: { ...none, ...env } });
    return hubCache();
  };
  const all = { HF_HUB_CACHE: "/a", HUGGINGFACE_HUB_CACHE: "/b", HF_HOME: "/c", XDG_CACHE_HOME: "/d", HOME: "/e" };
  const places: [keyof typeof all, string][] = [
    ["HF_HUB_CACHE", "/a"],
    ["HUGGINGFACE_HUB_CACHE", "/b"],
    ["HF_HOME", "/c/hub"],
    ["XDG_CACHE_HOME", "/d/huggingface/hub"],
    ["HOME", "/e/.cache/huggingface/hub"],
  ];
  const env: Partial<typeof all> = { ...all };
  for (const [name, expected] of places) {
    if (Deno.build.os !== "windows") assertEquals(folder(env), expected);
    delete env[name];
  }
  if (Deno.build.os !== "windows") {
    assertEquals(folder({ HF_HOME: "~/x", HOME: "/e" }), "/e/x/hub");
    assertEquals(folder({ HF_HUB_CACHE: "$HOME/x/${NOT_SET_ANYWHERE}", HOME: "/e" }), "/e/x/${NOT_SET_ANYWHERE}");
  }
  assertThrows(() => folder({}), LlmError, "There is no folder to keep models in: set HF_HUB_CACHE");
  for (const name of ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VKMX_OFFLINE"]) {
    const variables = { HF_HUB_OFFLINE: undefined, TRANSFORMERS_OFFLINE: undefined, VKMX_OFFLINE: undefined };
    using _none = withOptions({ env: variables });
    assertEquals(isOffline(), false);
    using _options = withOptions({ env: { [name]: "1" } });
    assertEquals(isOffline(), true, name);
  }
});

Deno.test("two processes that start at once download once", async () => {
  await using bench = new HubBench();
  // Slow enough that both want the same file.
  bench.server.fault = async ({ host }) => {
    if (host === "store") await new Promise((resolve) => setTimeout(resolve, 500));
    return undefined;
  };
  const outputs = await Promise.all([download(), download()].map((process) => process.output()));
  for (const { success, stdout, stderr } of outputs) {
    assert(success, new TextDecoder().decode(stderr));
    assertEquals(JSON.parse(new TextDecoder().decode(stdout)), { commit: COMMIT, missing: [] });
  }
  assertEquals(bench.server.seen.filter(({ host }) => host === "store").length, 1);
  assertEquals(bench.entries.filter((path) => /incomplete|tmp/.test(path)), []);
});

Deno.test("a killed download leaves nothing that looks whole, and the next one goes on from there", async () => {
  await using bench = new HubBench();
  const { bytes } = bench.model.files[WEIGHTS];
  bench.server.fault = ({ host }) =>
    host === "store"
      ? new Response(new ReadableStream({ start: (controller) => controller.enqueue(bytes.slice(0, 1234)) }), {
        headers: { "content-length": "3000" },
      })
      : undefined;
  const process = download();
  const partial = `${bench.blob(WEIGHTS)}.incomplete`;
  const size = (): number => {
    try {
      return Deno.statSync(partial).size;
    } catch {
      return 0;
    }
  };
  for (let i = 0; i < 1000 && size() < 1234; i++) await new Promise((resolve) => setTimeout(resolve, 20));
  process.kill("SIGKILL");
  await process.output();
  assertEquals(size(), 1234);
  assertEquals(bench.whole.filter((path) => path.endsWith(WEIGHTS) || path.includes("refs")), []);
  {
    using _offline = withOptions({ env: { HF_HUB_OFFLINE: "1" } });
    assertMatch(
      await fails(() => mx.lm.load(NAME)),
      /org\/name \("main"\) is not in \S+ and HF_HUB_OFFLINE or VKMX_OFFLINE is set/,
    );
    assertMatch(await fails(() => mx.lm.load(NAME, { revision: COMMIT })), /lacks "model.safetensors" in/);
  }
  bench.server.fault = () => undefined;
  const { path } = await bench.pull();
  assertEquals(bench.server.seen.at(-1)!.range, "bytes=1234-");
  assertEquals(Deno.readFileSync(`${path}/${WEIGHTS}`), bytes);
});

Deno.test("who waits for another's lock sees how far it is, and ends with the signal", async () => {
  await using bench = new HubBench();
  const blobs = `${bench.cache}/models--org--name/blobs`;
  const locks = `${bench.cache}/.locks/models--org--name`;
  for (const folder of [blobs, locks]) Deno.mkdirSync(folder, { recursive: true });
  using lock = Lock.take(`${locks}/${hashOf(bench.model.files[WEIGHTS])}.lock`);
  assert(lock !== undefined);
  assertEquals(Lock.take(`${locks}/${hashOf(bench.model.files[WEIGHTS])}.lock`), undefined);
  Deno.writeFileSync(`${bench.blob(WEIGHTS)}.incomplete`, new Uint8Array(700));
  const controller = new AbortController();
  let seen = 0;
  const onProgress = ({ files }: mx.lm.hub.DownloadProgress): void => {
    seen = files.find(({ name }) => name === WEIGHTS)!.bytesDone;
    if (seen === 700) controller.abort(new Error("enough"));
  };
  await assertRejects(() => bench.pull({ onProgress, signal: controller.signal }), Error, "enough");
  assertEquals([seen, bench.server.seen.filter(({ host }) => host === "store").length], [700, 0]);
  assertMatch(
    await fails(() => mx.lm.hub.remove(NAME, { revision: COMMIT })),
    /is being downloaded by another process/,
  );
});

Deno.test("a cache that cannot be written, and a full disk, are one line", async () => {
  await using bench = new HubBench();
  const file = `${bench.cache}/file`;
  Deno.writeTextFileSync(file, "");
  assertMatch(
    await fails(() => bench.pull({ cache: file })),
    /^\S+file\S* cannot be written: Not a directory.*: set HF_HUB_CACHE to a folder that can be written$/,
  );
  if (Deno.build.os === "windows") return;
  const folder = `${bench.cache}/read only`;
  Deno.mkdirSync(folder);
  Deno.chmodSync(folder, 0o555);
  if (Deno.uid() !== 0) {
    assertMatch(
      await fails(() => bench.pull({ cache: folder })),
      /cannot be written: Permission denied.*: set HF_HUB_CACHE to a folder that can/,
    );
  }
  if (Deno.build.os !== "linux") return;
  // Whatever is written to this device finds the disk full.
  Deno.mkdirSync(`${bench.cache}/models--org--name/blobs`, { recursive: true });
  Deno.symlinkSync("/dev/full", `${bench.blob(WEIGHTS)}.incomplete`);
  const message = await fails(() => bench.pull());
  assertMatch(
    message,
    /incomplete cannot be written: No space left on device.*: make room or set HF_HUB_CACHE to a folder on another disk$/,
  );
  assertEquals(bench.whole.filter((path) => path.endsWith(WEIGHTS)), []);
});

Deno.test("where links are not allowed a file has a second name, or is copied", () => {
  const folder = Deno.makeTempDirSync();
  const { symlinkSync, linkSync } = Deno;
  const refuse = (): never => {
    throw new Deno.errors.PermissionDenied("links are not allowed");
  };
  try {
    Deno.writeTextFileSync(join(folder, "blob"), "x");
    link(join(folder, "blob"), join(folder, "a"));
    assertEquals(Deno.readLinkSync(join(folder, "a")), "blob");
    Deno.symlinkSync = refuse;
    link(join(folder, "blob"), join(folder, "a")); // in place of the link
    link(join(folder, "blob"), join(folder, "b"));
    assertEquals([Deno.lstatSync(join(folder, "a")).isFile, Deno.statSync(join(folder, "b")).nlink], [true, 3]);
    Deno.linkSync = refuse;
    link(join(folder, "blob"), join(folder, "c"));
    assertEquals([Deno.readTextFileSync(join(folder, "c")), Deno.statSync(join(folder, "c")).nlink], ["x", 1]);
    assertEquals(Array.from(Deno.readDirSync(folder), ({ name }) => name).sort(), ["a", "b", "blob", "c"]);
  } finally {
    Object.assign(Deno, { symlinkSync, linkSync });
    Deno.removeSync(folder, { recursive: true });
  }
});

/** A second commit that shares the weights with the first one. */
async function twoCommits(bench: HubBench): Promise<void> {
  await bench.pull({}, NAME, "refs/pr/1");
  bench.server.models.set(NAME, {
    ...bench.model,
    commit: NEWER,
    files: { ...bench.model.files, "config.json": text('{ "newer": 1 }') },
  });
  await bench.pull();
}

Deno.test("models of the cache are listed and shown", async () => {
  await using bench = new HubBench();
  assertEquals(mx.lm.hub.list(), []);
  await twoCommits(bench);
  Deno.mkdirSync(`${bench.cache}/datasets--a--b/snapshots`, { recursive: true });
  Deno.mkdirSync(`${bench.cache}/models--a--empty`);
  const models = mx.lm.hub.list();
  assertEquals(models.map(({ name, commit, revisions }) => [name, commit, ...revisions]).sort(), [
    [NAME, COMMIT, "refs/pr/1"],
    [NAME, NEWER, "main"],
  ]);
  const [shown] = mx.lm.hub.show(`${NAME}@main`);
  assertEquals(shown.files.map(({ name, size }) => [name, size]), [["config.json", 14], [WEIGHTS, 3000], [
    "tokenizer.json",
    3,
  ]]);
  assertEquals([shown.size, shown.missing], [3017, []]);
  assertEquals(shown.files[1].hash, hashOf(bench.model.files[WEIGHTS]));
  assert(Math.abs(shown.lastUsed.getTime() - Date.now()) < 60_000);
  assertEquals(mx.lm.hub.show(NAME).length, 2);
  assertMatch(await fails(() => mx.lm.hub.show("org/none")), /^org\/none is not in /);
  assertMatch(await fails(() => mx.lm.hub.show(NAME, { revision: "v9" })), /^org\/name \("v9"\) is not in /);
  assertMatch(await fails(() => mx.lm.hub.show("name")), /^show\(\) expected a model of the hub/);
  assertMatch(await fails(() => mx.lm.hub.list({ cachedir: "" } as never), "option"), /did you mean "cacheDir"/);
});

Deno.test("removing a revision keeps what others need; removing a model leaves nothing", async () => {
  await using bench = new HubBench();
  await twoCommits(bench);
  Deno.writeTextFileSync(`${bench.cache}/models--org--name/blobs/${"a".repeat(64)}.incomplete`, "12345");
  assertEquals(mx.lm.hub.remove(NAME, { revision: "refs/pr/1" }), smallModel().files["config.json"].bytes.length + 5);
  assertEquals(mx.lm.hub.show(NAME).map(({ commit, missing }) => [commit, missing]), [[NEWER, []]]);
  assertEquals(bench.entries.filter((path) => path.includes(COMMIT) || path.includes("pr/1")), []);
  assertEquals((await mx.lm.hub.verify(NAME))[0].verified.map(({ state }) => state), ["good", "good", "good"]);
  assertEquals(mx.lm.hub.remove(NAME), 3017);
  assertEquals(bench.entries, [".locks", "CACHEDIR.TAG"]);
  assertMatch(await fails(() => mx.lm.hub.remove(NAME)), /is not in/);
});

Deno.test("damaged files are found, removed by request, and downloaded again", async () => {
  await using bench = new HubBench();
  const { path } = await bench.pull();
  const bytes = Deno.readFileSync(`${path}/${WEIGHTS}`);
  bytes[7] ^= 1;
  Deno.writeFileSync(`${path}/${WEIGHTS}`, bytes);
  Deno.writeTextFileSync(`${path}/notes.txt`, "mine");
  Deno.removeSync(`${path}/tokenizer.json`);
  Deno.writeTextFileSync(`${path}/tokenizer.json`, "[]\n"); // a copy in place of the link: the list tells its hash
  const done: number[] = [];
  const [model] = await mx.lm.hub.verify(NAME, { onProgress: (bytes, total) => done.push(bytes / total) });
  assertEquals(Object.fromEntries(model.verified.map(({ name, state }) => [name, state])), {
    "config.json": "good",
    [WEIGHTS]: "damaged",
    "tokenizer.json": "damaged",
    "notes.txt": "unknown",
  });
  assert(done[0] === 0 && done.at(-1)! > 0.99);
  await mx.lm.hub.verify(NAME, { removeDamaged: true });
  assertEquals(mx.lm.hub.show(NAME)[0].missing.toSorted(), [WEIGHTS, "tokenizer.json"]);
  const before = bench.server.downloads.length;
  await mx.lm.hub.pull(NAME);
  assertEquals(bench.server.downloads.slice(before), [WEIGHTS]); // the blob of the other one was whole
  const states = (await mx.lm.hub.verify(NAME))[0].verified.map(({ state }) => state);
  assertEquals(states.toSorted(), ["good", "good", "good", "unknown"]);
});

/** The embedded model as one of the hub. */
function tiny(): Record<string, ServedFile> {
  return Object.fromEntries(
    Array.from(Deno.readDirSync(TINY_DIR), ({ name }) => {
      const bytes = Deno.readFileSync(new URL(name, TINY_DIR));
      return [name, { bytes, lfs: bytes.length > 1e6 }];
    }),
  );
}

Deno.test("load() takes a model by name, downloads it once, and needs no network then", async () => {
  await using bench = new HubBench();
  bench.server.models.set("org/tiny", { commit: COMMIT, revisions: ["main", "v1"], files: tiny() });
  const told: mx.lm.hub.DownloadProgress[] = [];
  const read: number[] = [];
  const first = await mx.lm.load("org/tiny", {
    device: "wasm",
    onDownload: (progress) => told.push(progress),
    onProgress: (done) => read.push(done),
  });
  using _model = first.model;
  assert(told.at(-1)!.bytesDone === told.at(-1)!.bytesTotal && told.at(-1)!.bytesTotal > 4e6 && read.length > 1);
  const prompt = "Once upon a time";
  const options = { maxTokens: 4, temp: 0 };
  const words = await mx.lm.generate(first.model, first.tokenizer, prompt, options);

  const asked = bench.server.seen.length;
  for (const variable of ["VKMX_OFFLINE", "HF_HUB_OFFLINE", undefined]) {
    using _offline = withOptions({ env: variable === undefined ? {} : { [variable]: "1" } });
    const again = await mx.lm.load("org/tiny", { device: "wasm", verify: true });
    using _again = again.model;
    assertEquals(await mx.lm.generate(again.model, again.tokenizer, prompt, options), words);
    if (variable !== undefined) {
      assertMatch(await fails(() => mx.lm.load("org/tiny@v1")), /as a model of the hub: org\/tiny \("v1"\) is not in/);
      assertMatch(await fails(() => mx.lm.hub.pull("org/tiny")), /OFFLINE is set/);
    }
  }
  assertEquals(bench.server.seen.length, asked);
});

Deno.test("load() says before the weights come that a model cannot be read", async () => {
  await using bench = new HubBench();
  await fails(() => mx.lm.load(NAME), "config");
  assertEquals(bench.server.downloads.sort(), ["config.json", "tokenizer.json"]);
});

Deno.test("load() takes a folder before a model of the hub, and says what a name lacks", async () => {
  await using bench = new HubBench();
  const here = Deno.cwd();
  const folder = Deno.makeTempDirSync();
  Deno.mkdirSync(`${folder}/org/name`, { recursive: true });
  try {
    Deno.chdir(folder);
    assertMatch(await fails(() => mx.lm.load("org/name"), "config"), /^org\/name\/config.json does not exist/);
    assertMatch(
      await fails(() => mx.lm.load("org/name", { revision: "v1" }), "option"),
      /^org\/name is no model of the hub and has no revision/,
    );
  } finally {
    Deno.chdir(here);
    Deno.removeSync(folder, { recursive: true });
  }
  assertMatch(
    await fails(() => mx.lm.load("name"), "weights"),
    /^The model directory name does not exist, and models of the hub have names such as/,
  );
  assertMatch(
    await fails(() => mx.lm.load("org/none")),
    /^There is no folder org\/none, and as a model of the hub: \S+ knows no model org\/none/,
  );
  assertMatch(await fails(() => mx.lm.load("name", { revision: "v1" })), /expected a model of the hub such as/);
  assertMatch(await fails(() => mx.lm.load(NAME, { revision: "../x" })), /expected a revision such as/);
  assertEquals(bench.server.downloads, []);
});

Deno.test("a snapshot without a list, as older tools leave it, is used where it has what a model needs", async () => {
  await using bench = new HubBench();
  const files = {
    ...bench.model.files,
    "model-00002-of-00002.safetensors": large(10),
    "model-00001-of-00002.safetensors": large(11),
  };
  delete (files as Record<string, ServedFile>)[WEIGHTS];
  bench.server.models.set(NAME, { ...bench.model, files });
  const { path } = await bench.pull();
  Deno.removeSync(`${bench.cache}/models--org--name/trees`, { recursive: true });
  assertEquals(mx.lm.hub.show(NAME)[0].missing, []);
  Deno.removeSync(`${path}/model-00001-of-00002.safetensors`);
  Deno.removeSync(`${path}/tokenizer.json`);
  assertEquals(mx.lm.hub.show(NAME)[0].missing, ["tokenizer.json", "model-00001-of-00002.safetensors"]);
  Deno.writeTextFileSync(`${path}/tokenizer.model`, "any");
  assertEquals(mx.lm.hub.show(NAME)[0].missing, ["model-00001-of-00002.safetensors"]);
  await bench.pull();
  assertEquals(mx.lm.hub.show(NAME)[0].missing, []);
});
