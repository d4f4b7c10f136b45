/** Drawn answers with calls in the formats of all families, in pieces of many sizes: the parts are those that were drawn. */

import { assert, assertEquals } from "@std/assert";
import type { CallFormatName } from "../../../src/llm/answer/call_formats.ts";
import { splitAnswer } from "../../../src/llm/answer/parser.ts";
import { thoughtMarks } from "../../../src/llm/chat/thoughts.ts";
import { type CallForm, callForm, schemaOf, WRITERS } from "../../support/oracles/call_forms.ts";
import { Draw } from "../../support/oracles/call_literals.ts";

/** Answers of each family. */
const COUNT = 200;
/** Answers of each family that come in pieces of all sizes; the size of the others goes from 1 up with their number. */
const ALL_SIZES = 1;

/** Tokens around the thoughts of the formats that do not write `<think>`. */
const THOUGHTS: Partial<Record<CallFormatName, readonly string[]>> = {
  mistral: ["[THINK]", "[/THINK]"],
  gemma4: ["<|channel>", "<channel|>"],
};

/** A function with the types of each call; functions of one name have one schema, of the last call that has an argument. */
function toolsOf({ calls }: CallForm): readonly unknown[] {
  return calls.map(({ name, arguments: given }) => ({
    type: "function",
    function: { name, parameters: { type: "object", properties: schemaOf(given) } },
  }));
}

/** The words of a text. */
const words = (text: string): string => text.trim().split(/\s+/).join(" ");

/** The parts of an answer in pieces whose sizes `next` gives. */
function partsOf(family: keyof typeof WRITERS, form: CallForm, next: () => number): unknown {
  const calls = family === "coder" ? "hermes" : family;
  const thoughts = thoughtMarks((token) => THOUGHTS[calls]?.includes(token) ?? false);
  const splitter = splitAnswer({ calls, thoughts, reasoning: true, thinking: false, tools: toolsOf(form) });
  let [text, reasoning] = ["", ""];
  const found: unknown[] = [];
  for (let at = 0; at < form.answer.length;) {
    const piece = form.answer.slice(at, at += next());
    const parts = splitter.push(piece, at >= form.answer.length);
    text += parts.text;
    reasoning += parts.reasoning;
    found.push(...parts.toolCalls.map(({ id, function: called }) => ({ ...called, ...(id !== undefined && { id }) })));
  }
  return { text: words(text), reasoning: words(reasoning), calls: found };
}

for (const family of Object.keys(WRITERS) as (keyof typeof WRITERS)[]) {
  Deno.test(`${COUNT} answers of ${family} have the parts that were drawn, in whatever pieces`, () => {
    let several = 0;
    for (let index = 0; index < COUNT; index++) {
      const form = callForm(family, index);
      const expected = { text: words(form.text), reasoning: words(form.reasoning), calls: form.calls };
      several += form.calls.length > 1 ? 1 : 0;
      const draw = new Draw(index + 1);
      const { length } = form.answer;
      const sizes = index < ALL_SIZES ? Array.from({ length }, (_, i) => i + 1) : [1, 2 + index % length, length];
      for (const next of [...sizes.map((size) => () => size), () => 1 + draw.below(9)]) {
        assertEquals(partsOf(family, form, next), expected, `${family} ${index}: ${form.answer}`);
      }
    }
    assert(several > COUNT / 4 || WRITERS[family].most === 1, "too few answers have several calls");
  });
}
