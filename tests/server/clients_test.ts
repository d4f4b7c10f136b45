/**
 * Official clients: the snippets of docs/server.md, and programs with openai, @anthropic-ai/sdk and ai that use what users do. Each is a
 * process of its own, so that no client is a part of the tests.
 */

import { assert, assertEquals } from "@std/assert";
import { CLIENTS, needing } from "../support/needs.ts";
import { blocks, DOCUMENT, LOCAL, runProgram, startCaller as start } from "../support/server/client_programs.ts";
import { TINY } from "../support/server/served.ts";

Deno.test("the document names the clients that run here", () => {
  const named = new Set(DOCUMENT.match(/npm:@?[\w./-]+@[\d.]+/g));
  assertEquals([...named].sort(), [...CLIENTS].sort());
});

Deno.test({
  ...await needing("the snippets of the document for npm's clients answer", "npm clients"),
  fn: async () => {
    await using server = await start();
    const snippets = blocks("ts ignore");
    assertEquals(snippets.length, 4);
    for (const snippet of snippets) assert((await runProgram(snippet, server)).trim() !== "", snippet);
  },
});

Deno.test({
  ...await needing("the document's line for curl answers", "curl"),
  fn: async () => {
    await using server = await start();
    const line = blocks("sh").flatMap((block) => block.split("\n")).find((one) => one.startsWith("curl "))!;
    const { stdout } = await new Deno.Command("sh", { args: ["-c", line.replace(LOCAL, server.url)] }).output();
    assertEquals(JSON.parse(new TextDecoder().decode(stdout)).object, "chat.completion");
  },
});

const [OPENAI, ANTHROPIC, COMPATIBLE, AI, OLLAMA] = CLIENTS;

Deno.test({
  ...await needing("openai streams, calls functions, embeds, parses and raises its errors", "npm clients"),
  fn: async () => {
    await using server = await start();
    const output = await runProgram(
      `
import OpenAI from "${OPENAI}";
const client = new OpenAI({ baseURL: "${LOCAL}/v1", apiKey: "none", maxRetries: 0 });
const sum = { model: "${TINY}", messages: [{ role: "user", content: "What is 17 + 25?" }], temperature: 0, reasoning_effort: "none" };
const say = (value) => console.log(JSON.stringify(value));
const runner = client.chat.completions.stream(sum);
say((await runner.finalChatCompletion()).choices[0].message.content);
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" }, parse: JSON.parse, function: ({ city }) => "sunny in " + city } }];
say(await client.chat.completions.runTools({ model: "caller", messages: [{ role: "user", content: "Weather?" }], tools }).finalContent());
say((await client.embeddings.create({ model: "${TINY}", input: "a" })).data[0].embedding.length);
say((await client.completions.create({ model: "${TINY}", prompt: "Once upon a time", max_tokens: 3, temperature: 0 })).choices[0].text);
const response = await client.responses.create({ model: "${TINY}", input: "What is 17 + 25?", temperature: 0, reasoning: { effort: "none" } });
say(response.output_text);
const stream = client.responses.stream({ model: "${TINY}", input: "What is 17 + 25?", temperature: 0, reasoning: { effort: "none" } });
say((await stream.finalResponse()).output_text);
const ids = [];
for await (const model of client.models.list()) ids.push(model.id);
say(ids);
for (const body of [{ ...sum, model: "gpt-9" }, { ...sum, temperature: "hot" }]) {
  await client.chat.completions.create(body).catch((error) => say([error.constructor.name, error.status, error.code, error.param]));
}
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      "It is sunny in Paris.",
      256,
      ", there was",
      "The answer is 42.",
      "The answer is 42.",
      [TINY, "caller"],
      ["NotFoundError", 404, "model_not_found", "model"],
      ["BadRequestError", 400, "invalid_type", "temperature"],
    ]);
  },
});

Deno.test({
  ...await needing("@anthropic-ai/sdk streams, thinks, calls tools, counts and raises its errors", "npm clients"),
  fn: async () => {
    await using server = await start();
    const output = await runProgram(
      `
import Anthropic from "${ANTHROPIC}";
const client = new Anthropic({ baseURL: "${LOCAL}", apiKey: "none", maxRetries: 0 });
const say = (value) => console.log(JSON.stringify(value));
const sum = { model: "${TINY}", max_tokens: 99, temperature: 0, messages: [{ role: "user", content: "What is 17 + 25?" }] };
say(await client.messages.stream(sum).finalText());
const thought = await client.messages.stream({ ...sum, max_tokens: 400, thinking: { type: "enabled", budget_tokens: 1024 } }).finalMessage();
say(thought.content.map(({ type }) => type));
say((await client.messages.countTokens({ model: sum.model, messages: sum.messages })).input_tokens > 5);
const tools = [{ name: "weather", input_schema: { type: "object" } }];
const first = await client.messages.stream({ model: "caller", max_tokens: 99, tools, messages: [{ role: "user", content: "Weather?" }] }).finalMessage();
const use = first.content[0];
say([first.stop_reason, use.name, use.input]);
const messages = [
  { role: "user", content: "Weather?" },
  { role: "assistant", content: first.content },
  { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "rain" }] },
];
say((await client.messages.create({ model: "caller", max_tokens: 99, tools, messages })).content[0].text);
await client.messages.create({ ...sum, model: "claude" }).catch((error) => say([error.constructor.name, error.status, error.error.error.type]));
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      ["thinking", "text"],
      true,
      ["tool_use", "weather", { city: "Paris" }],
      "It is rain.",
      ["NotFoundError", 404, "not_found_error"],
    ]);
  },
});

Deno.test({
  ...await needing("ai streams text and reasoning, and runs tools", "npm clients"),
  fn: async () => {
    await using server = await start();
    const output = await runProgram(
      `
import { createOpenAICompatible } from "${COMPATIBLE}";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "${AI}";
const vkmx = createOpenAICompatible({ name: "vkmx", baseURL: "${LOCAL}/v1", includeUsage: true });
const say = (value) => console.log(JSON.stringify(value));
const stream = streamText({ model: vkmx("${TINY}"), prompt: "Hi what is your name", temperature: 0 });
let text = "";
for await (const piece of stream.textStream) text += piece;
say(text);
say([(await stream.reasoningText).length > 10, (await stream.usage).inputTokens > 5]);
const weather = tool({ inputSchema: jsonSchema({ type: "object" }), execute: ({ city }) => "sunny in " + city });
say((await generateText({ model: vkmx("caller"), prompt: "Weather?", tools: { weather }, stopWhen: stepCountIs(3) })).text);
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "I am Tiny Qwen, a demonstration model. I can tell short stories and answer simple questions.",
      [true, true],
      "It is sunny in Paris.",
    ]);
  },
});

Deno.test({
  ...await needing("ollama streams, thinks, calls functions, embeds, lists and raises its errors", "npm clients"),
  fn: async () => {
    await using server = await start();
    const output = await runProgram(
      `
import { Ollama } from "${OLLAMA}";
const client = new Ollama({ host: "${LOCAL}" });
const say = (value) => console.log(JSON.stringify(value));
const sum = { model: "${TINY}", messages: [{ role: "user", content: "What is 17 + 25?" }], think: false, options: { temperature: 0 } };
say((await client.chat(sum)).message.content);
let text = "";
for await (const part of await client.chat({ ...sum, stream: true })) text += part.message.content;
say(text);
const { message } = await client.chat({ ...sum, think: true, messages: [{ role: "user", content: "Hi what is your name" }] });
say([message.thinking.length > 0, message.content.length > 0]);
const tools = [{ type: "function", function: { name: "weather", description: "d", parameters: { type: "object", properties: {} } } }];
const messages = [{ role: "user", content: "Weather?" }];
const { message: call } = await client.chat({ model: "caller", messages, tools });
say(call.tool_calls[0].function);
messages.push(call, { role: "tool", tool_name: "weather", content: "rain" });
say((await client.chat({ model: "caller", messages, tools })).message.content);
say((await client.generate({ model: "${TINY}", prompt: "Once upon a time", raw: true, options: { num_predict: 3, temperature: 0 } })).response);
say((await client.embed({ model: "${TINY}", input: ["a", "b"] })).embeddings.map((row) => row.length));
say((await client.list()).models.map(({ name }) => name));
say((await client.show({ model: "${TINY}" })).details.family);
say((await client.ps()).models.length > 0);
say((await client.pull({ model: "${TINY}" })).status);
try {
  await client.chat({ ...sum, model: "elsewhere" });
} catch (error) {
  say([error.status_code, error.message]);
}
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      "The answer is 42.",
      [true, true],
      { name: "weather", arguments: { city: "Paris" } },
      "It is rain.",
      ", there was",
      [256, 256],
      [TINY, "caller"],
      "qwen3",
      true,
      "success",
      [404, 'There is no model "elsewhere": GET /v1/models lists all'],
    ]);
  },
});
