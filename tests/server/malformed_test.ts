/**
 * Requests that a generator damages: the server answers each with its own status, and goes on. The full tier sends 20,000, others a share.
 */

import { assert, assertEquals } from "@std/assert";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer } from "../support/server/served.ts";
import { SEED, TIER } from "../support/tier.ts";
import { hashOf } from "../../scripts/test/seed.ts";

const COUNT = TIER === "full" ? 20_000 : 1_000;
/** Requests that are on their way together. */
const TOGETHER = 8;

type Json = unknown;

const TOOL = { type: "function", function: { name: "f", description: "d", parameters: { type: "object" } } };

/** Bodies that are right, of which the generator damages parts. */
const BODIES: Readonly<Record<string, readonly Record<string, Json>[]>> = {
  "/v1/chat/completions": [
    {
      messages: [{ role: "system", content: "a" }, { role: "user", content: [{ type: "text", text: "b" }] }],
      n: 2,
      stream: true,
      seed: 1,
      stop: ["x"],
      logit_bias: { 5: 1 },
      max_tokens: 4,
    },
    {
      messages: [{
        role: "assistant",
        content: null,
        tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
      }, { role: "tool", tool_call_id: "1", content: "c" }],
      tools: [TOOL],
      tool_choice: "auto",
    },
    {
      messages: [{ role: "user", content: "a" }],
      response_format: { type: "json_schema", json_schema: { name: "n", schema: { type: "object" }, strict: true } },
      logprobs: true,
      top_logprobs: 2,
      stream_options: { include_usage: true },
      temperature: 0.5,
      top_p: 0.5,
    },
  ],
  "/v1/completions": [{ prompt: ["a", [1, 2]], max_tokens: 2, n: 2, echo: true, stream: true, logprobs: null }],
  "/v1/responses": [
    {
      input: [
        { type: "message", role: "user", content: [{ type: "input_text", text: "a" }] },
        { type: "reasoning", content: [{ text: "t" }] },
        { type: "function_call", call_id: "1", name: "f", arguments: "{}" },
        { type: "function_call_output", call_id: "1", output: "x" },
      ],
      tools: [{ type: "function", name: "f", parameters: {} }],
      text: { format: { type: "text" } },
      reasoning: { effort: "low" },
      stream: true,
    },
  ],
  "/v1/messages": [
    {
      max_tokens: 3,
      system: [{ type: "text", text: "s" }],
      messages: [{ role: "user", content: "a" }, {
        role: "assistant",
        content: [{ type: "tool_use", id: "1", name: "f", input: {} }],
      }, { role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: "r" }] }],
      tools: [{ name: "f", input_schema: {} }],
      tool_choice: { type: "auto" },
      thinking: { type: "enabled" },
      stream: true,
    },
  ],
  "/v1/messages/count_tokens": [{ messages: [{ role: "user", content: "a" }], system: "s" }],
  "/api/chat": [
    {
      model: "scripted",
      messages: [
        { role: "system", content: "s" },
        {
          role: "assistant",
          content: "",
          thinking: "t",
          tool_calls: [{ function: { name: "f", arguments: { a: 1 } } }],
        },
        { role: "tool", content: "1", tool_name: "f" },
        { role: "user", content: "a", images: [] },
      ],
      tools: [TOOL],
      format: { type: "object" },
      options: {
        num_predict: 3,
        temperature: 1,
        top_k: 3,
        stop: ["x"],
        repeat_penalty: 1.1,
        repeat_last_n: -1,
        seed: 1,
      },
      keep_alive: "5m",
      think: true,
      logprobs: true,
      top_logprobs: 2,
    },
    { messages: [{ role: "user", content: "a" }], stream: false },
  ],
  "/api/generate": [{ prompt: "a", system: "s", raw: true, suffix: "", format: "json", keep_alive: -1, stream: false }],
  "/api/show": [{ model: "scripted:latest" }],
  "/tokenize": [{ content: "a <|im_end|>", add_special: true, with_pieces: true }],
  "/detokenize": [{ tokens: [1, 2, 4000] }],
  "/apply-template": [{ messages: [{ role: "user", content: "a" }], chat_template_kwargs: { enable_thinking: false } }],
};

/** Values that stand in the place of others. */
const JUNK: readonly Json[] = [
  ...[null, true, false, 0, -1, 1.5, 1e308, 9007199254740993, "", "a", "\u0000", "\ud800", "__proto__", "<|im_end|>"],
  ...[
    [],
    {},
    [[]],
    [null],
    [{}],
    { type: null },
    { type: "text" },
    { type: "image_url" },
    { length: 1e9 },
    "x".repeat(5000),
  ],
  ...[new Array(300).fill("a"), { __proto__: null, constructor: 1 }, "NaN", "auto", [0, -1, 1e99], {
    a: { b: { c: [1, [2, [3]]] } },
  }],
];

/** Draws that repeat with their seed (mulberry32). */
function random(seed: number): () => number {
  return () => {
    seed = seed + 0x6d2b79f5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 2 ** 32;
  };
}

/** A body as text, damaged in one to three places. */
function damaged(body: Json, next: () => number): string {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)];
  const copy = structuredClone(body);
  for (let count = 1 + Math.floor(next() * 3); count > 0; count--) {
    const places: (readonly [holder: Record<string, Json>, key: string])[] = [];
    const walk = (value: Json): void => {
      if (typeof value !== "object" || value === null) return;
      for (const key of Object.keys(value)) {
        places.push([value as Record<string, Json>, key]);
        walk((value as Record<string, Json>)[key]);
      }
    };
    walk(copy);
    if (places.length === 0) break;
    const [holder, key] = pick(places);
    const kind = next();
    if (kind < 0.6) holder[key] = structuredClone(pick(JUNK));
    else if (kind < 0.75) delete holder[key];
    else if (kind < 0.9) holder[key] = [holder[key]];
    else holder[pick(["type", "role", "content", "model", "n", key.toUpperCase()])] = structuredClone(pick(JUNK));
  }
  const text = JSON.stringify(copy);
  if (next() > 0.1) return text;
  const at = Math.floor(next() * text.length);
  return next() < 0.5
    ? text.slice(0, at)
    : text.slice(0, at) + pick(["}", '"', "\\", "\u0000", "[".repeat(300), ","]) + text.slice(at);
}

Deno.test(`${COUNT} damaged requests have an answer each, and the server goes on`, async () => {
  const engine = new ScriptedEngine(() => [{ text: "a" }, { text: "b" }]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const next = random(hashOf(`malformed ${SEED}`));
  const cases = Object.entries(BODIES).flatMap(([path, bodies]) => bodies.map((body) => [path, body] as const));
  let [sent, refused] = [0, 0];
  const work = async (): Promise<void> => {
    while (sent++ < COUNT) {
      const [path, body] = cases[Math.floor(next() * cases.length)];
      const text = damaged(body, next);
      const response = await server.post(path, text);
      const reply = await response.text();
      const note = `${path} ${text.slice(0, 500)}: ${response.status} ${reply.slice(0, 300)}`;
      assert([200, 400, 404].includes(response.status), note);
      if (response.status === 200) continue;
      refused++;
      const { error } = JSON.parse(reply);
      const message = path.startsWith("/api/") ? error : error.message;
      assert(
        typeof message === "string" && message.length < 1000 && !/\n|\bat .*:\d+:\d+/.test(message),
        note,
      );
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, work));
  assert(refused > COUNT / 3 && refused < COUNT, `${refused} of ${COUNT} were refused`);
  assertEquals(engine.running, 0);
  const { choices } = await server.ask("/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
  assertEquals(choices[0].message.content, "ab");
});

Deno.test("what a message quotes of a request is short, whatever its length", async () => {
  const engine = new ScriptedEngine(() => [{ text: "a" }]);
  await using server = await TestServer.start({ engines: { scripted: () => engine } });
  const long = "x".repeat(5000);
  const chat = { messages: [{ role: "user", content: "a" }], tools: [TOOL] };
  const named = { type: "function", function: { name: long } };
  const wrong: readonly [path: string, body: Json][] = [
    ["/v1/chat/completions", { ...chat, tool_choice: long }],
    ["/v1/chat/completions", { ...chat, tool_choice: named }],
    ["/v1/chat/completions", { ...chat, modalities: [long] }],
    ["/v1/chat/completions", { ...chat, logit_bias: { [long]: 1 } }],
    ["/v1/responses", { input: "a", tool_choice: long }],
  ];
  for (const [path, body] of wrong) {
    const { status, ...response } = await refusal(server, path, body);
    assert(status === 400 && response.message.length < 1000, `${path} ${response.message.slice(0, 200)}`);
  }
});

async function refusal(server: TestServer, path: string, body: Json): Promise<{ status: number; message: string }> {
  const response = await server.post(path, JSON.stringify(body));
  return { status: response.status, message: (await response.json()).error.message };
}
