/**
 * The import arrows: mod.ts -> llm -> array -> schedule -> backend -> ffi, with graph as the vocabulary of the upper ones.
 * Read from `deno info --json`, so type imports and dynamic imports count too.
 */

import { assert, assertEquals } from "@std/assert";
import { ROOT, run } from "../scripts/tools.ts";

/** What each layer may import besides itself. A layer is the longest of these names that a path starts with. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  "mod.ts": ["src/llm", "src/array", "src/graph"],
  "src/llm": ["src/array", "src/graph", "ffi/file.ts"],
  "src/array": ["src/schedule", "src/graph", "ffi/file.ts"],
  "src/schedule": ["src/backend", "src/graph", "ffi/file.ts"],
  "src/backend": ["src/graph", "ffi"],
  "src/graph": [],
  "ffi/file.ts": [],
  "ffi": [],
};

/** Where the Deno namespace may be used; everything else is plain web TypeScript. */
const USES_DENO = ["ffi/"];

interface Dependency {
  readonly specifier: string;
  readonly code?: { readonly specifier?: string };
  readonly type?: { readonly specifier?: string };
}

interface Module {
  readonly specifier: string;
  readonly dependencies?: readonly Dependency[];
}

/** Modules of the project that mod.ts reaches, by path from the root. */
async function moduleGraph(): Promise<Map<string, readonly Dependency[]>> {
  const info = await run([Deno.execPath(), "info", "--json", "mod.ts"]);
  const root = new URL("../", import.meta.url).href;
  const modules: readonly Module[] = JSON.parse(info.stdout).modules;
  const own = modules.filter(({ specifier }) => specifier.startsWith(root));
  assert(own.length > 1, "deno info found nothing that mod.ts imports");
  return new Map(own.map((m) => [m.specifier.slice(root.length), m.dependencies ?? []]));
}

function layerOf(path: string): string {
  const layer = Object.keys(ARROWS).find((name) => path === name || path.startsWith(`${name}/`));
  if (!layer) throw new Error(`${path} belongs to no layer`);
  return layer;
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
  const root = new URL("../", import.meta.url).href;
  const wrong: string[] = [];
  for (const [path, dependencies] of await moduleGraph()) {
    const layer = layerOf(path);
    for (const { specifier, code, type } of dependencies) {
      const target = code?.specifier ?? type?.specifier;
      if (!target?.startsWith(root)) continue;
      const to = layerOf(target.slice(root.length));
      if (to !== layer && !ARROWS[layer].includes(to)) wrong.push(`${path} imports ${specifier}`);
    }
  }
  assertEquals(wrong, []);
});

Deno.test("imports of other packages are npm: or node:, never jsr:", async () => {
  const wrong: string[] = [];
  for (const [path, dependencies] of await moduleGraph()) {
    for (const { specifier, code, type } of dependencies) {
      const target = code?.specifier ?? type?.specifier ?? specifier;
      if (!/^(file|npm|node):/.test(target)) wrong.push(`${path} imports ${specifier}`);
    }
  }
  assertEquals(wrong, []);
});

Deno.test("mod.ts reaches every module of src/ and ffi/", async () => {
  const reached = await moduleGraph();
  const files = [...await sourceFiles("src"), ...await sourceFiles("ffi")];
  assertEquals(files.filter((path) => !reached.has(path)), []);
});

Deno.test("the Deno namespace stays in ffi/", async () => {
  const wrong: string[] = [];
  for (const path of await sourceFiles("src")) {
    if (USES_DENO.some((allowed) => path.startsWith(allowed))) continue;
    const text = await Deno.readTextFile(ROOT + path);
    const code = text.replaceAll(/\/\*[^]*?\*\/|\/\/.*$/gm, "");
    if (/\bDeno\.(?!customInspect)/.test(code)) wrong.push(path);
  }
  assertEquals(wrong, []);
});
