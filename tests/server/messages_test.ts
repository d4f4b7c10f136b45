/**
 * POST /v1/messages and count_tokens: blocks whole and streamed, tools, thoughts, and Anthropic's errors.
 */

import { assert, assertEquals } from "@std/assert";
import type { lm } from "../../mod.ts";
import { GOLDEN } from "../support/models/models.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer, TINY } from "../support/server/served.ts";

const MESSAGES = "/v1/messages";
const HI = [{ role: "user", content: "Hi what is your name" }];
const [, THOUGHT, ANSWER] = /^<think>\n([^]*)\n<\/think>\n\n([^]*)<\|im_end\|>$/.exec(GOLDEN[3].text)!;
const greedy = { temperature: 0, max_tokens: 200 };

Deno.test("a message has its thoughts and text as blocks, whole and streamed", async () => {
  await using server = await TestServer.start();
  const body = { model: TINY, messages: HI, ...greedy, thinking: { type: "enabled", budget_tokens: 1024 } };
  const { id, ...whole } = await server.ask(MESSAGES, body);
  assert(id.startsWith("msg_"));
  assertEquals(whole, {
    type: "message",
    role: "assistant",
    model: TINY,
    content: [{ type: "thinking", thinking: THOUGHT, signature: "" }, { type: "text", text: ANSWER }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: {
      input_tokens: GOLDEN[3].ids.length,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      output_tokens: GOLDEN[3].greedy.length,
    },
  });
  const events = await server.events(MESSAGES, body);
  for (const { name, data } of events) assertEquals(name, data.type);
  const kinds = events.map(({ data }) => data.type).filter((type, i, all) => type !== all[i - 1]);
  const block = ["content_block_start", "content_block_delta", "content_block_stop"];
  assertEquals(kinds, ["message_start", ...block, ...block, "message_delta", "message_stop"]);
  // The prompt was read before: all but its last token are kept, and count apart.
  const { input_tokens: read, cache_read_input_tokens: kept } = events[0].data.message.usage;
  assertEquals([read, kept], [1, GOLDEN[3].ids.length - 1]);
  const joined = (index: number, name: string): string =>
    events.filter(({ data }) => data.index === index).map(({ data }) => data.delta?.[name] ?? "").join("");
  assertEquals([joined(0, "thinking"), joined(1, "text")], [THOUGHT, ANSWER]);
  assertEquals(events.at(-2)!.data.delta, { stop_reason: "end_turn", stop_sequence: null });
});

Deno.test("without a wish for thoughts the model does not think; stops and limits have their reasons", async () => {
  await using server = await TestServer.start();
  const sum = { messages: [{ role: "user", content: "What is 17 + 25?" }], ...greedy };
  const ask = async (fields: Record<string, unknown>): Promise<unknown[]> => {
    const { content, stop_reason: reason, stop_sequence: found } = await server.ask(MESSAGES, { ...sum, ...fields });
    return [content[0].text, reason, found];
  };
  assertEquals(await ask({}), ["The answer is 42.", "end_turn", null]);
  assertEquals(await ask({ stop_sequences: ["zebra", " 42"] }), ["The answer is", "stop_sequence", " 42"]);
  assertEquals(await ask({ max_tokens: 2 }), ["The answer", "max_tokens", null]);
});

Deno.test("documents and results of searches are texts that stand by themselves; files and citations are refused", async () => {
  const engine = new ScriptedEngine(() => [{ text: "done" }]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const text = (said: string): Record<string, unknown> => ({ type: "text", text: said });
  const plain = { type: "text", media_type: "text/plain", data: "All of it." };
  const document = {
    type: "document",
    source: plain,
    title: "A title",
    context: "Of 2025",
    citations: { enabled: false },
  };
  const parts = { type: "document", source: { type: "content", content: [text("Be"), text("gin")] } };
  const result = { type: "search_result", source: "https://a", title: "Found", content: [text("This")] };
  const body = (content: unknown): Record<string, unknown> => ({ messages: [{ role: "user", content }], ...greedy });
  const empty = { type: "document", source: { type: "content", content: [] } };
  await server.ask(MESSAGES, body([text("Read "), text("both:"), document, empty, parts, empty, text("Why?"), empty]));
  const use = { type: "tool_use", id: "toolu_1", name: "f", input: {} };
  const given = { type: "tool_result", tool_use_id: "toolu_1", content: [text("One:"), result] };
  await server.ask(MESSAGES, {
    messages: [{ role: "user", content: "x" }, { role: "assistant", content: [use] }, {
      role: "user",
      content: [given],
    }],
    ...greedy,
  });
  const [read, found] = engine.requests.map(({ prompt }) => (prompt as lm.ChatMessage[]).at(-1));
  assertEquals(read, { role: "user", content: "Read both:\n\nA title\n\nOf 2025\n\nAll of it.\n\nBegin\n\nWhy?" });
  assertEquals(found, { role: "tool", tool_call_id: "toolu_1", content: "One:\n\nFound\n\nhttps://a\n\nThis" });
  for (
    const [wrong, at] of [
      [{ type: "document", source: { type: "base64", media_type: "application/pdf", data: "" } }, "source"],
      [{ type: "document", source: { type: "url", url: "https://a" } }, "source"],
      [{ type: "document", source: { ...plain, media_type: "text/html" } }, "source.media_type"],
      [{ type: "document" }, "source"],
      [{ ...document, citations: { enabled: true } }, "citations"],
    ] as const
  ) {
    const response = await server.post(MESSAGES, body([wrong]));
    const { error } = await response.json();
    assertEquals([response.status, error.type], [400, "invalid_request_error"]);
    assert(error.message.startsWith(`messages[0].content[0].${at} `), error.message);
  }
});

Deno.test("an answer goes on from a last message of the assistant", async () => {
  await using server = await TestServer.start();
  const [question] = [{ role: "user", content: "What is 17 + 25?" }];
  const begun = (content: unknown, fields: Record<string, unknown> = {}): Record<string, unknown> => ({
    messages: [question, { role: "assistant", content }],
    ...greedy,
    ...fields,
  });
  const { content: [{ text }], usage } = await server.ask(MESSAGES, begun([{ type: "text", text: "The answer" }]));
  assertEquals(text, " is 42.");
  const { input_tokens: counted } = await server.ask(`${MESSAGES}/count_tokens`, begun("The answer"));
  assertEquals(counted, usage.input_tokens + usage.cache_read_input_tokens);
  assertEquals((await server.ask(MESSAGES, begun(""))).content[0].text, "The answer is 42.");
  // Messages of one role after another are one.
  const halves = ["The", " answer"].map((content) => ({ role: "assistant", content }));
  const joined = await server.ask(MESSAGES, { messages: [question, ...halves], ...greedy });
  assertEquals(joined.content[0].text, " is 42.");
  assertEquals(joined.usage.input_tokens + joined.usage.cache_read_input_tokens, counted);
  const tools = [{ name: "f", input_schema: { type: "object" } }];
  // What is refused of an answer is counted all the same.
  for (const [content, fields] of [["The ", {}], ["The", { thinking: { type: "adaptive" } }]]) {
    const { messages } = begun(content);
    const { input_tokens: tokens } = await server.ask(`${MESSAGES}/count_tokens`, { messages, ...fields as object });
    assert(tokens > 0);
  }
  for (
    const [content, fields, says] of [
      ["The answer ", {}, "white space"],
      ["The", { tools, tool_choice: { type: "any" } }, "tool_choice"],
      ["The", { thinking: { type: "enabled", budget_tokens: 1024 } }, "thinking"],
      ["The", { output_config: { format: { type: "json_schema", schema: {} } } }, "output_config.format"],
    ] as const
  ) {
    const response = await server.post(MESSAGES, begun(content, fields));
    const { error } = await response.json();
    assertEquals([response.status, error.message.startsWith("messages[1]"), error.message.includes(says)], [
      400,
      true,
      true,
    ]);
  }
});

Deno.test("an answer that has begun may call functions, and messages need one of the user", async () => {
  const engine = new ScriptedEngine(() => [{ text: "done" }]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const tools = [{ name: "f", input_schema: { type: "object" } }];
  const users = ["Hi", "there"].map((content) => ({ role: "user", content }));
  const begun = { role: "assistant", content: "Let me" };
  await server.ask(MESSAGES, { messages: [...users, begun], tools, tool_choice: { type: "auto" }, ...greedy });
  const [request] = engine.requests;
  assertEquals([request.prompt, request.begun, request.tools?.length], [
    [{ role: "user", content: "Hi\n\nthere" }],
    "Let me",
    1,
  ]);
  for (const content of ["", "Hello"]) {
    const response = await server.post(MESSAGES, { messages: [{ role: "assistant", content }], ...greedy });
    assertEquals([response.status, (await response.json()).error.message], [
      400,
      "messages have none of the user: begin with one",
    ]);
  }
});

Deno.test("models and errors have Anthropic's form for its clients", async () => {
  await using server = await TestServer.start();
  const headers = { "anthropic-version": "2023-06-01" };
  const ask = async (path: string): Promise<unknown> => await (await fetch(`${server.url}${path}`, { headers })).json();
  const { created } = await (await fetch(`${server.url}/v1/models/${TINY}`)).json();
  const model = {
    type: "model",
    id: TINY,
    display_name: TINY,
    created_at: new Date(created * 1000).toISOString(),
  };
  assertEquals(await ask("/v1/models"), { data: [model], has_more: false, first_id: TINY, last_id: TINY });
  assertEquals(await ask(`/v1/models/${TINY}`), model);
  for (const path of ["/v1/models/none", "/v1/messages/batches"]) {
    const { type, error } = await ask(path) as { type: string; error: { type: string } };
    assertEquals([type, error.type], ["error", "not_found_error"]);
  }
});

Deno.test("Anthropic's clients get models in pages", async () => {
  const ids = ["a", "b/c", "d", "e"];
  const engines = Object.fromEntries(ids.map((id) => [id, () => new ScriptedEngine(() => [])]));
  await using server = await TestServer.start({ engines });
  const ask = async (query: string): Promise<[number, { data: { id: string }[]; has_more: boolean }]> => {
    const headers = { "anthropic-version": "2023-06-01" };
    const response = await fetch(`${server.url}/v1/models${query}`, { headers });
    return [response.status, await response.json()];
  };
  for (
    const [query, expected, more] of [
      ["", ids, false],
      ["?limit=2", ["a", "b/c"], true],
      ["?limit=2&after_id=b/c", ["d", "e"], false],
      ["?limit=2&before_id=e", ["b/c", "d"], true],
      ["?before_id=a", [], false],
    ] as const
  ) {
    const [, { data, has_more }] = await ask(query);
    assertEquals([data.map(({ id }) => id), has_more], [expected, more], query);
  }
  for (const query of ["?limit=0", "?limit=x", "?after_id=none"]) assertEquals((await ask(query))[0], 400);
});

Deno.test("no tokens have a prompt read, which the next message finds", async () => {
  await using server = await TestServer.start();
  const body = { messages: HI, ...greedy };
  const { content, stop_reason: reason, usage } = await server.ask(MESSAGES, { ...body, max_tokens: 0 });
  assertEquals([content, reason, usage.output_tokens, usage.cache_read_input_tokens], [[], "max_tokens", 0, 0]);
  const next = await server.ask(MESSAGES, { ...body, max_tokens: 1 });
  assertEquals(next.usage.cache_read_input_tokens, usage.input_tokens - 1);
  const format = { type: "json_schema", schema: { type: "object" } };
  const tools = [{ name: "f", input_schema: { type: "object" } }];
  for (
    const [fields, name] of [
      [{ stream: true }, "stream"],
      [{ thinking: { type: "enabled", budget_tokens: 1024 } }, "thinking"],
      [{ output_config: { format } }, "output_config.format"],
      [{ tools, tool_choice: { type: "any" } }, "tool_choice"],
    ] as const
  ) {
    const response = await server.post(MESSAGES, { ...body, max_tokens: 0, ...fields });
    const { error } = await response.json();
    assertEquals([response.status, error.type, error.message.includes(name)], [400, "invalid_request_error", true]);
  }
});

Deno.test("a message is JSON of the schema that output_config or output_format has", async () => {
  await using server = await TestServer.start();
  const schema = { type: "object", properties: { sum: { const: 42 } }, required: ["sum"] };
  const format = { type: "json_schema", schema };
  for (const fields of [{ output_config: { format, effort: "low" } }, { output_format: format }]) {
    const body = { messages: [{ role: "user", content: "What is 17 + 25?" }], ...greedy, ...fields };
    const { content: [{ text }], stop_reason: reason } = await server.ask(MESSAGES, body);
    assertEquals([JSON.parse(text), reason], [{ sum: 42 }, "end_turn"]);
  }
  const wrong = await server.post(MESSAGES, {
    messages: HI,
    max_tokens: 9,
    output_config: { format: { type: "xml" } },
  });
  assertEquals([wrong.status, /output_config.format.type/.test((await wrong.json()).error.message)], [400, true]);
  // Errors name the field that a client sent.
  const nothing = { type: "json_schema", schema: { type: "nothing" } };
  const tools = [{ name: "f", input_schema: { type: "object" } }];
  for (
    const [fields, says] of [
      [{ output_config: { format: nothing } }, /^output_config\.format: .*nothing/],
      [{ output_format: nothing }, /^output_format: .*nothing/],
      [{ output_config: { format }, tools, tool_choice: { type: "any" } }, /, and output_config\.format an answer/],
    ] as const
  ) {
    const response = await server.post(MESSAGES, { messages: HI, max_tokens: 9, ...fields });
    const { message } = (await response.json()).error;
    assertEquals([response.status, says.test(message)], [400, true], message);
  }
});

Deno.test("tokens are counted as a message reads them", async () => {
  await using server = await TestServer.start();
  const body = { system: [{ type: "text", text: "Be brief" }], messages: HI };
  const { input_tokens: counted } = await server.ask(`${MESSAGES}/count_tokens`, body);
  const { usage } = await server.ask(MESSAGES, { ...body, max_tokens: 1 });
  assertEquals(counted, usage.input_tokens);
});

Deno.test("tools are called, and results of tools become messages of their own", async () => {
  const engine = new ScriptedEngine(() => [
    { text: "Let me look." },
    { toolCalls: [{ function: { name: "weather", arguments: { city: "Paris" } } }] },
  ]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const schema = { type: "object", properties: { city: { type: "string" } } };
  const body = {
    max_tokens: 99,
    system: "Be brief",
    tools: [{ name: "weather", description: "d", input_schema: schema }],
    messages: [
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "" },
          { type: "text", text: "Looking." },
          { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Oslo" } },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: "rain" }] },
          { type: "text", text: "And Paris?" },
        ],
      },
    ],
  };
  const { content, stop_reason: reason, usage } = await server.ask(MESSAGES, body);
  assertEquals([content[0], content[1].name, content[1].input, reason], [
    { type: "text", text: "Let me look." },
    "weather",
    { city: "Paris" },
    "tool_use",
  ]);
  assertEquals([usage.input_tokens, usage.cache_read_input_tokens], [4, 3]); // of 7 tokens, 3 were not read again
  assertEquals(engine.requests[0].prompt as readonly lm.ChatMessage[], [
    { role: "system", content: "Be brief" },
    { role: "user", content: "Weather?" },
    {
      role: "assistant",
      content: "Looking.",
      reasoning_content: "hm",
      tool_calls: [{ id: "toolu_1", type: "function", function: { name: "weather", arguments: { city: "Oslo" } } }],
    },
    { role: "tool", tool_call_id: "toolu_1", content: "rain" },
    { role: "user", content: "And Paris?" },
  ]);
  assertEquals(engine.requests[0].tools, [
    { type: "function", function: { name: "weather", description: "d", parameters: schema } },
  ]);
  const events = await server.events(MESSAGES, body);
  const start = events.find(({ data }) => data.type === "content_block_start" && data.index === 1)!.data.content_block;
  assertEquals([start.type, start.name, start.input], ["tool_use", "weather", {}]);
  const json = events.map(({ data }) => data.delta?.partial_json ?? "").join("");
  assertEquals(json, '{"city":"Paris"}');
});

Deno.test("errors have Anthropic's form", async () => {
  await using server = await TestServer.start({ apiKey: "k" });
  const ask = async (fields: Record<string, unknown>, key = "k"): Promise<unknown[]> => {
    const body = { messages: HI, max_tokens: 1, ...fields };
    const response = await server.post(MESSAGES, body, { headers: { "x-api-key": key } });
    const { type, error } = await response.json();
    assertEquals(type, "error");
    return [response.status, error.type];
  };
  assertEquals(await ask({}, "wrong"), [401, "authentication_error"]);
  assertEquals(await ask({ model: "claude" }), [404, "not_found_error"]);
  assertEquals(await ask({ max_tokens: null }), [400, "invalid_request_error"]);
  assertEquals(await ask({ messages: [{ role: "user", content: [{ type: "image", source: {} }] }] }), [
    400,
    "invalid_request_error",
  ]);
});
