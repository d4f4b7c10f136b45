/**
 * Which files have prose, and the sentences in them.
 *
 * @module
 */

import { ROOT } from "../tools.ts";
import { markdownBlocks } from "./markdown.ts";
import { isSource, sourceBlocks } from "./source.ts";
import { type Sentence, sentencesOf } from "./text.ts";

/** Folders that are looked through, and documents at the root. */
export const PLACES = [
  ...["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "mod.ts", "build.zig", "docs", "examples"],
  ...["ffi", "runtime-c", "scripts", "shaders", "src", "tests"],
] as const;

/** Generated files, those whose text is that of others, and laboratory notes, which are not rewritten. */
const LEFT_OUT = new RegExp(
  "^(src/backend/kernels\\.ts|src/schedule/decoder/states\\.ts|ffi/symbols\\.ts|ffi/releases\\.ts|ffi/wasm_\\w*module\\.ts" +
    "|ffi/packaged/.*|docs/reliability\\.md|docs/images/.*|docs/lab/.*|tests/golden/.*|examples/(models|data)/.*|.*\\.zon)$",
);

/** Where string literals are messages. */
const WITH_MESSAGES = /^(mod\.ts|src|ffi|scripts|examples|runtime-c)/;

/** Whether a file is read. */
function isRead(path: string): boolean {
  return (path.endsWith(".md") || isSource(path)) && !LEFT_OUT.test(path);
}

/** The files with prose at a path or below it, sorted. */
export function proseFiles(path: string): string[] {
  const clean = path.replace(/\/$/, "");
  if (Deno.statSync(ROOT + clean).isFile) return isRead(clean) ? [clean] : [];
  return Array.from(Deno.readDirSync(ROOT + clean))
    .filter(({ name }) => !name.startsWith(".") && name !== "node_modules")
    .flatMap(({ name }) => proseFiles(`${clean}/${name}`)).sort();
}

/** The sentences of a file by its path, which says what its text is; not the table of words to avoid. */
export function sentencesIn(path: string, text: string): Sentence[] {
  if (path === "CONTRIBUTING.md") {
    text = text.replaceAll(/^\| not [^]*?\n(?=\n)/gm, (table) => table.replaceAll(/[^\n]/g, ""));
  }
  const blocks = path.endsWith(".md") ? markdownBlocks(text) : sourceBlocks(text, path, WITH_MESSAGES.test(path));
  return blocks.flatMap(sentencesOf);
}

/** Files and folders whose prose keeps the rules. The list only grows: what was mended is added. */
export const HELD = [
  ...["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs", "mod.ts"],
  ...["examples", "ffi"],
  ...["scripts/parity", "scripts/prose", "scripts/prose.ts", "scripts/reliability", "scripts/setup", "scripts/soak"],
  ...["scripts/bench/ops", "scripts/bench/train", "scripts/support", "scripts/tune"],
  ...[
    "src/array",
    "src/backend",
    "src/cli",
    "src/display",
    "src/graph",
    "src/nn",
    "src/notebook",
    "src/plot",
    "src/server",
  ],
  ...[
    "src/llm/answer",
    "src/llm/chat",
    "src/llm/checkpoint",
    "src/llm/config",
    "src/llm/convert",
    "src/llm/generation",
  ],
  ...["src/llm/hub", "src/llm/jinja", "src/llm/kv", "src/llm/layers", "src/llm/models", "src/llm/sampling"],
  ...["src/llm/structured", "src/llm/tokenizer", "src/llm/tuner"],
  ...["src/schedule/ops", "src/schedule/plan", "src/schedule/tuning"],
  ...["tests/_compat", "tests/kernels", "tests/llm/decode", "tests/notebook", "tests/optimizers", "tests/plot"],
  ...["tests/prose_test.ts", "tests/server", "tests/support"],
] as const;
