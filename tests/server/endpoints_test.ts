/**
 * The endpoints around answers: models, embeddings, tokens, templates, metrics.
 */

import { createHash } from "node:crypto";
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import * as mx from "../../mod.ts";
import { GOLDEN } from "../support/models/models.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer, TINY } from "../support/server/served.ts";

Deno.test("models are listed and shown", async () => {
  const engine = new ScriptedEngine(() => []);
  await using server = await TestServer.start({ engines: { [TINY]: () => engine, "org/other": () => engine } });
  const { object, data } = await (await fetch(`${server.url}/v1/models`)).json();
  assertEquals([object, data.map(({ id }: { id: string }) => id)], ["list", [TINY, "org/other"]]);
  const shown = await (await fetch(`${server.url}/v1/models/org/other`)).json();
  assertEquals(shown, { id: "org/other", object: "model", created: data[1].created, owned_by: "vkmx" });
});

Deno.test("the chat page needs no key and has a policy", async () => {
  await using server = await TestServer.start({ apiKey: "secret" });
  const response = await fetch(`${server.url}/`);
  assertEquals([response.status, response.headers.get("content-type")], [200, "text/html; charset=utf-8"]);
  const page = await response.text();
  const policy = response.headers.get("content-security-policy") ?? "";
  for (const element of ["script", "style"]) {
    const text = page.slice(page.indexOf(`<${element}>`) + element.length + 2, page.lastIndexOf(`</${element}>`));
    assertStringIncludes(policy, `${element}-src 'sha256-${createHash("sha256").update(text).digest("base64")}'`);
  }
  const refused = await fetch(`${server.url}/v1/models`);
  assertEquals([refused.status, (await refused.json()).error.code], [401, "invalid_api_key"]);
});

Deno.test("embeddings are those of the library, as numbers and in base64", async () => {
  await using server = await TestServer.start();
  const input = ["a cat", "a kitten on a mat"];
  const { data, usage, object, model: id } = await server.ask("/v1/embeddings", { input });
  assertEquals([object, id, data.map(({ index }: { index: number }) => index)], ["list", TINY, [0, 1]]);
  const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device: "cpu" });
  using _ = model;
  const tokens = input.reduce((sum, text) => sum + tokenizer.encode(text).length, 0);
  assertEquals(usage, { prompt_tokens: tokens, total_tokens: tokens });
  using vectors = await mx.lm.embed(model, tokenizer, input);
  assertEquals(data.map(({ embedding }: { embedding: number[] }) => embedding), vectors.tolist());
  assertAlmostEquals(data[0].embedding.reduce((sum: number, x: number) => sum + x * x, 0), 1, 1e-5);
  const coded = await server.ask("/v1/embeddings", { input: input[0], encoding_format: "base64" });
  const bytes = Uint8Array.from(atob(coded.data[0].embedding), (char) => char.charCodeAt(0));
  assertEquals([...new Float32Array(bytes.buffer)], data[0].embedding);
  const size = data[0].embedding.length;
  assertEquals((await server.ask("/v1/embeddings", { input: "a", dimensions: size })).data.length, 1);

  const wrong: readonly (readonly [fields: Record<string, unknown>, param: string])[] = [
    [{ input: "a", dimensions: 64 }, "dimensions"],
    [{ input: [] }, "input"],
    [{ input: ["a", ""] }, "input"],
    [{ input: [1, 2] }, "input"],
    [{ input: [[1]] }, "input"],
    [{ input: "a", encoding_format: "hex" }, "encoding_format"],
    [{}, "input"],
  ];
  for (const [fields, param] of wrong) {
    const response = await server.post("/v1/embeddings", fields);
    assertEquals([response.status, (await response.json()).error.param], [400, param]);
  }
  const long = await server.post("/v1/embeddings", { input: "x ".repeat(5000) });
  assertEquals([long.status, (await long.json()).error.code], [400, "context_length_exceeded"]);
});

Deno.test("embeddings count in the queue", async () => {
  const engine = ({ model, tokenizer }: mx.lm.Loaded): mx.lm.Engine =>
    new mx.lm.Engine(model, tokenizer, { maxSequences: 1, maxQueue: 0 });
  await using server = await TestServer.start({ engines: { [TINY]: engine } });
  const gone = new AbortController();
  const endless = { prompt: "Hi", max_tokens: 4000, logit_bias: { 4089: -100, 4091: -100 }, stream: true };
  const stream = await server.post("/v1/completions", endless, { signal: gone.signal });
  const full = await server.post("/v1/embeddings", { input: "a" });
  const { error } = await full.json();
  assertEquals([full.status, error.code, full.headers.get("retry-after")], [503, "server_busy", "1"]);
  gone.abort();
  await stream.text().catch(() => {});
});

Deno.test("texts become ids and back, and a conversation its prompt", async () => {
  await using server = await TestServer.start();
  const { prompt, ids } = GOLDEN[3];
  assertEquals(await server.ask("/tokenize", { content: prompt }), { tokens: ids });
  assertEquals(await server.ask("/detokenize", { tokens: ids }), { content: prompt });
  const pieces = await server.ask("/tokenize", { content: "Hi 你", with_pieces: true });
  assertEquals(pieces.tokens[0], { id: 996, piece: "Hi" });
  const plain = await server.ask("/tokenize", { content: "<|im_end|>", parse_special: false });
  assert(plain.tokens.length > 1);
  const messages = [{ role: "user", content: "Hi what is your name" }];
  assertEquals(await server.ask("/apply-template", { messages }), { prompt });
  assertEquals(await server.ask("/apply-template", { messages, add_generation_prompt: false }), {
    prompt: prompt.replace("<|im_start|>assistant\n", ""),
  });
  const silent = await server.ask("/apply-template", { messages, chat_template_kwargs: { enable_thinking: false } });
  assertEquals(silent.prompt, `${prompt}<think>\n\n</think>\n\n`);
  for (
    const [path, body, param] of [["/tokenize", {}, "content"], ["/detokenize", { tokens: [-1] }, "tokens[0]"]] as const
  ) {
    const response = await server.post(path, body);
    assertEquals([response.status, (await response.json()).error.param], [400, param]);
  }
});

Deno.test("further variables and the effort reach the template by every way of a conversation", async () => {
  const folder = await Deno.makeTempDir();
  for (const { name } of Deno.readDirSync(mx.lm.EMBEDDED_MODEL)) {
    await Deno.copyFile(new URL(name, mx.lm.EMBEDDED_MODEL), `${folder}/${name}`);
  }
  await Deno.writeTextFile(
    `${folder}/chat_template.jinja`,
    "{{ reasoning_effort }}|{{ place }}|{{ messages | length }}{% if add_generation_prompt %}<|im_start|>{% endif %}",
  );
  try {
    const engine = new ScriptedEngine(() => [{ text: "a" }]);
    await using server = await TestServer.start({ directory: folder, engines: { [TINY]: () => engine } });
    const messages = [{ role: "user", content: "Hi" }];
    const kwargs = { chat_template_kwargs: { place: "<|im_end|>" } };
    const body = { messages, reasoning_effort: "low", ...kwargs };
    const { prompt } = await server.ask("/apply-template", body);
    assertEquals(prompt, "low|<|im_end|>|1<|im_start|>");
    const { tokens } = await server.ask("/tokenize", body);
    const { tokens: text } = await server.ask("/tokenize", { content: "low|<|im_end|>|1", parse_special: false });
    const { tokens: start } = await server.ask("/tokenize", { content: "<|im_start|>" });
    assertEquals([tokens, start.length], [[...text, ...start], 1]);
    assertEquals(await server.ask("/tokenize", { ...body, add_generation_prompt: false }), { tokens: text });

    const given = (): unknown => engine.requests.at(-1)!.chatTemplateKwargs;
    await server.ask("/v1/chat/completions", body);
    assertEquals(given(), { reasoning_effort: "low", place: "<|im_end|>" });
    await server.ask("/v1/chat/completions", {
      messages,
      reasoning_effort: "low",
      chat_template_kwargs: { reasoning_effort: 3 },
    });
    assertEquals(given(), { reasoning_effort: 3 });
    await server.ask("/v1/chat/completions", { messages, chat_template_kwargs: { enable_thinking: null } });
    assertEquals([given(), engine.requests.at(-1)!.enableThinking], [undefined, undefined]);
    await server.ask("/v1/responses", { input: "Hi", reasoning: { effort: "high" } });
    assertEquals([given(), engine.requests.at(-1)!.enableThinking], [{ reasoning_effort: "high" }, true]);
    for (
      const [path, body, param] of [
        ["/v1/chat/completions", { messages, chat_template_kwargs: [] }, "chat_template_kwargs"],
        [
          "/v1/chat/completions",
          { messages, chat_template_kwargs: { enable_thinking: 1 } },
          "chat_template_kwargs.enable_thinking",
        ],
        ["/apply-template", { messages, chat_template_kwargs: { tools: [] } }, "chat_template_kwargs.tools"],
        ["/tokenize", { messages, content: "Hi" }, "content"],
      ] as const
    ) {
      const response = await server.post(path, body);
      assertEquals([response.status, (await response.json()).error.param], [400, param]);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

/** Samples of Prometheus' text format, by name with labels. */
function samples(text: string): Map<string, number> {
  const line = /^([a-z_]+(?:\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})?) (-?[0-9.e+-]+|\+Inf|NaN)$/;
  const found = new Map<string, number>();
  const typed = new Set<string>();
  for (const row of text.trimEnd().split("\n")) {
    if (row.startsWith("# TYPE ")) typed.add(row.split(" ")[2]);
    if (row.startsWith("#")) continue;
    const [, name, value] = line.exec(row)!;
    assert(!found.has(name), name);
    assert(typed.has(name.replace(/\{.*/, "")) || typed.has(name.replace(/_(bucket|sum|count)(\{.*)?$/, "")), name);
    found.set(name, Number(value));
  }
  return found;
}

Deno.test("metrics count replies and tokens, and histograms add up", async () => {
  await using server = await TestServer.start();
  const { usage } = await server.ask("/v1/completions", { prompt: "Once", max_tokens: 4, temperature: 0 });
  await server.ask("/v1/completions", { prompt: "Once", max_tokens: 1 });
  await (await server.post("/v1/completions", "{")).body?.cancel();
  const response = await fetch(`${server.url}/metrics`);
  assertEquals(response.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const found = samples(await response.text());
  const of = (name: string): number | undefined => found.get(name);
  assertEquals(of('vkmx_requests_total{endpoint="/v1/completions",status="200"}'), 2);
  assertEquals(of('vkmx_requests_total{endpoint="/v1/completions",status="400"}'), 1);
  assertEquals(of(`vkmx_generation_tokens_total{model="${TINY}"}`), 5);
  assertEquals(of(`vkmx_prompt_tokens_total{model="${TINY}"}`), 2 * usage.prompt_tokens);
  assertEquals(of(`vkmx_requests_running{model="${TINY}"}`), 0);
  assertEquals(of("vkmx_time_to_first_token_seconds_count"), 2);
  assertEquals(of("vkmx_time_per_output_token_seconds_count"), 1); // of the answer with more than one
  assertEquals(of("vkmx_request_duration_seconds_count"), 3);
  for (const measure of ["time_to_first_token", "time_per_output_token", "request_duration"]) {
    const buckets = [...found].filter(([name]) => name.startsWith(`vkmx_${measure}_seconds_bucket`)).map(([, value]) =>
      value
    );
    assertEquals(buckets, buckets.toSorted((a, b) => a - b));
    assertEquals(buckets.at(-1), of(`vkmx_${measure}_seconds_count`));
  }
});
