/**
 * Tests the fuzzer. It finds planted defects and shortens them, and the same seed gives the same inputs. Inputs that
 * failed before are read correctly. A small run over all formats finds nothing.
 */

import { assert, assertEquals } from "@std/assert";
import { bytesOf, mutateJson, treeOf } from "../scripts/fuzz/json.ts";
import { FORMATS } from "../scripts/fuzz/formats.ts";
import { Random } from "../scripts/fuzz/random.ts";
import { fuzz, replay } from "../scripts/fuzz/run.ts";
import { FORMATS as PLANTED } from "./support/planted/fuzz_planted.ts";

const MODULE = new URL("../scripts/fuzz/formats.ts", import.meta.url).href;
const FINDINGS = new URL("golden/fuzz", import.meta.url).pathname;

/** The fuzzer's name of each planted defect. */
const OUTCOMES: Readonly<Record<string, string>> = { bomb: "memory" };

Deno.test("the fuzzer finds every planted defect, makes it short and keeps it", async () => {
  const out = await Deno.makeTempDir();
  try {
    const module = new URL("support/planted/fuzz_planted.ts", import.meta.url).href;
    const limits = { hang: 1000, memory: 500e6 };
    const table = await fuzz({ module, formats: PLANTED, count: 5 * PLANTED.length, seed: "1", out, limits, kept: 1 });
    for (const { format, inputs, accepted, refused, findings } of table) {
      assertEquals(inputs, 5, format); // whatever hung or died, the next input was read
      const outcomes = new Set(findings.map(({ outcome }) => outcome));
      assertEquals([...outcomes], format === "none" ? [] : [OUTCOMES[format] ?? format], format);
      if (format === "none") assert(accepted > 0 && refused.get("LlmError config")! > 0);
      for (const { input, file } of findings) {
        assertEquals(new TextDecoder().decode(input), "!", format);
        assertEquals(await Deno.readFile(file!), input);
      }
    }
  } finally {
    await Deno.remove(out, { recursive: true });
  }
});

Deno.test("equal seeds give equal inputs, other seeds others", () => {
  for (const { name, generate, missing } of FORMATS) {
    if (missing || name === "pipelines") continue; // made from what this machine writes
    const inputs = (seed: string): string[] =>
      Array.from({ length: 20 }, (_, i) => generate(new Random(seed, name, i)).toBase64());
    assertEquals(inputs("a"), inputs("a"), name);
    assert(new Set([...inputs("a"), ...inputs("b")]).size > 30, `${name}: inputs are too much alike`);
  }
});

Deno.test("a tree of JSON is what JSON.parse reads, and mutations say what it cannot", () => {
  const value = { a: [1, "x", null, { b: [] }], c: true, "": { d: -1e-7 } };
  const tree = treeOf(value);
  assertEquals(JSON.parse(new TextDecoder().decode(bytesOf(tree))), value);
  const texts = Array.from(
    { length: 500 },
    (_, i) => new TextDecoder().decode(bytesOf(mutateJson(tree, new Random(i)))),
  );
  const valid = texts.filter((text) => {
    try {
      return JSON.parse(text) !== undefined;
    } catch {
      return false;
    }
  });
  assert(valid.length > 250 && valid.length < 490, `${valid.length} of 500 are valid`);
  assert(texts.some((text) => /"(\w)":.*"\1":/.test(text)), "no name occurs twice");
});

Deno.test("what the fuzzer found is accepted, or refused as it should be", async () => {
  const wrong: string[] = [];
  for await (const { file, answer: { outcome, detail } } of replay(FINDINGS, FORMATS, MODULE)) {
    if (outcome !== "ok" && outcome !== "refused") wrong.push(`${file}: ${outcome}, ${detail}`);
  }
  assertEquals(wrong, []);
});
