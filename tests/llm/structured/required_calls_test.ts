/** Answers that have to call a tool, of a model and token by token. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { Constraint } from "../../../src/llm/structured/constraint.ts";
import { grammarOf } from "../../../src/llm/structured/response_format.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { invalid } from "../../support/oracles/json_validator.ts";
import { TINY_DIR } from "../../support/models/models.ts";

const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: anyDevice() });
const SIZE = model.config.vocabSize;
/** The tiny model's own template has no tools. */
const TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
  "{{ tools | tojson }}<|im_start|>assistant\n{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}";

const WEATHER = {
  type: "object",
  properties: { city: { type: "string", maxLength: 8 }, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const TOOLS = [
  { type: "function", function: { name: "weather", parameters: WEATHER } },
  { type: "function", function: { name: "now" } },
];
const MESSAGES = [{ role: "user", content: "Hi what is your name" }] as const;

Deno.test("a model that has to call does so, with arguments of the schema and one call if only one is wanted", async () => {
  const withTools = await tokenizerWith("<|im_start|>", TEMPLATE);
  for (const enableThinking of [false, true]) {
    for (const tools of [TOOLS, TOOLS.slice(0, 1)]) {
      const responseFormat = mx.lm.requireToolCalls(withTools, tools, { parallel: false });
      const options = { tools, responseFormat, enableThinking, maxTokens: 400, temp: 1, seed: 3 };
      const { text, toolCalls, finishReason, reasoning } = await mx.lm.complete(model, withTools, MESSAGES, options);
      assertEquals([text, finishReason, toolCalls.length], ["", "stop", 1]);
      if (!enableThinking) assertEquals(reasoning, "");
      const [{ function: { name, arguments: args } }] = toolCalls;
      if (name === "weather") assertEquals(invalid(WEATHER, args), undefined, JSON.stringify(args));
      else assertEquals([name, args], ["now", {}]);
      if (tools.length === 1) assertEquals(name, "weather");
    }
  }
  await model.traces.idle();
});

/** The tiny tokenizer with `<|im_start|>`, which is special, under another name. */
function tokenizerWith(mark: string, chatTemplate: string): Promise<mx.lm.Tokenizer> {
  const text = Deno.readTextFileSync(new URL("tokenizer.json", TINY_DIR)).replaceAll(
    '"<|im_start|>"',
    JSON.stringify(mark),
  );
  return mx.lm.Tokenizer.load({
    tokenizer: new TextEncoder().encode(text),
    chatTemplate,
    dir: "test",
    vocabSize: SIZE,
    eosTokenIds: [tokenizer.idOf("<|im_end|>")!],
  });
}

/** The ids of a mask. */
function idsIn(mask: Int32Array): number[] {
  return Array.from({ length: SIZE }, (_, id) => id).filter((id) => mask[id >> 5] >>> (id & 31) & 1);
}

Deno.test("a mark that is a control token comes as this token, and no other grammar allows it", async () => {
  const mistral = await tokenizerWith("[TOOL_CALLS]", "[TOOL_CALLS] [ARGS]");
  const mark = mistral.idOf("[TOOL_CALLS]")!;
  assert(mistral.isSpecial(mark));
  const format = mx.lm.requireToolCalls(mistral, TOOLS.slice(1));
  using constraint = (await Constraint.open(mistral, SIZE, grammarOf(format)))!;
  constraint.begin([], false);
  assertEquals(idsIn(await constraint.mask()), [mark]);
  constraint.accept(mark);
  // What is left has to be exactly this, up to another call.
  const rest = "now[ARGS]{}";
  let written = "";
  while (written !== rest) {
    const allowed = idsIn(await constraint.mask());
    const expected = Array.from({ length: SIZE }, (_, id) => id).filter((id) =>
      !mistral.isSpecial(id) && mistral.decode([id]) !== "" &&
      rest.slice(written.length).startsWith(mistral.decode([id]))
    );
    assertEquals(allowed, expected, written);
    const longest = expected.reduce((a, b) => mistral.decode([b]).length > mistral.decode([a]).length ? b : a);
    written += mistral.decode([longest]);
    constraint.accept(longest);
  }
  assertEquals(idsIn(await constraint.mask()), [mark, ...mistral.eosTokenIds].toSorted((a, b) => a - b));

  using free = (await Constraint.open(mistral, SIZE, grammarOf({ type: "regex", regex: "[^]*" })))!;
  free.begin([], false);
  assert(!idsIn(await free.mask()).includes(mark));
});
