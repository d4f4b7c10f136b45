/**
 * The template language beside Python's Jinja: published templates, pieces of the language, limits, and strings that remember who
 * wrote them.
 */

import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import type { ChatMessage, TextPart } from "../../../src/llm/chat/messages.ts";
import { type ChatOptions, loadChatTemplate, type TemplatePart } from "../../../src/llm/chat/template.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { compileTemplate } from "../../../src/llm/jinja/template.ts";
import { titled } from "../../../src/llm/jinja/strings.ts";
import { fromUser } from "../../../src/llm/jinja/input.ts";
import { Tokenizer } from "../../../src/llm/tokenizer/tokenizer.ts";
import { tinySource } from "../../support/models/models.ts";

/** The output of golden/templates/chat_templates.py: rows are conversation, option and text, or null where Jinja refuses. */
interface Golden {
  readonly conversations: readonly (readonly ChatMessage[])[];
  readonly options: readonly { add_generation_prompt: boolean; enable_thinking?: boolean; tools?: unknown[] }[];
  readonly templates: Readonly<
    Record<string, { readonly template: string; readonly rows: readonly [number, number, string | null][] }>
  >;
  readonly variables: Readonly<Record<string, unknown>>;
  readonly language: readonly (readonly [string, string | null])[];
}

const GOLDEN: Golden = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/templates/chat_templates.json", import.meta.url)),
);
const TOKENS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<think>", "</think>"];
const CONTEXT = { controlTokens: ["<s>"], variables: { bos_token: "<s>", eos_token: "</s>" } };
const USER: readonly ChatMessage[] = [{ role: "user", content: "a user's text <|im_end|>" }];

/** A template as that of a model. */
const sourcesOf = (text: string) => [{ name: "default", text, file: "config" }];

const textOf = (parts: readonly TemplatePart[]): string => parts.map((part) => part.text).join("");
/** Dates change from day to day. */
const undated = (text: string): string =>
  text.replace(/\d{4}-\d\d-\d\d/g, "<date>").replace(/\d\d? [A-Z][a-z]+ \d{4}/g, "<date>");

async function rendered(template: string, messages: readonly ChatMessage[] = USER, options: ChatOptions = {}) {
  return (await loadChatTemplate(sourcesOf(template), CONTEXT))!(messages, options);
}

/** The arguments of all calls of the conversations as json.dumps() writes them. */
const ARGUMENTS =
  '{"city": "Ulm", "days": 2, "step": 0.1, "exact": true, "none": null, "deep": {"a": [1, 2.5, "é\\"\\n😀"]}}';

/** A conversation as clients of the OpenAI API write it. */
function asClientsWrite(messages: readonly ChatMessage[]): ChatMessage[] {
  return messages.map(({ role, content, tool_calls: calls, ...more }) => ({
    ...more,
    role: role === "system" ? "developer" : role,
    ...(content !== undefined && { content: typeof content === "string" ? inParts(content) : content }),
    ...(calls && {
      tool_calls: calls.map((call) => {
        assertEquals(JSON.parse(ARGUMENTS), call.function!.arguments);
        return { ...call, function: { ...call.function!, arguments: ARGUMENTS } };
      }),
    }),
  }));
}

function inParts(content: string): TextPart[] {
  return [content.slice(0, 3), content.slice(3)].map((text) => ({ type: "text", text }));
}

for (const [name, { template, rows }] of Object.entries(GOLDEN.templates)) {
  Deno.test(`the template of ${name} renders as by Python's Jinja`, async () => {
    const render = await loadChatTemplate(sourcesOf(template), CONTEXT);
    let compared = 0;
    for (const [conversation, option, expected] of rows) {
      const { add_generation_prompt: addGenerationPrompt, enable_thinking: enableThinking, tools } =
        GOLDEN.options[option];
      const messages = GOLDEN.conversations[conversation];
      const run = (given = messages): string => textOf(render!(given, { addGenerationPrompt, enableThinking, tools }));
      if (expected !== null) {
        assertEquals(undated(run()), undated(expected), `conversation ${conversation}, option ${option}`);
        assertEquals(
          undated(run(asClientsWrite(messages))),
          undated(expected),
          `conversation ${conversation} of a client`,
        );
        compared++;
      } else if (messages.every((message) => typeof message.content === "string")) {
        // A content that is null may be refused by Jinja: templates get an empty text then.
        assertThrows(run, LlmError, "config: chat_template: line ");
      }
    }
    assert(compared >= 3, `${compared} texts compared`);
  });
}

Deno.test("pieces of the template language render as by Python's Jinja", () => {
  const size = { values: 0, chars: 0 };
  const variables = Object.fromEntries(Object.entries(GOLDEN.variables).map(([k, v]) => [k, fromUser(v, size)]));
  for (const [piece, expected] of GOLDEN.language) {
    const run = (): string => textOf(compileTemplate(piece).render(variables, size));
    if (expected === null) assertThrows(run, Error, undefined, piece);
    else assertEquals(run(), expected, piece);
  }
  assert(GOLDEN.language.length > 400);
});

Deno.test("markup is escaped for, and letters are capitalized, as by Python's Jinja", () => {
  const golden: { pieces: [string, string | null][]; capitals: [string, string][] } = JSON.parse(
    Deno.readTextFileSync(new URL("../../golden/templates/markup.json", import.meta.url)),
  );
  for (const [piece, expected] of golden.pieces) {
    const run = (): string => textOf(compileTemplate(piece).render({}, { values: 0, chars: 0 }));
    if (expected === null) assertThrows(run, Error, undefined, piece);
    else assertEquals(run(), expected, piece);
  }
  for (const [char, expected] of golden.capitals) assertEquals(titled(char), expected, char);
});

Deno.test("a template that is wrong is refused when it loads, with its file, line and what is wrong", async () => {
  for (
    const [template, message] of [
      ["a\n{% if %}", "line 2: expected an expression"],
      ["{{ x | nofilter }}", 'line 1: there is no filter "nofilter"'],
      ["{{ x is notest }}", 'line 1: there is no test "notest"'],
      ["{% include 'x' %}", 'line 1: the tag "include" is not supported in chat templates'],
      ["{% nothing %}", 'line 1: unknown tag "nothing"'],
      ["\n\n{% for x in y %}", "line 3: expected endfor or else, found the end of the template"],
      ["{{ 'a }}", `line 1: "'" is not expected here`],
      ["{% break %}", "line 1: break is not in a loop"],
      ["{{ (1 }}", "line 1: } closes what is not open"],
      ["{{ f(a=1, 2) }}", "line 1: the arguments of a call are in a wrong order"],
    ]
  ) {
    await assertRejects(
      () => loadChatTemplate(sourcesOf(template), CONTEXT),
      LlmError,
      `config: chat_template: ${message}`,
    );
  }
  const refuses = await loadChatTemplate(sourcesOf("\n{{ raise_exception('no\x1b[31m\n' * 100) }}"), CONTEXT);
  const error = assertThrows(() => refuses!(USER, {}), LlmError, 'line 2: the template refuses: "no\\u001b[31m\\n');
  assert(error.message.length < 300 && !error.message.includes("\n"));
});

const R = "range(300)";
const TOO_MUCH: Readonly<Record<string, string>> = {
  "nested ranges":
    `{% for a in ${R} %}{% for b in ${R} %}{% for c in ${R} %}{% for d in ${R} %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}`,
  "nested lists":
    "{% set l = [1] * 300 %}{% for a in l %}{% for b in l %}{% for c in l %}{% for d in l %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
  replace:
    "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x|replace('a', 'a' * 8) %}{% endfor %}",
  doubling: "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
  "doubled lists": "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
  "doubled nesting":
    "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
  "many large values": Array.from({ length: 5000 }, (_, i) => `{% set a${i} = 'x' * 4000000 %}`).join(""),
  "many large values that share a beginning": "{% set b = 'x' * 4000000 %}" +
    Array.from({ length: 5000 }, (_, i) => `{% set a${i} = b ~ '${i}' %}{{ 'z' in a${i} }}`).join(""),
  "times a million": "{{ 'x' * 1000000000 }}",
  "a list times a million": "{{ [1] * 1000000000 }}",
  percent: "{{ '%999999999d' % 1 }}",
  format: "{{ '{:999999999}'.format('a') }}",
  "format with brackets": "{{ ('{0' ~ '[' * 3000000 ~ '}').format(1) }}",
  center: "{{ 'a'|center(999999999) }}",
  indent: "{{ 'a\\nb'|indent(999999999) }}",
  ljust: "{{ 'a'.ljust(999999999) }}",
  join: "{{ ([1] * 500000)|join('x' * 1000) }}",
  batch: "{{ [1]|batch(999999999, 'x')|list }}",
  wordwrap: "{{ ('a ' * 2000000)|wordwrap(1) }}",
  split: "{{ ('x ' * 2000000).split() }}",
  tojson: "{{ ([1] * 400000)|tojson(indent=100) }}",
  "whole numbers": "{{ 2 ** 9999999999 }}",
  "recursion of a macro": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
  "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
  "recursion of a loop": "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
  "recursion of filters":
    "{% set ns = namespace(x=['a']) %}{% for i in range(90000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}",
  "a namespace in itself": "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
  parentheses: `{{ ${"(".repeat(100_000)}1${")".repeat(100_000)} }}`,
  signs: `{{ ${"-".repeat(200_000)}1 }}`,
  sums: `{{ 1${"+1".repeat(120_000)} }}`,
  attributes: `{{ a${".b".repeat(120_000)} }}`,
  blocks: "{% if 1 %}".repeat(25_000),
  "open tags": "{{".repeat(120_000),
  "a long number": `{{ ${"1".repeat(250_000)} }}`,
};

Deno.test("templates that take too much end soon in an error", async (t) => {
  for (const [name, template] of Object.entries(TOO_MUCH)) {
    await t.step(name, async () => {
      const before = performance.now();
      await assertRejects(() => rendered(template.slice(0, 262_144)), LlmError, "config: chat_template: line 1: ");
      const milliseconds = performance.now() - before;
      assert(milliseconds < 20_000, `${milliseconds} ms`);
    });
  }
});

Deno.test("long conversations stay within the limits", async () => {
  const { template } = GOLDEN.templates.Qwen3;
  const content = "word ".repeat(20);
  const messages = Array.from({ length: 10_000 }, (_, i): ChatMessage => {
    return i % 2 === 0 ? { role: "user", content } : { role: "assistant", content: `<think>x</think>${content}` };
  });
  assertEquals(textOf(await rendered(template, messages)).split("<|im_start|>").length, 10_002);
  const large = [{ role: "user" as const, content: "large ".repeat(700_000) }];
  assertStringIncludes(textOf(await rendered(GOLDEN.templates["Qwen2.5"].template, large)), large[0].content);
});

/** Templates that cut what users wrote and put it together again. */
const EDITING: readonly string[] = [
  "{{ messages[0].content.split('!')|join('') }}",
  "{{ messages[0].content|replace('!', '') }}",
  "{{ messages[0].content[::2] ~ messages[0].content[1::2] }}",
  "{% for c in messages[0].content %}{{ c }}{% endfor %}",
  "{{ messages[0].content|list|reverse|join|reverse }}",
  "{{ messages[0].content.replace('<', '<|').replace('>', '|>')|replace('||', '|') }}",
  "{% set ns = namespace(t='') %}{% for p in messages[0].content.split() %}{% set ns.t = ns.t + p %}{% endfor %}{{ ns.t }}",
  "{{ '%s%s'|format(messages[0].content[:3], messages[0].content[3:]) }}{{ '{}'.format(messages[0].content) }}",
  "{{ {messages[0].content: messages[0].content|upper|lower}|tojson }}{{ [messages[0].content] }}",
  "{% macro f(x) %}{{ x|trim|indent(0)|wordwrap(3, true, '') }}{% endmacro %}{{ f(messages[0].content) }}" +
  "{% filter replace('x', 'im') %}{{ messages[0].content }}{% endfilter %}{% set b %}{{ messages[0].content.swapcase().swapcase() }}{% endset %}{{ b.partition('!')|join }}",
];

/** Texts of pieces of control tokens; the same for the same seed. */
function* attempts(count: number): Generator<string> {
  const pieces = [
    ...TOKENS,
    "<",
    "|",
    "im",
    "_",
    "start",
    "end",
    ">",
    "!",
    "/",
    "s",
    "think",
    "<|x_end|>",
    " ",
    "x",
    "\n",
  ];
  pieces.push("<!|!i!m!_!e!n!d!|!>", ">|dne_mi|<", "< | i m _ e n d | >", "<im_end>", "😀");
  let seed = 1;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor(seed / 0x80000000 * below);
  };
  for (let i = 0; i < count; i++) {
    yield Array.from({ length: 1 + random(8) }, () => pieces[random(pieces.length)]).join("");
  }
}

Deno.test("what users write never becomes a control token, whatever a template does with it", async () => {
  const COUNT = Number(Deno.env.get("VKMX_FUZZ_TEXTS") ?? 500);
  const source = tinySource();
  for (const template of EDITING) {
    const tokenizer = await Tokenizer.load({ ...source, chatTemplate: template });
    let formed = 0;
    for (const content of attempts(COUNT)) {
      const messages = [{ role: "user" as const, content }];
      const ids = tokenizer.encodeChat(messages);
      const special = ids.filter((id) => tokenizer.isSpecial(id));
      assertEquals(special, [], `${JSON.stringify(content)} in ${template}`);
      const text = tokenizer.applyChatTemplate(messages);
      if (tokenizer.encode(text).some((id) => tokenizer.isSpecial(id))) formed++;
    }
    assert(formed > COUNT / 50, `${formed} texts hold control tokens in ${template}`);
  }
});

Deno.test("what the template writes stays its own, and grows together only where nothing of a user stood", async () => {
  const controls = async (template: string, content = "x"): Promise<string[]> => {
    const parts = await rendered(template, [{ role: "user", content }]);
    return parts.filter(({ control }) => control).map(({ text }) => text);
  };
  assertEquals(await controls("{{ '<s' ~ '>' }}{{ '<' }}s>"), ["<s><s>"]);
  assertEquals(await controls("{{ '<|' + messages[0].role + '|>' }}"), ["<|user|>"]);
  assertEquals(await controls("{{ ('<' ~ messages[0].content ~ 's>')|replace('x', '') }}"), ["<", "s>"]);
  assertEquals(await controls("<{{ messages[0].content }}s>", ""), ["<", "s>"]);
  assertEquals(await controls("{{ messages[0].content|replace('x', '<s>') }}", "axb"), ["<s>"]);
  assertEquals(await controls("{{ messages[0].content|replace('x', 's') }}", "<x>"), ["s"]);
  assertEquals(await controls("{{ ('<S>' ~ messages[0].content)|lower }}"), ["<s>"]);
  assertEquals(await controls("{{ ['<s>', messages[0].content]|join(' ') }}"), ["<s> "]);
  assertEquals(await controls("{{ messages[0].content }}{{ 5 }}{{ [1] }}{{ {'a': 1}|tojson }}"), ["a"]);
  assertEquals(await controls("{{ ('a' ~ messages[0].content).swapcase().title() }}", "bc"), []);
  assertEquals(
    await controls("{{ dict(**{messages[0].content: 1}) }}{{ namespace(**{messages[0].content: 1}) }}", "<s>"),
    [],
  );
  assertEquals(
    await controls("{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(**{messages[0].content: 1}) }}", "<s>"),
    [],
  );
  assertEquals(await controls("{{ 'a' in messages[0].content }}{{ messages[0].content == 'a' }}", "a"), []);
  assertEquals(await controls("{{ ('İ' ~ messages[0].content ~ 'ß')|lower|upper }}"), [
    "İ".toLowerCase().toUpperCase(),
    "SS",
  ]);
});

Deno.test("an unknown template is rendered where mod.ts is imported from another folder, without a configuration", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const source = tinySource();
    const read = (url: URL): string => `Deno.readFileSync(new URL(${JSON.stringify(String(url))}))`;
    const program = `
      import * as mx from ${JSON.stringify(String(new URL("../../../mod.ts", import.meta.url)))};
      const tokenizer = await mx.lm.Tokenizer.load({
        tokenizer: ${read(new URL("../../../examples/models/tiny-qwen3/tokenizer.json", import.meta.url))},
        chatTemplate: "{% for m in messages %}[{{ m.role }}] {{ m.content|upper }}{% endfor %}",
        dir: "tiny", vocabSize: ${source.vocabSize}, eosTokenIds: [],
      });
      console.log(tokenizer.applyChatTemplate([{ role: "user", content: "hi" }]));`;
    await Deno.writeTextFile(`${folder}/program.ts`, program);
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-config", "--no-lock", "--no-check", "--cached-only", "program.ts"],
      cwd: folder,
    }).output();
    const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
    assertEquals(text(stdout), "[user] HI\n", text(stderr));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
