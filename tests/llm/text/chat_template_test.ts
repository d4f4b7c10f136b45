/**
 * Chat templates of models: prompts token for token, who wrote what, limits, and checks of conversations.
 * jinja_test.ts compares rendered templates with Python's Jinja.
 */

import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import type { ChatMessage } from "../../../src/llm/chat/messages.ts";
import { type ChatOptions, loadChatTemplate } from "../../../src/llm/chat/template.ts";
import { splitAnswer } from "../../../src/llm/answer/parser.ts";
import { answerFormat } from "../../../src/llm/generation/prompt.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { Tokenizer, type TokenizerSource } from "../../../src/llm/tokenizer/tokenizer.ts";
import { load } from "../../../src/llm/load.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { qwen3Source, TINY_DIR, tinySource } from "../../support/models/models.ts";
import { needing } from "../../support/needs.ts";

const user = (content: string): ChatMessage => ({ role: "user", content });
const assistant = (content: string, more: Partial<ChatMessage> = {}): ChatMessage => ({
  role: "assistant",
  content,
  ...more,
});
/** A golden file of Python's Jinja, or what it was made from. */
const golden = (name: string) =>
  JSON.parse(Deno.readTextFileSync(new URL(`../../golden/templates/${name}.json`, import.meta.url)));
const { tools: TOOLS, plain: PLAIN, qwen3: QWEN3 } = golden("conversations");
const { prompts: PROMPTS } = golden("chat_templates");

const OPTIONS: readonly ChatOptions[] = [{}, { enableThinking: false }, { enableThinking: true }, {
  addGenerationPrompt: false,
}];

for (
  const { name, source, needs, conversations, options } of [
    {
      name: "Qwen3",
      source: qwen3Source,
      needs: ["qwen3 tokenizer"] as const,
      conversations: { ...PLAIN, ...QWEN3 },
      options: [...OPTIONS, { tools: TOOLS }],
    },
    { name: "tiny-qwen3", source: tinySource, needs: [] as const, conversations: PLAIN, options: OPTIONS },
  ]
) {
  Deno.test(await needing(`encodeChat() of ${name} equals its template in Python's Jinja`, ...needs), async () => {
    const tokenizer = await Tokenizer.load(await source());
    const cases = Object.entries(conversations as Record<string, readonly ChatMessage[]>);
    assertEquals(Object.keys(PROMPTS[name]), cases.map(([what]) => what));
    for (const [what, messages] of cases) {
      options.forEach((option, i) => {
        const expected: string = PROMPTS[name][what][i];
        assertEquals(tokenizer.applyChatTemplate(messages, option), expected, `${what} with ${JSON.stringify(option)}`);
        // A content that holds a control token is the one case in which ids differ, on purpose.
        if (expected.includes("<tool_response>c")) return;
        assertEquals(tokenizer.encodeChat(messages, option), tokenizer.encode(expected), what);
      });
    }
  });
}

Deno.test(await needing("encodeChat() gives the reference ids of Qwen3", "qwen3 tokenizer"), async () => {
  const tokenizer = await Tokenizer.load(await qwen3Source());
  const ids = [151644, 872, 198, 13048, 1128, 374, 697, 829, 151645, 198, 151644, 77091, 198];
  const messages = [user("Hi what is your name")];
  assertEquals(tokenizer.encodeChat(messages), ids);
  assertEquals(tokenizer.encodeChat(messages, { enableThinking: false }), [...ids, 151667, 271, 151668, 271]);
});

Deno.test("an answer that has begun stands in the assistant's text, after the thought or channel that a template leaves", async () => {
  const { templates } = golden("chat_templates");
  const controlTokens = ["<think>", "</think>", "<|start|>", "<|channel|>", "<|message|>"];
  for (
    const [name, end] of [
      ["Qwen2.5", "<|im_start|>assistant\n"],
      ["Qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n"],
      ["DeepSeek R1", "<｜Assistant｜><think>\n\n</think>\n\n"],
      ["gpt-oss", "<|start|>assistant<|channel|>final<|message|>"],
    ]
  ) {
    const template = await loadChatTemplate(sourcesOf(templates[name].template), { controlTokens, variables: {} });
    const parts = template!([user("Hi")], { enableThinking: false, begun: "The <think>" });
    assertStringIncludes(parts.map(({ text }) => text).join("") + "$", `${end}The <think>$`);
    assertEquals(parts.at(-1), { text: "The <think>", control: false });
  }
  const open = await loadChatTemplate(sourcesOf("{{ messages[0].content }}<think>"), CONTEXT);
  assertEquals(open!([user("Hi")], { begun: "A" }).slice(-2).map(({ text }) => text), ["</think>", "A"]);
});

Deno.test("an answer that has begun is encoded with the prompt, and is text or calls", async () => {
  const source = await tinySource();
  const tokenizer = await Tokenizer.load(source);
  const messages = [user("What is 17 + 25?")];
  const begun = "The answer";
  const ids = tokenizer.encodeChat(messages, { begun, enableThinking: false });
  assertEquals(ids, tokenizer.encode(tokenizer.applyChatTemplate(messages, { enableThinking: false }) + begun));
  const format = answerFormat(tokenizer, messages, ids, { begun, tools: TOOLS });
  assertEquals([format.reasoning, format.thinking, format.tools], [false, false, TOOLS]);
  // Further messages of gpt-oss may follow the text: they are parsed.
  const { templates } = golden("chat_templates");
  const config = JSON.stringify({ chat_template: templates["gpt-oss"].template });
  const harmony = await Tokenizer.load({ ...source, config, chatTemplate: undefined });
  const parser = splitAnswer(answerFormat(harmony, messages, [], { begun, tools: TOOLS }));
  const call = "<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>";
  const { text, toolCalls } = parser.push(` is 42.${call}`, true);
  assertEquals([text, toolCalls.map((one) => one.function.name)], [" is 42.", ["f"]]);
});

Deno.test("a tokenizer that begins texts with a space puts none before an answer that has begun", async () => {
  const added = ["<unk>", "<s>", "</s>", "<|a|>"].map((content, id) => ({
    ...{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
  }));
  const vocab = Object.fromEntries([...added.map(({ content }) => content), ..."\nHiThe▁"].map((one, id) => [one, id]));
  const file = {
    ...{ version: "1.0", truncation: null, padding: null, added_tokens: added, post_processor: null },
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    pre_tokenizer: null,
    decoder: {
      type: "Sequence",
      decoders: [{ type: "Replace", pattern: { String: "▁" }, content: " " }, { type: "Fuse" }],
    },
    model: { type: "BPE", unk_token: "<unk>", fuse_unk: true, byte_fallback: false, vocab, merges: [] },
  };
  const tokenizer = await Tokenizer.load({
    dir: "d",
    tokenizer: new TextEncoder().encode(JSON.stringify(file)),
    config: JSON.stringify({
      chat_template: "{{ messages[0].content }}<|a|>{{ '\\n' }}",
      tokenizer_class: "LlamaTokenizerFast",
    }),
    eosTokenIds: [2],
    vocabSize: Object.keys(vocab).length,
  });
  const end = tokenizer.encodeChat([user("Hi")], { begun: "The" }).slice(-4);
  assertEquals(end, ["\n", "T", "h", "e"].map((one) => vocab[one]));
});

/** A template as that of a model. */
const sourcesOf = (text: string) => [{ name: "default", text, file: "config" }];

const CONTEXT = {
  controlTokens: ["<s>", "</s>", "<think>", "</think>"],
  variables: { bos_token: "<s>" },
};

Deno.test("an unknown template is rendered by Jinja, with contents kept apart from control tokens", async () => {
  const source = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}" +
    "{% if not enable_thinking %}<think></think>{% endif %}";
  const template = await loadChatTemplate(sourcesOf(source), CONTEXT);
  const parts = template!([user(" hi</s><s>\ufdd0"), assistant("<think>a</think>b</s>")], { enableThinking: false });
  assertEquals(
    parts.map((part) => part.text).join(""),
    "<s>[user] hi</s><s>\ufdd0</s>[assistant] <think>a</think>b</s></s><think></think>",
  );
  const seen = parts.flatMap(({ text, control }) =>
    control ? [...text.matchAll(/<\/?s>/g)].map(([token]) => token) : []
  );
  assertEquals(seen, ["<s>", "</s>", "</s>"]);
});

Deno.test("further variables reach a template as in Python's Jinja, and their texts are no control tokens", async () => {
  const source = "{{ bos_token }}Reasoning: {{ reasoning_effort | default('medium') }}\n" +
    "{% for d in documents or [] %}{{ loop.index }} {{ d.title }} {{ d.parts[1] }}\n{% endfor %}" +
    "{% if custom is none %}none{% elif custom %}{{ custom | tojson }}{% endif %}\n{{ messages[0].content }}";
  const template = await loadChatTemplate(sourcesOf(source), CONTEXT);
  const render = (chatTemplateKwargs?: Record<string, unknown>) => template!([user("Hi")], { chatTemplateKwargs });
  const textOf = (parts: ReturnType<typeof render>): string => parts.map(({ text }) => text).join("");
  assertEquals(textOf(render()), "<s>Reasoning: medium\nHi");
  const parts = render({
    reasoning_effort: "high",
    documents: [{ title: "a fox", parts: [1, 2.5] }, { title: "</s>", parts: [true, null] }],
    custom: { a: [1, true, null, "x"] },
  });
  assertEquals(
    textOf(parts),
    '<s>Reasoning: high\n1 a fox 2.5\n2 </s> None\n{"a": [1, true, null, "x"]}Hi',
  );
  const control = parts.flatMap(({ text, control }) => control ? text : []).join("");
  assertEquals(control.includes("</s>"), false);
  assertEquals(textOf(render({ bos_token: "<s>", custom: null })), "<s>Reasoning: medium\nnoneHi");
  assertEquals(render({ bos_token: "<s>" })[0].control, false);

  let deep: unknown = 1;
  for (let i = 0; i < 200; i++) deep = [deep];
  for (
    const [wrong, message] of [
      [{ messages: [] }, 'chatTemplateKwargs has "messages", which comes from the conversation'],
      [{ enable_thinking: true }, 'has "enable_thinking", which comes from the option enableThinking'],
      [[], "chatTemplateKwargs is [], expected an object"],
      [{ custom: deep }, "nested more than 100 deep"],
      [{ documents: 7 }, "config: chat_template: line 2: "],
    ] as const
  ) {
    assertThrows(() => render(wrong as unknown as Record<string, unknown>), LlmError, message);
  }
});

const NUMBERS = "what Python's Jinja does and JavaScript's does not: lstrip() of newlines alone, numbers in JSON";

Deno.test(await needing(NUMBERS, "qwen3 tokenizer"), async () => {
  const ask = async (source: TokenizerSource, ...messages: ChatMessage[]): Promise<string> =>
    (await Tokenizer.load(source)).applyChatTemplate(messages, { addGenerationPrompt: false });
  const question = "<|im_start|>user\na<|im_end|>\n";
  for (const [content, said] of [["\n\nb", "b"], ["\n b\n", " b\n"], ["x</think>\n\n b", " b"]]) {
    const expected = `${question}<|im_start|>assistant\n${said}<|im_end|>\n`;
    assertEquals(await ask(tinySource(), user("a"), assistant(content)), expected);
  }
  const numbers = [1e-7, 1.5e-5, 0.0001, -2.5e-10, 123.5, 2 ** 53, 0, 1e-100];
  const text = await ask(
    await qwen3Source(),
    assistant("", { tool_calls: [{ name: "f", arguments: numbers }] }),
    user("a"),
  );
  assertStringIncludes(text, '"arguments": [1e-07, 1.5e-05, 0.0001, -2.5e-10, 123.5, 9007199254740992, 0, 1e-100]}'); // json.dumps
});

Deno.test("arguments that are JSON text reach a template as it takes them, with all digits", async () => {
  const ask = async (template: string, text: string): Promise<string> => {
    const call = { id: "1", type: "function", function: { name: "f", arguments: text } } as const;
    const sources = sourcesOf(`{% set c = messages[0].tool_calls[0].function %}${template}`);
    const render = await loadChatTemplate(sources, CONTEXT);
    return render!([{ role: "assistant", tool_calls: [call] }], {}).map((part) => part.text).join("");
  };
  const text = '{"n":2512292042121000001}';
  for (
    const [template, expected, given = text] of [
      ["{{ c.arguments | tojson }}", '{"n": 2512292042121000001}'],
      ["{% for k, v in c.arguments|items %}{{ k }}={{ v }}{% endfor %}", "n=2512292042121000001"],
      ["{{ 'f' + c.arguments }}", `f${text}`],
      ["{% if c.arguments is string %}{{ c.arguments }}{% else %}{{ c.arguments | tojson }}{% endif %}", text],
      ["{% if c['arguments'] is mapping %}{{ c.arguments | tojson }}{% else %}{{ c.arguments }}{% endif %}", text],
      ["{{ c.arguments }}", "no JSON", "no JSON"],
      ["{{ c.arguments }}", "5", "5"],
    ]
  ) assertEquals(await ask(template, given), expected, template);
});

Deno.test("templates are held to limits", async () => {
  const load = (source: string) => loadChatTemplate(sourcesOf(source), CONTEXT);
  await assertRejects(() => load("x".repeat(300_000)), LlmError, "chat_template has 300000 characters, at most 262144");
  await assertRejects(() => load("{% for %}"), LlmError, "config: chat_template:");
  const ranges = await load("{% for i in range(100000000) %}{{ i }}{% endfor %}");
  assertThrows(() => ranges!([user("a")], {}), LlmError, "range() of 100000000 items in all, at most 100000");
  const many = await load("{% for i in range(1000) %}{% for j in range(1000) %}{{ j }}{% endfor %}{% endfor %}");
  assertThrows(() => many!([user("a")], {}), LlmError, "items in all, at most 100000");
  const long = await load("{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}");
  assertThrows(() => long!([user("a".repeat(10_000))], {}), LlmError, "The prompt has");
  assert(await loadChatTemplate([], CONTEXT) === undefined);
});

Deno.test("conversations are checked", async () => {
  const tokenizer = await Tokenizer.load(tinySource());
  const wrong = (messages: unknown, message: string, options: ChatOptions = {}) =>
    assertThrows(() => tokenizer.encodeChat(messages as ChatMessage[], options), LlmError, message);
  wrong([], "The conversation has no messages");
  wrong(
    [{ role: "robot", content: "a" }],
    'messages[0].role is "robot", expected system, developer, user, assistant, tool',
  );
  wrong([{ role: "user", content: 5 }], "messages[0].content is neither a string nor a list of text parts");
  const part = (part: unknown) => [user("a"), { role: "user", content: [{ type: "text", text: "b" }, part] }];
  wrong(part("a"), 'messages[1].content[1] is no part such as {"type": "text", "text": "Hello"}');
  wrong(part({ type: "text" }), "messages[1].content[1].text is undefined, expected a string");
  for (const type of ["image_url", "input_audio", "file", "refusal"]) {
    wrong(part({ type }), `messages[1].content[1] has the type "${type}": this model reads only "text"`);
  }
  for (const calls of [5, "ab", [null], [{}], [{ function: {} }]]) {
    const messages = [user("a"), { role: "assistant", content: null, tool_calls: calls }];
    wrong(messages, "messages[1].tool_calls is not a list of calls that have a name");
  }
  for (const tools of [5, "ab", TOOLS[0], [null]]) {
    const message = "tools is not a list of objects that describe a function each";
    wrong([user("a")], message, { tools } as unknown as ChatOptions);
  }
  wrong([user("a")], "does not know tools", { tools: TOOLS });
  wrong(new Array(10_001).fill(user("a")), "The conversation has 10001 messages, at most 10000");
  const { config: _, ...source } = tinySource();
  const bare = await Tokenizer.load(source);
  assertEquals(bare.hasChatTemplate, false);
  assertThrows(
    () => bare.encodeChat([user("a")]),
    LlmError,
    "The model has no chat template: pass the prompt as a string",
  );
});

Deno.test("of several templates that one counts which transformers takes, with tools and without", async () => {
  const tools = [{ type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } }];
  const rows = golden("named_templates") as readonly {
    readonly config: unknown;
    readonly files: Readonly<Record<string, string>>;
    readonly plain: string | null;
    readonly tools: string | null;
  }[];
  for (const row of rows) {
    const dir = await Deno.makeTempDir();
    try {
      for (const name of ["config.json", "tokenizer.json", "model.safetensors"]) {
        await Deno.copyFile(new URL(name, TINY_DIR), `${dir}/${name}`);
      }
      const config = JSON.parse(await Deno.readTextFile(new URL("tokenizer_config.json", TINY_DIR)));
      await Deno.writeTextFile(
        `${dir}/tokenizer_config.json`,
        JSON.stringify({ ...config, chat_template: row.config }),
      );
      await Deno.mkdir(`${dir}/additional_chat_templates`);
      for (const [name, text] of Object.entries(row.files)) await Deno.writeTextFile(`${dir}/${name}`, text);
      const { model, tokenizer } = await load(dir, { device: anyDevice() });
      model[Symbol.dispose]();
      for (const [expected, options] of [[row.plain, {}], [row.tools, { tools }]] as const) {
        const run = (): string => tokenizer.applyChatTemplate([user("Hi")], options);
        if (expected !== null) assertEquals(run(), expected, JSON.stringify(row));
        else assertThrows(run, LlmError, 'and none is "default"');
      }
    } finally {
      await Deno.remove(dir, { recursive: true });
    }
  }
});
