/** Text from files in messages: one line, short, nothing that a terminal obeys. */

import { assert, assertEquals } from "@std/assert";
import { quoted } from "../../../src/graph/error.ts";

Deno.test("quoted escapes what a terminal obeys", () => {
  assertEquals(quoted("a\n\x1b[31mb\x9b\u202e"), '"a\\n\\u001b[31mb\\u009b\\u202e"');
  assertEquals(quoted({ type: "x" }), '{"type":"x"}');
  assertEquals(quoted(undefined), "undefined");
});

Deno.test("quoted stays short", () => {
  for (const value of ["x".repeat(70_000), "\u0085".repeat(70_000), Array.from({ length: 70_000 }, () => 1)]) {
    assert(quoted(value).length <= 200);
    assert(quoted(value).endsWith("…"));
  }
  let nested: unknown = [];
  for (let i = 0; i < 100_000; i++) nested = [nested];
  assert(quoted(nested).length <= 200);
  assertEquals(quoted(1n), "1");
});
