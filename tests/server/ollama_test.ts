/**
 * ollama's API: conversations and prompts on lines and as one object, options, thoughts, functions, forms, vectors, and models that
 * requests keep or unload.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { VERSION } from "../../ffi/version.ts";
import type { lm } from "../../mod.ts";
import { GOLDEN } from "../support/models/models.ts";
import { type Script, ScriptedEngine } from "../support/server/scripted_engine.ts";
import { ENGINE, TestServer, TINY } from "../support/server/served.ts";

const HI = [{ role: "user", content: "Hi what is your name" }];
const SUM = [{ role: "user", content: "What is 17 + 25?" }];
const [, THOUGHT, ANSWER] = /^<think>\n([^]*)\n<\/think>\n\n([^]*)<\|im_end\|>$/.exec(GOLDEN[3].text)!;
const STORY = GOLDEN[0].text.replace("<|endoftext|>", "");
const greedy = { options: { temperature: 0 } };
const whole = { ...greedy, stream: false };

/** A server whose model does what a script says, and the requests that it got. */
async function scripted(script: Script): Promise<{ server: TestServer; requests: lm.EngineRequest[] }> {
  const engine = new ScriptedEngine(script);
  return { server: await TestServer.start({ engines: { scripted: () => engine } }), requests: engine.requests };
}

Deno.test("a conversation is answered on lines and as one object, with thoughts, counts and durations", async () => {
  await using server = await TestServer.start();
  const body = { model: `${TINY}:latest`, messages: HI, ...greedy };
  const lines = await server.lines("/api/chat", body);
  const last = lines.pop();
  assert(lines.every(({ model, done, created_at }) => model === body.model && !done && Date.parse(created_at) > 0));
  const joined = (name: string): string => lines.map(({ message }) => message[name] ?? "").join("");
  assertEquals([joined("thinking"), joined("content")], [THOUGHT, ANSWER]);
  assertEquals(last.message, { role: "assistant", content: "" });
  const counts = ({ done, done_reason, prompt_eval_count, eval_count }: typeof last): unknown[] => [
    ...[done, done_reason, prompt_eval_count, eval_count],
  ];
  assertEquals(counts(last), [true, "stop", GOLDEN[3].ids.length, GOLDEN[3].greedy.length]);
  const durations = [last.load_duration, last.prompt_eval_duration, last.eval_duration];
  assert([last.total_duration, ...durations].every((n) => Number.isSafeInteger(n) && n >= 0));
  assert(durations.reduce((a, b) => a + b) <= last.total_duration + 3);

  const one = await server.ask("/api/chat", { ...body, stream: false });
  assertEquals(one.message, { role: "assistant", content: ANSWER, thinking: THOUGHT });
  assertEquals(counts(one), counts(last));
  const silent = await server.ask("/api/chat", { ...body, stream: false, think: false, messages: SUM });
  assertEquals(silent.message, { role: "assistant", content: "The answer is 42." });
});

Deno.test("a prompt is the message of a user, and raw ones are continued", async () => {
  await using server = await TestServer.start();
  const ask = async (body: Record<string, unknown>): Promise<unknown[]> => {
    const { response, thinking, done_reason } = await server.ask("/api/generate", { ...whole, ...body });
    return [response, thinking, done_reason];
  };
  assertEquals(await ask({ prompt: "What is 17 + 25?", think: false }), ["The answer is 42.", undefined, "stop"]);
  assertEquals(await ask({ prompt: HI[0].content }), [ANSWER, THOUGHT, "stop"]);
  assertEquals(await ask({ prompt: "Once upon a time", raw: true }), [STORY, undefined, "stop"]);
  const short = { prompt: "Once upon a time", raw: true, options: { temperature: 0, num_predict: 3 } };
  assertEquals(await ask(short), [", there was", undefined, "length"]);
  const lines = await server.lines("/api/generate", { ...short, stream: undefined });
  assertEquals(lines.map(({ response }) => response).join(""), ", there was");
  const until = { ...short, options: { temperature: 0, num_predict: -1, stop: [" was"] } };
  assertEquals(await ask(until), [", there", undefined, "stop"]);
});

Deno.test("options become those of the engine", async () => {
  const { server, requests } = await scripted(() => [{ text: "a" }]);
  await using _ = server;
  const ask = async (fields: Record<string, unknown>): Promise<lm.EngineRequest> => {
    await server.ask("/api/generate", { prompt: "Hi", stream: false, ...fields });
    return requests.at(-1)!;
  };
  const all = {
    ...{ temperature: 0.5, top_k: 9, top_p: 0.8, min_p: 0.1, seed: 7, stop: "x", num_predict: 5 },
    ...{ repeat_penalty: 1.3, repeat_last_n: 12, presence_penalty: 0.2, frequency_penalty: 0.3 },
    ...{ num_ctx: 4096, num_gpu: 1, mirostat: 0 }, // those of the machine are ignored
  };
  const { prompt, signal: _signal, maxTokens, ...found } = await ask({ options: all, system: "Be brief" });
  assertEquals(prompt, [{ role: "system", content: "Be brief" }, { role: "user", content: "Hi" }]);
  assertEquals([maxTokens, found], [5, {
    ...{ temp: 0.5, topK: 9, topP: 0.8, minP: 0.1, seed: 7, stop: ["x"] },
    ...{ repetitionPenalty: 1.3, repetitionContextSize: 12, presencePenalty: 0.2, frequencyPenalty: 0.3 },
  }]);
  const penalty = { repeat_penalty: 1.3 };
  const contexts: (number | undefined)[] = [];
  for (const last of [undefined, -1]) {
    contexts.push((await ask({ options: { ...penalty, repeat_last_n: last } })).repetitionContextSize);
  }
  assertEquals(contexts, [64, 2 ** 31 - 1]);
  assertEquals((await ask({ options: { ...penalty, repeat_last_n: 0 } })).repetitionPenalty, undefined);
  const effort = await ask({ think: "high" });
  assertEquals([effort.enableThinking, effort.chatTemplateKwargs], [true, { reasoning_effort: "high" }]);
  assertEquals((await ask({ think: false })).enableThinking, false);
  assertEquals((await ask({ format: "json" })).responseFormat, { type: "json_object" });
  assertEquals((await ask({ format: "" })).responseFormat, undefined);
  const schema = { type: "object", properties: { n: { type: "integer" } } } as const;
  assertEquals((await ask({ format: schema })).responseFormat, { type: "json_schema", schema });
});

Deno.test("an answer has the form of a schema, and its log probabilities", async () => {
  await using server = await TestServer.start();
  const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const body = { ...whole, messages: SUM, think: false, format: schema };
  const { message } = await server.ask("/api/chat", body);
  assert(Number.isInteger(JSON.parse(message.content).n), message.content);
  for (const [path, fields] of [["/api/chat", body], ["/api/generate", { prompt: "Hi", raw: true }]] as const) {
    const wrong = await server.post(path, { ...fields, format: { type: "nothing" }, stream: false });
    const { error } = await wrong.json();
    assertEquals([wrong.status, /^format: .*nothing/.test(error)], [400, true], error);
  }
  const { logprobs } = await server.ask("/api/chat", {
    ...{ ...whole, messages: SUM, think: false, logprobs: true, top_logprobs: 2 },
  });
  assertEquals(logprobs.map(({ token }: { token: string }) => token).join(""), "The answer is 42.");
  assertEquals(logprobs[0].top_logprobs.length, 2);
  assertEquals(logprobs[0].logprob, logprobs[0].top_logprobs[0].logprob);
});

Deno.test("functions are called, and their results go on with the conversation", async () => {
  const call = { function: { name: "weather", arguments: { city: "Paris", days: 2 } } };
  const { server, requests } = await scripted(({ prompt }) =>
    (prompt as { role: string }[]).at(-1)!.role === "tool" ? [{ text: "It rains." }] : [{ toolCalls: [call] }]
  );
  await using _ = server;
  const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];
  const messages: unknown[] = [{ role: "user", content: "Weather?" }];
  const [first, last] = await server.lines("/api/chat", { messages, tools });
  const { id, ...made } = first.message.tool_calls[0];
  assertEquals([made, last.done, last.done_reason], [call, true, "stop"]);
  assertEquals(requests[0].tools, tools as unknown as lm.EngineRequest["tools"]);
  // A client sends the message back as it came, and the result.
  messages.push(first.message, { role: "tool", content: "rain", tool_name: "weather" });
  const { message } = await server.ask("/api/chat", { messages, tools, stream: false });
  assertEquals(message.content, "It rains.");
  assertEquals((requests[1].prompt as unknown[]).slice(1), [
    { role: "assistant", content: "", tool_calls: [{ id, type: "function", ...call }] },
    { role: "tool", content: "rain", name: "weather" },
  ]);
});

Deno.test("vectors of texts have the length 1; the older endpoint gives them as they are", async () => {
  await using server = await TestServer.start();
  const texts = ["a cat", "the sea"];
  const { data } = await server.ask("/v1/embeddings", { input: texts });
  const raw = data.map(({ embedding }: { embedding: number[] }) => embedding);
  const unit = (vector: number[]): number[] => vector.map((value) => value / Math.hypot(...vector));
  const near = (a: number[][], b: number[][]): void => {
    assertEquals(a.map((row) => row.length), b.map((row) => row.length));
    a.forEach((row, i) => row.forEach((value, j) => assert(Math.abs(value - b[i][j]) < 1e-6, `${value} ${b[i][j]}`)));
  };
  const { embeddings, prompt_eval_count: count } = await server.ask("/api/embed", { input: texts });
  near(embeddings, raw.map(unit));
  assert(count > 0);
  const cut = await server.ask("/api/embed", { input: texts[0], dimensions: 8 });
  near(cut.embeddings, [unit(raw[0].slice(0, 8))]);
  near([(await server.ask("/api/embeddings", { prompt: texts[1] })).embedding], [raw[1]]);
  assertEquals((await server.ask("/api/embed", { input: [] })).embeddings, []);
});

Deno.test("models are listed and shown", async () => {
  await using server = await TestServer.start({ engines: { [TINY]: ENGINE, second: ENGINE } });
  const get = async (path: string): Promise<{ models: Record<string, unknown>[] }> =>
    await (await fetch(server.url + path)).json();
  const { models } = await get("/api/tags");
  assertEquals(models.map(({ name, model }) => [name, model]), [[TINY, TINY], ["second", "second"]]);
  const details = {
    ...{ parent_model: "", format: "safetensors", family: "qwen3", families: ["qwen3"] },
    ...{ parameter_size: "8.9M", quantization_level: "Q4" },
  };
  for (const { details: found, digest, size, modified_at: modified } of models) {
    assertEquals(found, details);
    assertMatch(digest as string, /^[0-9a-f]{64}$/);
    assert(size as number > 1e6 && Date.parse(modified as string) > 0);
  }
  const running = await get("/api/ps");
  assertEquals(running.models.map(({ name, context_length: length }) => [name, length]), [[TINY, 4096]]);
  const shown = await server.ask("/api/show", { model: TINY });
  assertEquals(shown.details, details);
  assertEquals(shown.capabilities, ["completion", "thinking"]);
  assert(shown.template.includes("<|im_start|>"));
  assertEquals(shown.model_info["general.parameter_count"], 8919296);
  assertEquals(shown.model_info["qwen3.context_length"], 4096);
  assertEquals(await (await fetch(`${server.url}/api/version`)).json(), { version: VERSION });
  assertEquals(await server.lines("/api/pull", { model: `${TINY}:latest` }), [{ status: "success" }]);
});

Deno.test("a request loads, keeps and unloads a model", async () => {
  await using server = await TestServer.start({ unloadAfterMs: 60_000 });
  const running = async (): Promise<unknown[]> => (await (await fetch(`${server.url}/api/ps`)).json()).models;
  const [{ expires_at: before }] = await running() as { expires_at: string }[];
  assert(Date.parse(before) < Date.now() + 61_000);
  const load = await server.ask("/api/generate", { model: TINY, stream: false, keep_alive: "1h30m" });
  assertEquals([load.response, load.done, load.done_reason], ["", true, "load"]);
  const [{ expires_at: after }] = await running() as { expires_at: string }[];
  assert(Math.abs(Date.parse(after) - Date.now() - 5_400_000) < 60_000, after);
  await server.ask("/api/chat", { messages: [], keep_alive: -1, stream: false });
  assertEquals((await running() as { expires_at: string }[])[0].expires_at, "9999-12-31T23:59:59Z");
  const end = await server.ask("/api/chat", { messages: [], keep_alive: 0, stream: false });
  assertEquals(end.done_reason, "unload");
  for (let i = 0; i < 500 && (await running()).length > 0; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  assertEquals(await running(), []);
  const again = await server.ask("/api/chat", { messages: [], keep_alive: 0, stream: false });
  assertEquals(again.done_reason, "unload"); // and nothing was loaded for it
  assertEquals(await running(), []);
});

Deno.test("errors have ollama's form, also on a line after others", async () => {
  const { server } = await scripted(async function* () {
    yield { text: "a" };
    yield { text: "b" };
    await Promise.resolve();
    throw new Error("broken");
  });
  await using _ = server;
  const wrong: readonly (readonly [string, unknown, number, RegExp])[] = [
    ["/api/chat", "{", 400, /no JSON/],
    ["/api/chat", { model: "elsewhere", messages: SUM }, 404, /There is no model "elsewhere"/],
    ["/api/chat", { messages: [{ role: "user", content: "x", images: ["aGk="] }] }, 400, /text only/],
    ["/api/chat", { messages: SUM, keep_alive: "soon" }, 400, /keep_alive is "soon", expected seconds or a duration/],
    ["/api/chat", { messages: SUM, format: "xml" }, 400, /format is "xml", expected "json" or a JSON schema/],
    ["/api/chat", { messages: SUM, think: "much" }, 400, /think is "much"/],
    ["/api/generate", { prompt: "x", suffix: "y" }, 400, /suffix is not supported/],
    ["/api/generate", { prompt: "x", context: [1] }, 400, /\/api\/chat takes the messages/],
    ["/api/embed", {}, 400, /input is missing/],
    ["/api/pull", { model: "llama3.2" }, 404, /There is no model/],
  ];
  for (const [path, body, status, message] of wrong) {
    const response = await server.post(path, body);
    const { error, ...rest } = await response.json();
    assertEquals([response.status, rest], [status, {}], path);
    assertMatch(error, message);
  }
  const lines = await server.lines("/api/chat", { messages: SUM });
  assertEquals([lines[0].message.content, lines.at(-1)], ["a", { error: "The server failed to answer this request" }]);
  assertEquals(server.errors.splice(0).map(String), ["Error: broken"]);
});
