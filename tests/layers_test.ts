/**
 * The import arrows: cli -> server -> mcp -> mod.ts -> llm -> nn -> array -> schedule -> backend -> ffi. graph is the vocabulary of the
 * upper layers. The folders inside of a layer have an order too, and files form no circles. Read from `deno info
 * --json`, so type imports and dynamic imports count too. In C a module is a .c file with its .h; what it includes runs
 * down as well.
 */

import { assert, assertEquals } from "@std/assert";
import { ROOT, run } from "../scripts/tools.ts";
import { ARROWS, FORBIDDEN } from "./support/import_arrows.ts";

interface Dependency {
  readonly specifier: string;
  readonly code?: { readonly specifier?: string };
  readonly type?: { readonly specifier?: string };
}

interface Module {
  readonly specifier: string;
  readonly dependencies?: readonly Dependency[];
}

/** The exports of the package; the command line reaches all that mod.ts does. */
const EXPORTS = ["mod.ts", "src/cli/mod.ts"] as const;

/** Modules of the project that a module reaches, by path from the root. */
async function moduleGraph(from: string): Promise<Map<string, readonly Dependency[]>> {
  const info = await run([Deno.execPath(), "info", "--json", from]);
  const root = new URL("../", import.meta.url).href;
  const modules: readonly Module[] = JSON.parse(info.stdout).modules;
  const own = modules.filter(({ specifier }) => specifier.startsWith(root));
  assert(own.length > 1, `deno info found nothing that ${from} imports`);
  return new Map(own.map((m) => [m.specifier.slice(root.length), m.dependencies ?? []]));
}

function roomOf(path: string): string {
  const rooms = Object.keys(ARROWS).filter((name) => path === name || path.startsWith(`${name}/`));
  if (rooms.length === 0) throw new Error(`${path} belongs to no room`);
  return rooms.reduce((longest, name) => name.length > longest.length ? name : longest);
}

/** Files of the project that each one imports. */
async function imports(): Promise<Map<string, readonly string[]>> {
  const root = new URL("../", import.meta.url).href;
  const targets = (dependencies: readonly Dependency[]): string[] =>
    dependencies.flatMap(({ code, type }) => code?.specifier ?? type?.specifier ?? [])
      .filter((target) => target.startsWith(root)).map((target) => target.slice(root.length));
  return new Map(
    Array.from(await moduleGraph("src/cli/mod.ts"), ([path, dependencies]) => [path, targets(dependencies)]),
  );
}

/** Every TypeScript file of the library. */
async function sourceFiles(folder: string): Promise<string[]> {
  const files: string[] = [];
  for await (const entry of Deno.readDir(ROOT + folder)) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) files.push(...await sourceFiles(path));
    else if (path.endsWith(".ts")) files.push(path);
  }
  return files;
}

Deno.test("imports follow the arrows", async () => {
  const wrong: string[] = [];
  for (const [path, targets] of await imports()) {
    for (const target of targets) {
      const [from, to] = [roomOf(path), roomOf(target)];
      if (to !== from && !ARROWS[from].includes(to)) wrong.push(`${path} imports ${target}`);
    }
  }
  assertEquals(wrong, []);
});

Deno.test("no file imports what its room is to know nothing of", async () => {
  const found: string[] = [];
  for (const [path, targets] of await imports()) {
    for (const { from, to, why } of FORBIDDEN) {
      const wrong = path.startsWith(from) ? targets.filter((target) => target.startsWith(to)) : [];
      found.push(...wrong.map((target) => `${path} imports ${target}: ${why}`));
    }
  }
  assertEquals(found, []);
});

/** Names that only some files of the language models may use. */
const OWNED = [
  {
    name: "the passes of steps are no part of mx.lm",
    code: /\bStepCache\b/,
    by: ["src/llm/decode/head.ts", "src/llm/decode/state.ts", "src/llm/kv/step_cache.ts"],
  },
  {
    name: "one file of a session writes its state and its cache",
    code:
      /\bKvCache\.\w+\(|\bwriteState\((?!(mask|ids|keyStates|drafted),)|\bcache\.(trim|advance|reserve|keep|fill|reset)\(/,
    in: "src/llm/decode/",
    by: ["src/llm/decode/device_state.ts"],
  },
] as const;

for (const { name, code, by, ...where } of OWNED) {
  Deno.test(name, async () => {
    const folder = "in" in where ? where.in : "src/llm/";
    assertEquals((await filesWith("src/llm", code)).filter((path) => path.startsWith(folder)).sort(), [...by]);
  });
}

Deno.test("each arrow is that of an import", async () => {
  const used = new Set(
    Array.from(await imports(), ([path, targets]) => targets.map((target) => `${roomOf(path)} to ${roomOf(target)}`))
      .flat(),
  );
  const arrows = Object.entries(ARROWS).flatMap(([from, targets]) => targets.map((to) => `${from} to ${to}`));
  assertEquals(arrows.filter((arrow) => !used.has(arrow)), []);
});

/** The files on a circle of these arrows, or between two. */
function circles(arrows: ReadonlyMap<string, readonly string[]>): string[] {
  const left = new Map(arrows);
  // A file that imports nothing that is left can be on no circle.
  for (let ends = [""]; ends.length > 0;) {
    ends = Array.from(left.keys()).filter((path) =>
      !left.get(path)!.some((target) => target !== path && left.has(target))
    );
    for (const path of ends) left.delete(path);
  }
  // And who is imported by nothing that is left neither.
  for (let starts = [""]; starts.length > 0;) {
    const imported = new Set(Array.from(left, ([path, targets]) => targets.filter((t) => t !== path)).flat());
    starts = Array.from(left.keys()).filter((path) => !imported.has(path));
    for (const path of starts) left.delete(path);
  }
  return Array.from(left.keys());
}

Deno.test("a circle is found, and what hangs on it is not", () => {
  const arrows = { top: ["a"], a: ["b"], b: ["c", "b"], c: ["a", "end"], end: [] };
  assertEquals(circles(new Map(Object.entries(arrows))).sort(), ["a", "b", "c"]);
});

Deno.test("files import each other in no circle", async () => {
  assertEquals(circles(await imports()), []);
});

/** The rooms of the C modules; build.zig compiles those. */
const C_ROOMS = {
  "runtime-c": ["", "device/", "plan/"],
  "runtime-c/wasm": ["", "attention/", "indexing/", "linalg/", "matmul/", "quantized/"],
} as const;

/** The C files and headers of a module with their text, without comments, by path from its folder. */
async function cFiles(folder: keyof typeof C_ROOMS): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const room of C_ROOMS[folder]) {
    for await (const { name } of Deno.readDir(`${ROOT}${folder}/${room}`)) {
      if (!/\.[ch]$/.test(name)) continue;
      const text = await Deno.readTextFile(`${ROOT}${folder}/${room}${name}`);
      files.set(room + name, text.replaceAll(/\/\*[^]*?\*\/|\/\/.*$/gm, ""));
    }
  }
  return files;
}

for (const folder of ["runtime-c", "runtime-c/wasm"] as const) {
  Deno.test(`modules of ${folder} include each other in no circle`, async () => {
    const files = await cFiles(folder);
    const arrows = new Map<string, string[]>();
    for (const [name, text] of files) {
      const module = name.replace(/\.[ch]$/, "");
      const included = Array.from(text.matchAll(/^\s*#\s*include\s+"([^"]+)"/gm), ([, path]) => path)
        .filter((path) => files.has(path)).map((path) => path.replace(/\.[ch]$/, ""));
      arrows.set(module, [...arrows.get(module) ?? [], ...included]);
    }
    assert(arrows.size > 10 && Array.from(arrows.values()).flat().length > 20, "no arrows were found");
    assertEquals(circles(arrows), []);
  });
}

// Without this, a function could be reached through the header of a module below the one that defines it.
Deno.test("functions of runtime-c are declared in the header of their module only", async () => {
  const files = await cFiles("runtime-c");
  const defined = new Map<string, string>();
  for (const [name, text] of files) {
    if (!name.endsWith(".c")) continue;
    for (const [, symbol] of text.matchAll(/^(?!static\b)[A-Za-z_]\w*[\w *]*?\b(\w+)\([^;{}]*\)\s*\{/gm)) {
      defined.set(symbol, name);
    }
  }
  assert(defined.size > 60, "no functions were found");
  const declared = new Set<string>();
  const wrong: string[] = [];
  for (const [name, text] of files) {
    for (
      const [, symbol] of text.matchAll(/^(?!typedef\b|static\b|return\b)[A-Za-z_]\w*[\w *]*?\b(\w+)\([^;{}]*\);/gm)
    ) {
      declared.add(symbol);
      const module = name === "vk_runtime.h" ? "exports.c" : name.replace(/h$/, "c");
      if (defined.get(symbol) !== module) {
        wrong.push(`${name} declares ${symbol} of ${defined.get(symbol) ?? "nowhere"}`);
      }
    }
  }
  assertEquals(wrong, []);
  assertEquals(Array.from(defined.keys()).filter((symbol) => !declared.has(symbol)), []);
});

// A name that deno.json's import map explains would be unknown where the package is imported by path or URL.
Deno.test("imports of other packages are written as npm: with a version or node:, never jsr:", async () => {
  const wrong: string[] = [];
  for (const [path, dependencies] of await moduleGraph("src/cli/mod.ts")) {
    for (const { specifier } of dependencies) {
      if (!/^(\.{1,2}\/|node:|npm:@?[^@]+@\d)/.test(specifier)) wrong.push(`${path} imports ${specifier}`);
    }
  }
  assertEquals(wrong, []);
});

/** Most files beside each other in a folder. */
const MAX_FILES = 25;

/** Folders with more than {@link MAX_FILES} files, themselves among `folder` and those in it. */
async function crowded(folder: string): Promise<string[]> {
  const entries = await Array.fromAsync(Deno.readDir(ROOT + folder));
  const inner = entries.filter(({ isDirectory }) => isDirectory).map(({ name }) => crowded(`${folder}/${name}`));
  const own = entries.filter(({ isFile }) => isFile).length > MAX_FILES ? [folder] : [];
  return [...own, ...(await Promise.all(inner)).flat()];
}

Deno.test(`no folder has more than ${MAX_FILES} files beside each other`, async () => {
  const folders = ["src", "ffi", "runtime-c", "shaders", "scripts", "tests", "docs", "examples"];
  const found = (await Promise.all(folders.map(crowded))).flat();
  // Inputs that broke a reader: fuzz adds a file for each.
  assertEquals(found.filter((folder) => folder !== "tests/golden/fuzz"), []);
});

/** What only the command line reaches. */
const PROGRAM = /^(src\/cli\/|src\/server\/|src\/mcp\/|ffi\/http\/)/;

Deno.test("the exports reach every module of src/ and ffi/, and mod.ts none of the command line and the server", async () => {
  const [library, all] = await Promise.all(EXPORTS.map(moduleGraph));
  const files = [...await sourceFiles("src"), ...await sourceFiles("ffi")];
  const unreached = files.filter((path) => !all.has(path));
  assertEquals(unreached.filter((path) => !path.startsWith("ffi/packaged/")), []); // by a variable, after a release was made here
  const missing = Array.from(all.keys()).filter((path) => !library.has(path));
  assertEquals(missing.filter((path) => !PROGRAM.test(path)), []);
  assertEquals(Array.from(library.keys()).filter((path) => PROGRAM.test(path)), []);
});

/** The files of a folder whose code, without comments, has `pattern` in it. */
async function filesWith(folder: string, pattern: RegExp): Promise<string[]> {
  const found: string[] = [];
  for (const path of await sourceFiles(folder)) {
    const text = await Deno.readTextFile(ROOT + path);
    if (pattern.test(text.replaceAll(/\/\*[^]*?\*\/|\/\/.*$/gm, ""))) found.push(path);
  }
  return found;
}

Deno.test("the Deno namespace stays in ffi/ and in the command line", async () => {
  const users = await filesWith("src", /\bDeno\.(?!customInspect)/);
  assertEquals(users.filter((path) => !path.startsWith("src/cli/")), []);
  assert((await filesWith("ffi", /\bDeno\.(?!customInspect)/)).length > 0);
});

const PRINTS = /\bconsole\./;
const AT_EXIT = /EventListener\(\s*["'`](before)?unload["'`]/;

Deno.test("arrays and the scheduler print nothing and listen to no end of the program", async () => {
  for (const folder of ["src/array", "src/schedule", "src/graph"]) {
    for (const pattern of [PRINTS, AT_EXIT]) assertEquals(await filesWith(folder, pattern), [], folder);
  }
  assert((await filesWith("src/backend", PRINTS)).includes("src/backend/explain.ts"));
  assertEquals([...await filesWith("src", AT_EXIT), ...await filesWith("ffi", AT_EXIT)], ["ffi/exit.ts"]);
});

/** The files of tests/ that some files import, directly or through others. */
async function testsReachedBy(files: readonly string[]): Promise<string[]> {
  const entry = await Deno.makeTempFile({ suffix: ".ts" });
  try {
    const lines = files.map((path) => `import ${JSON.stringify(new URL(`../${path}`, import.meta.url).href)};\n`);
    await Deno.writeTextFile(entry, lines.join(""));
    const reached = await moduleGraph(entry);
    assertEquals(files.filter((path) => !reached.has(path)), []);
    return Array.from(reached.keys()).filter((path) => path.startsWith("tests/"));
  } finally {
    await Deno.remove(entry);
  }
}

Deno.test("benchmarks import no tests, directly or through other files", async () => {
  const files = [...await sourceFiles("scripts/bench"), ...await sourceFiles("scripts/support")];
  assertEquals(await testsReachedBy(files), []);
  assert(
    (await testsReachedBy([...files, "tests/support/devices/exact.ts"])).includes("tests/support/devices/exact.ts"),
  );
  // scripts/parity.ts reads tables of tests, which is what the page that it writes is about.
  assert((await testsReachedBy(["scripts/parity.ts"])).includes("tests/ops/cases.ts"));
});
