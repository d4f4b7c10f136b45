/**
 * POST /v1/responses: items whole and streamed, conversations that go on, and what is kept.
 */

import { assert, assertEquals } from "@std/assert";
import type { lm } from "../../mod.ts";
import { ResponseStore } from "../../src/server/openai/response_store.ts";
import { GOLDEN } from "../support/models/models.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer, TINY } from "../support/server/served.ts";

const RESPONSES = "/v1/responses";
const [, THOUGHT, ANSWER] = /^<think>\n([^]*)\n<\/think>\n\n([^]*)<\|im_end\|>$/.exec(GOLDEN[3].text)!;
/** A page of items. */
interface Page {
  readonly object: string;
  readonly data: readonly (Readonly<Record<string, unknown>> & { readonly id: string })[];
  readonly first_id: string;
  readonly last_id: string;
  readonly has_more: boolean;
}

const HI = { input: "Hi what is your name", temperature: 0 };

Deno.test("a response has items of thoughts and text, and its events are numbered", async () => {
  await using server = await TestServer.start();
  const whole = await server.ask(RESPONSES, HI);
  const [thought, message] = whole.output;
  assertEquals([whole.object, whole.status, whole.model, whole.output.length], ["response", "completed", TINY, 2]);
  assertEquals([thought.type, thought.content], ["reasoning", [{ type: "reasoning_text", text: THOUGHT }]]);
  assertEquals([message.type, message.role, message.content], [
    "message",
    "assistant",
    [{ type: "output_text", text: ANSWER, annotations: [], logprobs: [] }],
  ]);
  assertEquals(whole.usage.input_tokens, GOLDEN[3].ids.length);
  assertEquals(whole.usage.output_tokens, GOLDEN[3].greedy.length);

  const events = await server.events(RESPONSES, HI);
  events.forEach(({ name, data }, i) => assertEquals([name, data.sequence_number], [data.type, i]));
  const kinds = events.map(({ data }) => data.type.replace("response.", "")).filter((type, i, all) =>
    type !== all[i - 1]
  );
  const item = (name: string): string[] => [
    ...["output_item.added", "content_part.added", `${name}.delta`, `${name}.done`],
    ...["content_part.done", "output_item.done"],
  ];
  assertEquals(kinds, ["created", "in_progress", ...item("reasoning_text"), ...item("output_text"), "completed"]);
  const text = events.filter(({ data }) => data.type === "response.output_text.delta").map(({ data }) => data.delta)
    .join("");
  assertEquals(text, ANSWER);
  const { response } = events.at(-1)!.data;
  const done = events.filter(({ data }) => data.type === "response.output_item.done").map(({ data }) => data.item);
  assertEquals(response.output, done);
  assertEquals(done.map(({ content }: { content: unknown }) => content), [thought.content, message.content]);
  const cut = await server.ask(RESPONSES, { ...HI, max_output_tokens: 3 });
  assertEquals([cut.status, cut.incomplete_details], ["incomplete", { reason: "max_output_tokens" }]);
  const silent = await server.ask(RESPONSES, {
    input: "What is 17 + 25?",
    temperature: 0,
    reasoning: { effort: "none" },
  });
  assertEquals(silent.output.map(({ content }: { content: [{ text: string }] }) => content[0].text), [
    "The answer is 42.",
  ]);
});

Deno.test("a response goes on from one that was kept, and not from others", async () => {
  const engine = new ScriptedEngine(({ tools }) =>
    tools
      ? [{ reasoning: "hm" }, { toolCalls: [{ function: { name: "f", arguments: { a: 1 } } }] }]
      : [{ text: "done" }]
  );
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const tools = [{ type: "function", name: "f", parameters: { type: "object" }, strict: true }];
  const first = await server.ask(RESPONSES, { input: "Call f", instructions: "Be brief", tools });
  const call = first.output[1];
  assertEquals([call.type, call.name, call.arguments, call.status], ["function_call", "f", '{"a":1}', "completed"]);
  assertEquals(engine.requests[0].tools, [{
    type: "function",
    function: { name: "f", parameters: { type: "object" } },
  }]);
  const second = await server.ask(RESPONSES, {
    previous_response_id: first.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "7" }],
    store: false,
  });
  const made = { id: call.call_id, type: "function", function: { name: "f", arguments: '{"a":1}' } };
  assertEquals(engine.requests[1].prompt as readonly lm.ChatMessage[], [
    { role: "user", content: "Call f" },
    { role: "assistant", content: "", reasoning_content: "hm", tool_calls: [made] } as lm.ChatMessage,
    { role: "tool", tool_call_id: call.call_id, content: "7" },
  ]);
  // The same conversation, sent whole: what the assistant thought and called is one message.
  await server.ask(RESPONSES, {
    input: [
      { role: "user", content: [{ type: "input_text", text: "Call f" }] },
      ...first.output,
      { type: "function_call_output", call_id: call.call_id, output: "7" },
    ],
  });
  assertEquals(engine.requests[2].prompt, engine.requests[1].prompt);
  assertEquals(await (await fetch(`${server.url}${RESPONSES}/${first.id}`)).json(), first);
  const gone = async (id: string): Promise<unknown[]> => {
    const response = await server.post(RESPONSES, { input: "x", previous_response_id: id });
    const { error } = await response.json();
    return [response.status, error.code, error.param];
  };
  const missing = [404, "response_not_found", "previous_response_id"];
  assertEquals(await gone(second.id), missing);
  const deleted = await fetch(`${server.url}${RESPONSES}/${first.id}`, { method: "DELETE" });
  assertEquals(await deleted.json(), { id: first.id, object: "response", deleted: true });
  assertEquals(await gone(first.id), missing);
});

Deno.test("a kept response lists the items that it was made from, in pages", async () => {
  const engine = new ScriptedEngine(({ tools }) =>
    tools ? [{ toolCalls: [{ function: { name: "f", arguments: { a: 1 } } }] }] : [{ text: "done" }]
  );
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const tools = [{ type: "function", name: "f", parameters: { type: "object" } }];
  const first = await server.ask(RESPONSES, { input: "Call f", tools });
  const [call] = first.output;
  const second = await server.ask(RESPONSES, {
    previous_response_id: first.id,
    input: [
      { type: "function_call_output", call_id: call.call_id, output: "7" },
      { role: "developer", content: "Be brief" },
      { type: "reasoning", content: [{ text: "hm" }] },
      { role: "assistant", content: [{ type: "output_text", text: "Yes?" }] },
      { type: "function_call", call_id: "call_x", name: "g", arguments: "{}" },
    ],
  });
  const list = async (query: string, id = second.id): Promise<{ readonly status: number; readonly body: Page }> => {
    const response = await fetch(`${server.url}${RESPONSES}/${id}/input_items${query}`);
    return { status: response.status, body: await response.json() };
  };
  const { body } = await list("?order=asc");
  const status = "completed";
  const output = { type: "output_text", text: "Yes?", annotations: [], logprobs: [] };
  assertEquals(body.data.map(({ id: _, ...item }) => item), [
    { type: "message", role: "user", content: [{ type: "input_text", text: "Call f" }], status },
    { type: "function_call", call_id: call.call_id, name: "f", arguments: '{"a":1}', status },
    { type: "function_call_output", call_id: call.call_id, output: "7", status },
    { type: "message", role: "developer", content: [{ type: "input_text", text: "Be brief" }], status },
    { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "hm" }], status },
    { type: "message", role: "assistant", content: [output], status },
    { type: "function_call", call_id: "call_x", name: "g", arguments: "{}", status },
  ]);
  assertEquals(body.data[1], call);
  const ids = body.data.map(({ id }) => id);
  assertEquals(new Set(ids).size, ids.length);
  assertEquals([body.object, body.first_id, body.last_id, body.has_more], ["list", ids[0], ids[6], false]);
  const page = async (query: string): Promise<unknown[]> => {
    const { data, has_more: more } = (await list(query)).body;
    return [data.map(({ id }) => ids.indexOf(id)), more];
  };
  assertEquals(await page(""), [[6, 5, 4, 3, 2, 1, 0], false]); // the last one first
  assertEquals(await page("?limit=3"), [[6, 5, 4], true]);
  assertEquals(await page(`?limit=3&after=${ids[4]}`), [[3, 2, 1], true]);
  assertEquals(await page(`?limit=2&after=${ids[4]}&order=asc`), [[5, 6], false]);
  for (const query of ["?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=msg_none"]) {
    assertEquals((await list(query)).status, 400, query);
  }
  assertEquals((await list("", "resp_none")).status, 404);
  const allow = async (path: string, method: string): Promise<unknown[]> => {
    const response = await fetch(`${server.url}${RESPONSES}/${path}`, { method });
    await response.body?.cancel();
    return [response.status, response.headers.get("allow")];
  };
  assertEquals(await allow(`${second.id}/input_items`, "DELETE"), [405, "GET"]);
  assertEquals(await allow("input_tokens", "GET"), [405, "POST"]);
  assertEquals(await allow(`${second.id}/none`, "GET"), [404, null]);
  const replayed = await fetch(`${server.url}${RESPONSES}/${second.id}?stream=true`);
  assertEquals([replayed.status, (await replayed.json()).error.param], [400, "stream"]);
});

Deno.test("the tokens of a response's input are counted as they are read", async () => {
  await using server = await TestServer.start();
  const { input } = HI;
  const count = async (body: Record<string, unknown>): Promise<number> => {
    const { object, input_tokens: tokens } = await server.ask(`${RESPONSES}/input_tokens`, body);
    assertEquals(object, "response.input_tokens");
    return tokens;
  };
  assertEquals(await count({ input }), GOLDEN[3].ids.length);
  const first = await server.ask(RESPONSES, { ...HI, max_output_tokens: 3 });
  const next = { previous_response_id: first.id, input: "And now?", instructions: "Be brief" };
  const second = await server.ask(RESPONSES, { ...next, temperature: 0, max_output_tokens: 1 });
  assertEquals(await count(next), second.usage.input_tokens);
  assert(await count({ previous_response_id: first.id }) > GOLDEN[3].ids.length);
  assert(await count({ instructions: "Be brief" }) > 0);
  const schema = { type: "json_schema", schema: { type: "object" } };
  const tools = [{ type: "function", name: "f" }];
  for (
    const fields of [
      { tool_choice: "required" },
      { tools, tool_choice: { type: "function", name: "g" } },
      { tools, tool_choice: "required", text: { format: schema } },
    ]
  ) {
    const replies = await Promise.all(
      [RESPONSES, `${RESPONSES}/input_tokens`].map(async (path) => {
        const response = await server.post(path, { input, ...fields });
        return [response.status, await response.json()];
      }),
    );
    assertEquals(replies[0][0], 400);
    assertEquals(replies[1], replies[0]);
  }
  const none = await server.post(`${RESPONSES}/input_tokens`, {});
  assertEquals([none.status, (await none.json()).error.param], [400, "input"]);
  const gone = await server.post(`${RESPONSES}/input_tokens`, { input, previous_response_id: "resp_none" });
  assertEquals([gone.status, (await gone.json()).error.param], [404, "previous_response_id"]);
});

Deno.test("some of the tools are allowed, and a refusal is what the assistant said", async () => {
  const engine = new ScriptedEngine(() => [{ text: "done" }]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const tools = ["f", "g"].map((name) => ({ type: "function", name, parameters: { type: "object" } }));
  const input = [
    { role: "user", content: "a" },
    { type: "message", role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
    { role: "user", content: "b" },
  ];
  const tool_choice = { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "g" }] };
  const reply = await server.ask(RESPONSES, { input, tools, tool_choice });
  assertEquals(reply.tool_choice, tool_choice); // as OpenAI's server shows it
  const named = { type: "function", name: "f" };
  for (const choice of [named, "none"]) {
    const shown = await server.ask(RESPONSES, { input, tools, tool_choice: choice });
    assertEquals(shown.tool_choice, choice);
  }
  const [{ prompt, tools: offered }] = engine.requests;
  assertEquals((prompt as lm.ChatMessage[])[1], { role: "assistant", content: "No." });
  assertEquals(offered?.map((tool) => (tool as { function: { name: string } }).function.name), ["g"]);
  for (
    const [choice, param] of [
      [{ type: "function" }, "tool_choice.name"],
      [
        { ...tool_choice, tools: [] },
        "tool_choice.tools",
      ],
      [{ type: "allowed_tools", mode: "auto" }, "tool_choice.tools"],
      [
        { type: "mcp", server_label: "x" },
        "tool_choice.type",
      ],
    ] as const
  ) {
    const response = await server.post(RESPONSES, { input: "x", tools, tool_choice: choice });
    assertEquals([response.status, (await response.json()).error.param], [400, param]);
  }
});

Deno.test("wrong fields are status 400, with the name of the field", async () => {
  await using server = await TestServer.start();
  const cases: readonly (readonly [body: Record<string, unknown>, param: string])[] = [
    [{}, "input"],
    [{ input: 5 }, "input"],
    [{ input: [{ type: "message", role: "user", content: [{ type: "input_image" }] }] }, "input[0].content[0]"],
    [{ input: [{ type: "item_reference", id: "x" }] }, "input[0]"],
    [{ input: "x", tools: [{ type: "web_search" }] }, "tools[0].type"],
    [{ input: "x", tool_choice: "all" }, "tool_choice"],
    [{ input: "x", background: true }, "background"],
    [{ input: "x", reasoning: { effort: 3 } }, "reasoning.effort"],
    [{ input: "x", text: { format: { type: "json_schema" } } }, "text.format.schema"],
    [{ input: "x", text: { format: { type: "json_schema", schema: { type: "nothing" } } } }, "text.format"],
  ];
  for (const [body, param] of cases) {
    const response = await server.post(RESPONSES, body);
    assertEquals([response.status, (await response.json()).error.param], [400, param]);
  }
});

Deno.test("the store drops the oldest responses when it is full", () => {
  const store = new ResponseStore(250);
  const stored = (text: string) => ({ response: { text }, messages: [], items: [] });
  for (const id of ["a", "b", "c"]) store.set(id, stored("x".repeat(80)));
  assertEquals(["a", "b", "c"].map((id) => store.get(id) !== undefined), [false, true, true]);
  store.set("huge", stored("x".repeat(300)));
  assertEquals(["b", "c", "huge"].map((id) => store.get(id) !== undefined), [true, true, false]);
  assert(store.delete("b") && !store.delete("b"));
  store.set("d", stored("x".repeat(80)));
  assertEquals(["c", "d"].map((id) => store.get(id) !== undefined), [true, true]);
});
