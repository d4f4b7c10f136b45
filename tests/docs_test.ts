/** Names and quotes in documents are right. Their examples and commands run in docs_commands_test.ts. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../mod.ts";

const ROOT = new URL("../", import.meta.url);
const DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", ...filesOf("docs/")];

/** The documents of a folder. */
function filesOf(folder: string): string[] {
  const names = Array.from(Deno.readDirSync(new URL(folder, ROOT)), ({ name }) => name);
  return names.filter((name) => name.endsWith(".md")).map((name) => folder + name).sort();
}

/** A file of the repository. */
function read(path: string): string {
  return Deno.readTextFileSync(new URL(path, ROOT));
}

Deno.test("messages that docs/troubleshooting.md quotes are in the source", () => {
  const code = (path: string): string => read(path).replaceAll(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, "");
  const sources = everything().filter((path) => /^(src|ffi|runtime-c)\/.*\.(ts|c)$/.test(path)).map(code).join("\n");
  const first = Array.from(read("docs/troubleshooting.md").matchAll(/^\| `([^`]+)` /gm), ([, message]) => message);
  assert(first.length >= 12);
  assertEquals(first.filter((message) => !sources.includes(message)), []);
});

/** Every file and folder of the repository that git would hold, from the root on. */
function everything(folder = ""): string[] {
  return Array.from(Deno.readDirSync(new URL(folder || ".", ROOT))).flatMap(({ name, isDirectory }) => {
    if (name.startsWith(".") && name !== ".ci" || name === "zig-out") return [];
    const path = folder + name;
    return isDirectory ? [path, ...everything(`${path}/`)] : [path];
  });
}

/** Endings of the project's own files. */
const SOURCE = /\.(ts|c|h|comp|glsl|zig|zon|md|py|mjs)$/;

Deno.test("every path that a document names is there", () => {
  const paths = everything();
  const top = new Set(paths.filter((path) => !path.includes("/")));
  const missing: string[] = [];
  for (const document of DOCUMENTS) {
    const text = read(document).replaceAll(/^( *)```[^]*?^\1```$/gm, "");
    for (const [, named] of text.matchAll(/`([\w.*-]+(?:\/[\w.*-]+)*\/?)`/g)) {
      const path = named.replace(/\/$/, "");
      if (!SOURCE.test(path) && !(path.includes("/") && top.has(path.split("/")[0]))) continue;
      const pattern = new RegExp(
        `${path.includes("/") ? "^" : "(^|/)"}${path.replaceAll(".", "\\.").replaceAll("*", "[^/]*")}$`,
      );
      if (!paths.some((there) => pattern.test(there))) missing.push(`${document}: ${named}`);
    }
    for (const [, link] of text.matchAll(/\]\((?!https?:)([^)#]+)/g)) {
      const path = new URL(link, new URL(document, ROOT)).href.slice(ROOT.href.length);
      if (!paths.includes(path)) missing.push(`${document} links ${link}`);
    }
  }
  assertEquals(missing, []);
});

Deno.test("every task and export that a document names is there", () => {
  const tasks = Object.keys(JSON.parse(read("deno.json")).tasks);
  const missing: string[] = [];
  for (const document of DOCUMENTS) {
    const text = read(document).replaceAll(/^( *)```diff[^]*?^\1```$/gm, "");
    for (const [, task] of text.matchAll(/\bdeno task ([a-z:]+)/g)) {
      if (!tasks.includes(task)) missing.push(`${document}: deno task ${task}`);
    }
    if (document === "docs/mlx.md") continue; // names what MLX has
    for (const [, path] of text.matchAll(/\bmx((?:\.\w+)+)/g)) {
      let found: unknown = mx;
      for (const name of path.slice(1).split(".")) found = (found as Record<string, unknown> | undefined)?.[name];
      if (found === undefined) missing.push(`${document}: mx${path}`);
    }
  }
  assertEquals(missing, []);
});

/** Where variables are read. */
const SOURCES = /^(src|ffi|runtime-c|scripts|tests|examples)\/.*\.(ts|c)$/;

Deno.test("docs/variables.md lists the variables that programs read", () => {
  const listed = Array.from(read("docs/variables.md").matchAll(/^\| `(VKMX_\w+)/gm), ([, name]) => name);
  const found = new Set<string>();
  for (const path of everything()) {
    if (!SOURCES.test(path)) continue;
    for (const [, name] of read(path).matchAll(/(?:environment|env\.get|getenv)\(\s*"(VKMX_\w+)"/g)) {
      found.add(name);
    }
  }
  assert(found.size > 10);
  assertEquals(listed.toSorted(), Array.from(found).toSorted());
});
