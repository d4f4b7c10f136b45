/** Tests of what a machine may lack are skipped there, say why, and find that out in one way. */

import { assert, assertEquals } from "@std/assert";
import { ROOT, ZIG_VERSION } from "../scripts/tools.ts";
import { lack, needing } from "./support/needs.ts";
import { runCode } from "./support/processes/programs.ts";

Deno.test("a test of what is missing is skipped, and its name says why", async () => {
  const code = `
    import { lack, needing } from "./tests/support/needs.ts";
    console.log(JSON.stringify([await needing("it builds", "zig", "glslc"), await needing("it runs"), await lack("glslc")]));
  `;
  const env = { ZIG: "no-such-zig", GLSLC: "no-such-glslc" };
  const { code: status, stdout, stderr } = await runCode(code, env, ["-A", "--no-check"]);
  assertEquals(status, 0, stderr);
  const glslc = "glslc was not found";
  assertEquals(JSON.parse(stdout), [
    { name: `it builds (skipped: Zig ${ZIG_VERSION} was not found; ${glslc})`, ignore: true },
    { name: "it runs", ignore: false },
    ` (skipped: ${glslc})`,
  ]);
  assertEquals([await lack(), await needing("it runs")], ["", { name: "it runs", ignore: false }]);
});

/** Parts that a machine may lack, as tests ask for them. */
const NEEDED = /\bfindZig\(|\bprovideNbclient\(|\bprovidePythonClients\(|\bqwen3Source\b|\bvulkanKernel\(/;

/** All files of tests. */
async function testFiles(folder: string): Promise<string[]> {
  const files: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(ROOT + folder)) {
    const path = `${folder}/${name}`;
    if (isDirectory) files.push(...await testFiles(path));
    else if (name.endsWith("_test.ts")) files.push(path);
  }
  return files;
}

Deno.test("tests that need what a machine may lack ask tests/support/needs.ts", async () => {
  const found: string[] = [];
  const asking: string[] = [];
  for (const path of await testFiles("tests")) {
    if (path === "tests/needs_test.ts") continue;
    const text = await Deno.readTextFile(ROOT + path);
    if (NEEDED.test(text)) (/\b(needing|lack)\(/.test(text) ? asking : found).push(path);
  }
  assertEquals(found, []);
  assert(asking.length > 5, "tests that ask were not found");
});

/** Packages of npm, also by their names in deno.json. */
const PACKAGE = /^(npm:|@modelcontextprotocol\/)/;

/**
 * What a file imports whenever it is loaded, also by an import() that begins a line or a variable at top level. Types are left out, since nothing
 * is loaded for them. An import() deeper in a statement at top level is not found.
 */
function importsOf(text: string): string[] {
  const lines = text.matchAll(/^(?:import|export) (?!type\b)(?:[\w$\s{},*]+ from )?"([^"]+)"/gm);
  const awaited = text.matchAll(/^(?:(?:export )?(?:const|let|var) [\w$\s{},:*]+ = )?await import\(\s*"([^"]+)"/gm);
  return [...lines, ...awaited].map(([, specifier]) => specifier);
}

/** Adds the files that a file loads, itself among them, with the packages of npm that each imports. */
async function addLoaded(path: string, known: Map<string, readonly string[]>): Promise<void> {
  if (known.has(path)) return;
  const found = importsOf(await Deno.readTextFile(ROOT + path));
  known.set(path, found.filter((specifier) => PACKAGE.test(specifier)));
  for (const specifier of found.filter((one) => one.startsWith("."))) {
    await addLoaded(new URL(specifier, `file:///${path}`).pathname.slice(1), known);
  }
}

Deno.test("what a file loads is found", () => {
  const text = `
import a, { b } from "one";
import type { c } from "no-types";
export * from "two";
import "three";
const { d } = await import("four");
await import("five");
const later = () => import("not-yet");
Deno.test("name", async () => {
  const { e } = await import("in-a-test");
});`;
  assertEquals(importsOf(text), ["one", "two", "three", "four", "five"]);
});

Deno.test("a file of tests loads no package of npm before a test needs it", async () => {
  const packages = async (paths: readonly string[]): Promise<string[]> => {
    const known = new Map<string, readonly string[]>();
    for (const path of paths) await addLoaded(path, known);
    return [...known].flatMap(([file, names]) => names.map((name) => `${file} imports ${name}`));
  };
  const program = await packages(["tests/support/processes/mcp_program.ts"]);
  assertEquals(program.length, 2, "a program that imports a package twice");
  assertEquals(await packages(await testFiles("tests")), []);
});
