/**
 * How users of the package come by the Vulkan library: from a registry and a release on localhost, by programs that start afresh. A file
 * that is not the released one is never opened.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import { target, VERSION } from "../../ffi/version.ts";
import { devices } from "../../src/backend/devices.ts";
import { packagedModule, releaseTable, type Target, TARGETS, writeRelease } from "../../scripts/release.ts";
import { ROOT } from "../../scripts/tools.ts";
import {
  type Answer,
  flipped,
  PackageServer,
  type RunOptions,
  type Variant,
} from "../support/processes/package_server.ts";
import { type Finished, LIBRARY } from "../support/processes/programs.ts";

/** Nothing to test where there is no library, or no release for such a machine; devices need a Vulkan driver, if only a software one. */
const NEEDS_RELEASE = { ignore: LIBRARY === undefined || !(target() in TARGETS) };
const NEEDS_VULKAN = { ignore: NEEDS_RELEASE.ignore || !devices().some((d) => d.name === "vulkan:0" && d.usable) };

let server: PackageServer;

Deno.test.beforeAll(async () => {
  if (!NEEDS_RELEASE.ignore) server = await PackageServer.start(LIBRARY!);
});

Deno.test.afterAll(async () => await server?.[Symbol.asyncDispose]());

/** Prepares a device and tells what can be opened then, and which libraries were opened. */
const PREPARE = `
  const paths: string[] = [];
  const { dlopen } = Deno;
  Object.defineProperty(Deno, "dlopen", { value: (path, symbols) => (paths.push(path), dlopen(path, symbols)) });
  const { getBackend, prepareDevices } = await import("TREE/src/backend/devices.ts");
  const { findLibrary } = await import("TREE/ffi/library.ts");
  const before = findLibrary();
  await prepareDevices("vulkan:0");
  const { openLibrary } = await import("TREE/ffi/library.ts");
  let opened = true;
  try {
    openLibrary();
  } catch (error) {
    opened = false;
    console.error(error.message);
  }
  console.log(JSON.stringify({ before: before !== undefined, opened, paths: new Set(paths).size }));
`;

interface Prepared {
  /** Whether a library was found before it. */
  readonly before: boolean;
  readonly opened: boolean;
  /** Number of libraries that were opened. */
  readonly paths: number;
}

/** Runs {@link PREPARE}. Its stdout is one line, whatever went on. */
async function prepare(options: RunOptions): Promise<Prepared & { readonly stderr: string }> {
  const finished = await server.run(PREPARE, options);
  assertSaysNothingOfCheckouts(finished);
  assertMatch(finished.stdout, /^\{[^\n]*\}\n$/, finished.stderr);
  return { ...JSON.parse(finished.stdout), stderr: finished.stderr };
}

function assertSaysNothingOfCheckouts({ stdout, stderr }: Finished): void {
  assert(!`${stdout}${stderr}`.includes("deno task"), stderr);
}

/** Where the library lies in a cache folder. */
function keptIn(cache: string): string {
  return `${cache}/${VERSION}/${target()}/${LIBRARY!.split(/[\\/]/).at(-1)}`;
}

/** The files in a folder and those below. */
function filesIn(folder: string): string[] {
  return Array.from(Deno.readDirSync(folder)).flatMap(({ name, isDirectory }) =>
    isDirectory ? filesIn(`${folder}/${name}`) : [name]
  );
}

/** Puts a file where the library is kept. */
async function keep(cache: string, bytes: Uint8Array): Promise<string> {
  const path = keptIn(cache);
  await Deno.mkdir(path.slice(0, path.lastIndexOf("/")), { recursive: true });
  await Deno.writeFile(path, bytes);
  return path;
}

// ---- a user's first programs ---------------------------------------------------------------------------------------------

const COMPUTE = `
  const x = mx.arange(64).reshape(8, 8).astype(mx.float32);
  const on = (device) => mx.withDevice(device, () => JSON.stringify(mx.matmul(mx.add(x, 1), x.T).tolist()));
`;

Deno.test({
  ...NEEDS_VULKAN,
  name:
    "a program that imports the package loads a model to Vulkan on a fresh machine, and needs no host but the registry",
  fn: async () => {
    const code = `
      import * as mx from "jsr:@vkmx/vkmx";
      using model = (await mx.lm.load(${
      JSON.stringify(`${ROOT}examples/models/tiny-qwen3`)
    }, { device: "vulkan:0" })).model;
      ${COMPUTE}
      console.log(on("vulkan:0") === on("wasm"), JSON.parse(on("vulkan:0"))[0][0]);
    `;
    const cache = server.folder();
    server.requests.length = 0;
    const finished = await server.run(code, { variant: "full", cache, env: { VKMX_THREADS: "2" } });
    assertEquals(finished, { code: 0, stdout: "true 168\n", stderr: "" });
    assert(server.requests.some((path) => path.includes("/packaged/")), "the packaged module was not asked for");
    assertEquals(server.requests.filter((path) => /plug|assets/.test(path)), []);
    assertEquals(await Deno.readFile(keptIn(cache)), server.library);

    // By URL from the tree, with what the first one kept, without network, preparation or more permissions than needed.
    const second = `import * as mx from "TREE/mod.ts"; ${COMPUTE} console.log(on("vulkan:0") === on("wasm"));`;
    server.requests.length = 0;
    const env = { VKMX_THREADS: "2", VKMX_OFFLINE: "1" };
    const offline = await server.run(second, { variant: "full", cache, env, flags: scoped(cache) });
    assertEquals(offline, { code: 0, stdout: "true\n", stderr: "" });
    assertEquals(server.requests.filter((path) => /packaged|plug|assets/.test(path)), []);
  },
});

Deno.test({
  ...NEEDS_VULKAN,
  name: "vkmx doctor of a package fetches the library and computes on Vulkan, and says why where it cannot",
  fn: async () => {
    const cache = server.folder();
    const options = { variant: "full", cache, env: { VKMX_OFFLINE: "" } } as const;
    const { code, stdout } = await server.runFile("src/cli/mod.ts", ["doctor"], options);
    assertEquals(code, 0);
    assertStringIncludes(stdout, `ok    library: ${keptIn(cache)}, of this release, verified, ABI 0x`);
    assertMatch(stdout, /^ok {4}vulkan:0: [^\n]*, computes what the CPU does$/m);
    const bare = await server.runFile("src/cli/mod.ts", ["doctor"], { variant: "bare", env: { VKMX_OFFLINE: "1" } });
    assertEquals(bare.code, 0, bare.stderr);
    assertMatch(bare.stdout, /^warn {2}library: there is no Vulkan library [^\n]*VKMX_OFFLINE=1 forbids the network/m);
    assertSaysNothingOfCheckouts(bare);
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "a program that prepares nothing is told what does",
  fn: async () => {
    const code = 'import * as mx from "TREE/mod.ts"; console.log(mx.withDevice("vulkan:0", () => 1));';
    const { code: status, stderr } = await server.run(code, { variant: "full" });
    assertEquals(status, 1);
    assertMatch(
      stderr,
      /there is no Vulkan library \([^)]*\); [^\n]*`await mx\.prepareDevices\([^\n]*` [^\n]*fetches it/,
    );
  },
});

// ---- damage --------------------------------------------------------------------------------------------------------------

for (const [what, damage] of [["cut", (b) => b.slice(0, -1)], ["flipped", flipped]] as [string, typeof flipped][]) {
  Deno.test({
    ...NEEDS_RELEASE,
    name: `a ${what} file in the cache is deleted, never opened, and fetched again from the release`,
    fn: async () => {
      const { library } = server;
      const cache = server.folder();
      const path = await keep(cache, damage(library));
      const without = await prepare({ variant: "bare", cache, env: { VKMX_OFFLINE: "1" } });
      assertEquals([without.before, without.opened, without.paths], [false, false, 0]);
      assertEquals(filesIn(cache), []);
      await keep(cache, damage(library));
      const { stderr, ...prepared } = await prepare({ variant: "bare", cache, answer: "good" });
      assertEquals({ stderr, ...prepared }, { before: false, opened: true, paths: 1, stderr: "" });
      assertEquals(await Deno.readFile(path), library);
    },
  });
}

const FAILURES: readonly (readonly [string, Variant, Answer, Record<string, string>, RegExp])[] = [
  ["a cut download", "bare", "cut", {}, /\/releases\/download\/[^;]*: it is damaged: its SHA-256/],
  ["a download with a flipped bit", "damaged", "flipped", {}, /\/packaged\/[^;]*: [^;]+; https:[^;]*: it is damaged/],
  ["a release that is not there", "bare", "404", {}, /\/packaged\/[^;]*: [^;]+; https:[^;]*: Could not find https:/],
  [
    "a host that is not reached",
    "bare",
    "refused",
    {},
    /\/packaged\/[^;]*: [^;]+; https:\/\/github\.com[^;]*: error sending/,
  ],
  [
    "VKMX_OFFLINE=1",
    "full",
    "good",
    { VKMX_OFFLINE: "1" },
    /\/packaged\/[^;]*: VKMX_OFFLINE=1 [^;]*; https:[^;]*: VKMX_O/,
  ],
];

Deno.test({
  ...NEEDS_RELEASE,
  name: "what cannot be fetched whole is not opened, and one line says from where and why",
  fn: async () => {
    await Promise.all(FAILURES.map(async ([what, variant, answer, env, expected]) => {
      const cache = server.folder();
      const { stderr, ...prepared } = await prepare({ variant, cache, answer, env });
      assertEquals(prepared, { before: false, opened: false, paths: 0 }, what);
      assertEquals(stderr.trimEnd().split("\n").length, 1, `${what}: ${stderr}`);
      assertMatch(stderr, expected, what);
      assertEquals(filesIn(cache), [], what);
    }));
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "without a library the default is WASM, with one line that says why",
  fn: async () => {
    const code = `
      import { getBackend, openAhead, prepareDevices } from "TREE/src/backend/devices.ts";
      await prepareDevices("vulkan:0");
      await Promise.all([prepareDevices("vulkan:0"), openAhead()]);
      console.log(getBackend().name, getBackend().name);
    `;
    const finished = await server.run(code, { variant: "bare" });
    assertSaysNothingOfCheckouts(finished);
    assertEquals(finished.stdout, "wasm wasm\n", finished.stderr);
    assertMatch(
      finished.stderr,
      /^vkmx: running on the CPU \(wasm\): there is no Vulkan library [^\n]*github[^\n]*\n$/,
    );
  },
});

// ---- folders, other processes, time ----------------------------------------------------------------------------------------

Deno.test({
  ...NEEDS_RELEASE,
  name:
    "where the cache cannot be written, a temporary folder holds the library until it is open, and one line says so",
  fn: async () => {
    const [file, temporary] = [`${server.folder()}/file`, server.folder()];
    await Deno.writeTextFile(file, "");
    const cache = `${file}/cache`;
    const { stderr, ...prepared } = await prepare({
      variant: "full",
      cache,
      env: { TMPDIR: temporary, TEMP: temporary },
    });
    assertEquals(prepared, { before: false, opened: true, paths: 1 }, stderr);
    assertEquals(stderr.trimEnd().split("\n").length, 1, stderr);
    assertStringIncludes(stderr, `vkmx: cannot write ${cache}`);
    if (Deno.build.os !== "windows") assertEquals(filesIn(temporary), []);

    const nowhere = await prepare({ variant: "full", cache, env: { TMPDIR: `${file}/t`, TEMP: `${file}/t` } });
    assertEquals([nowhere.opened, nowhere.paths], [false, 0]);
    assertEquals(nowhere.stderr.trimEnd().split("\n").length, 1, nowhere.stderr);
    assertStringIncludes(nowhere.stderr, `${file}/t`);
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "eight programs that start at once on a damaged cache all open the library, and leave one file",
  fn: async () => {
    const { library } = server;
    const cache = server.folder();
    await keep(cache, flipped(library));
    const started = await Promise.all(Array.from({ length: 8 }, () => prepare({ variant: "full", cache })));
    for (const { opened, paths, stderr } of started) {
      assertEquals([opened, paths], [true, 1], stderr);
    }
    assertEquals(filesIn(cache).length, 1);
    assertEquals(await Deno.readFile(keptIn(cache)), library);
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "what takes long is told on stderr with its URL",
  fn: async () => {
    const { stderr, ...prepared } = await prepare({ variant: "slow" });
    assertEquals(prepared, { before: false, opened: true, paths: 1 }, stderr);
    assertMatch(
      stderr,
      /^vkmx: fetching the Vulkan library, once: http:\S+packaged\S+\nvkmx: the Vulkan library is here \(\d+ s\)\n$/,
    );
  },
});

/** Flags that grant the programs a folder for everything, and the server. */
function scoped(cache: string): string[] {
  const flags = ["read", "write", "ffi"].map((name) => `--allow-${name}=${cache}`);
  return ["--no-prompt", "--allow-env", `--allow-import=${new URL(server.origin).host}`, ...flags];
}

Deno.test({
  ...NEEDS_RELEASE,
  name: "permissions for the cache folder are enough, also where Deno may not look for a GPU",
  fn: async () => {
    const cache = server.folder();
    const code = PREPARE.replace('prepareDevices("vulkan:0")', "prepareDevices()");
    const { stdout, stderr } = await server.run(code, { variant: "full", cache, flags: scoped(cache) });
    assertEquals(JSON.parse(stdout).opened, true, stderr);
    assertMatch(stderr, /^(vkmx: running on the CPU [^\n]* a software driver: [^\n]*\n)?$/); // of a machine without a GPU
    assertEquals(await Deno.readFile(keptIn(cache)), server.library);
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "what Deno was not permitted is told with the flag, and nothing is fetched",
  fn: async () => {
    server.requests.length = 0;
    const flags = ["--no-prompt", "--allow-env", `--allow-import=${new URL(server.origin).host}`];
    const { opened, stderr } = await prepare({ variant: "full", flags });
    assertEquals(opened, false);
    assertMatch(stderr, /it is not fetched, since Deno may not open it: run again with the --allow-ffi flag\n$/);
    assertEquals(server.requests.filter((path) => /packaged|plug|assets/.test(path)), []);
  },
});

// ---- making a release ------------------------------------------------------------------------------------------------------

Deno.test({
  ...NEEDS_RELEASE,
  name: "the files of a release are those of the table",
  fn: async () => {
    const { released, library } = server;
    const { RELEASES } = await import(`file://${released}/ffi/releases.ts`);
    const { asset, bytes, sha256 } = RELEASES[target()];
    assertEquals([Object.keys(RELEASES), bytes], [[target()], library.length]);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", library)).toHex();
    assertEquals(sha256, digest);
    assertEquals(await Deno.readFile(`${released}/zig-out/release/${asset}`), library);
    assertEquals(await Deno.readTextFile(`${released}/zig-out/release/SHA256SUMS`), `${digest}  ${asset}\n`);
  },
});

Deno.test({
  ...NEEDS_RELEASE,
  name: "a library for another system is not released",
  fn: async () => {
    const folder = server.folder();
    const other = (Object.keys(TARGETS) as Target[]).find((name) => name.endsWith("linux") && name !== target())!;
    await Deno.mkdir(`${folder}/${other}`);
    await Deno.copyFile(LIBRARY!, `${folder}/${other}/libvk_runtime.so`);
    const error = await writeRelease({ from: folder, to: folder, targets: [other] }).catch((error) => error);
    assertStringIncludes(error.message, `the library for ${other} is for another system`);
  },
});

Deno.test("the table in the source is that of a checkout or of this version, and its form is what the task writes", async () => {
  const text = await Deno.readTextFile(`${ROOT}ffi/releases.ts`);
  const { RELEASES } = await import("../../ffi/releases.ts");
  assertEquals(releaseTable(text, RELEASES), text);
  assertThrows(() => releaseTable("export {};", {}), Error, "has no table");
  assertStringIncludes(packagedModule(new Uint8Array([1, 2, 3]), 1), 'export const LIBRARY: string = "');
});

Deno.test("build.zig compiles for the targets of releases", async () => {
  const text = await Deno.readTextFile(`${ROOT}build.zig`);
  const names = Array.from(text.matchAll(/\.\{ \.name = "([^"]+)", \.triple = /g), ([, name]) => name);
  assertEquals(names, Object.keys(TARGETS));
});
