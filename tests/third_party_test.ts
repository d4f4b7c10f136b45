/**
 * THIRD_PARTY.md says what is shipped and downloaded. Its versions are those of deno.json, deno.lock and the scripts.
 * Nothing depends on a registry's answer of the day.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { CLANG_FORMAT_VERSION } from "../scripts/clang_format.ts";
import { PEERS } from "../scripts/bench/compare.ts";
import { PACKAGES } from "../scripts/setup/glslc.ts";
import { NBCLIENT } from "../scripts/setup/nbclient.ts";
import { PYTHON_CLIENTS } from "../scripts/setup/python_clients.ts";
import { APT } from "../scripts/setup/packages.ts";
import { FILES } from "../scripts/synthetic/qwen3_tokenizer.ts";
import { SDK } from "../src/mcp/sdk.ts";
import { ROOT, ZIG_VERSION } from "../scripts/tools.ts";

const read = (path: string): string => Deno.readTextFileSync(`${ROOT}${path}`);
const CONFIG = JSON.parse(read("deno.json"));
const LOCK = JSON.parse(read("deno.lock"));

/** Rows of the table under a heading, as cells. */
function table(heading: string): string[][] {
  const section = read("THIRD_PARTY.md").split(/^## /m).find((text) => text.startsWith(heading))!;
  const lines = section.split("\n").filter((line) => line.startsWith("|")).slice(2);
  return lines.map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
}

/** "npm:@a/b@1.2.3/rest" and the like as name and version. */
function parse(specifier: string): { readonly name: string; readonly version: string; readonly from: string } {
  const [, from, name, version] = /^(npm|jsr):(@?[^@]+)@([^/]+)/.exec(specifier)!;
  return { name, version, from: from === "jsr" ? "JSR" : "npm" };
}

Deno.test("THIRD_PARTY.md lists every package of a registry in its exact version, and no other", () => {
  const used = [
    ...Object.values<string>(CONFIG.imports).map(parse),
    parse(FILES),
    ...Object.keys(LOCK.npm).map((key) => parse(`npm:${key.split("_")[0]}`)),
    ...Object.values(PEERS).map((peer) => ({
      name: peer.package as string,
      version: peer.version as string,
      from: "npm",
    })),
    { name: "ziglang", version: ZIG_VERSION, from: "PyPI" },
    { name: "clang-format", version: CLANG_FORMAT_VERSION, from: "PyPI" },
    ...[...NBCLIENT, ...PYTHON_CLIENTS].map((row) => ({ ...row, from: "PyPI" })),
  ];
  for (const { name, version } of used) assertMatch(version, /^\d+(\.\d+)+$/, `${name} has no exact version`);
  const listed = table("Packages of registries").map(([name, version, , from]) => ({ name, version, from }));
  const sorted = (rows: typeof listed): typeof listed => rows.toSorted((a, b) => a.name < b.name ? -1 : 1);
  const unique = [...new Map(used.map((row) => [`${row.from} ${row.name}@${row.version}`, row])).values()];
  assertEquals(sorted(listed), sorted(unique));
  for (const row of table("Packages of registries")) assert(row.every((cell) => cell !== ""), row[0]);
});

Deno.test("THIRD_PARTY.md lists every package that setup takes from apt, and no other", () => {
  const listed = table("Packages of Debian").map(([name]) => name);
  assertEquals(listed.toSorted(), [...new Set([...APT, ...PACKAGES])].sort());
});

Deno.test("the lock file is frozen, and knows what deno.json imports with its hashes", () => {
  assertEquals(CONFIG.lock, { path: "deno.lock", frozen: true });
  const wanted = Object.values<string>(CONFIG.imports).sort();
  assertEquals(LOCK.workspace?.dependencies?.toSorted() ?? [], wanted);
  for (const { name, version } of wanted.filter((specifier) => specifier.startsWith("npm:")).map(parse)) {
    assertMatch(LOCK.npm[`${name}@${version}`].integrity, /^sha512-/);
  }
  for (const { integrity } of Object.values<{ integrity: string }>(LOCK.npm)) assertMatch(integrity, /^sha512-/);
  assert(
    read("ffi/released_library.ts").includes(`"${CONFIG.imports["@denosaurs/plug"]}"`),
    "the plug of released_library.ts is another one",
  );
  assertEquals(SDK, CONFIG.imports["@modelcontextprotocol/client"]);
});

const PINNED = [["zig.txt", `ziglang==${ZIG_VERSION}`], ["clang_format.txt", `clang-format==${CLANG_FORMAT_VERSION}`]];
for (const [file, requirement] of PINNED) {
  Deno.test(`pip takes no other file for ${requirement} than those whose hashes are kept`, () => {
    const text = read(`scripts/setup/${file}`);
    const [first, ...hashes] = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    assertEquals(first, `${requirement} \\`);
    assert(hashes.length >= 10, "a hash for each platform");
    for (const line of hashes) assertMatch(line, /^ {4}--hash=sha256:[0-9a-f]{64}( \\)?$/);
    assertEquals(new Set(hashes).size, hashes.length);
  });
}
