/**
 * POST /v1/completions: prompts of every kind, echo, log probabilities in their own shape, and errors.
 */

import { assert, assertEquals } from "@std/assert";
import { GOLDEN } from "../support/models/models.ts";
import { TestServer, TINY } from "../support/server/served.ts";

const COMPLETIONS = "/v1/completions";
const STORY = GOLDEN[0].text.replace("<|endoftext|>", "");
const greedy = { temperature: 0 };
type Choice = { index: number; text: string; finish_reason: string };

Deno.test("a text and its ids are continued, whole and as a stream", async () => {
  await using server = await TestServer.start();
  const { id, created: _, ...rest } = await server.ask(COMPLETIONS, {
    prompt: GOLDEN[0].prompt,
    ...greedy,
    max_tokens: 4096,
  });
  assert(id.startsWith("cmpl-"));
  const [prompts, tokens] = [GOLDEN[0].ids.length, GOLDEN[0].greedy.length];
  assertEquals(rest, {
    object: "text_completion",
    model: TINY,
    choices: [{ index: 0, text: STORY, logprobs: null, finish_reason: "stop" }],
    usage: {
      prompt_tokens: prompts,
      completion_tokens: tokens,
      total_tokens: prompts + tokens,
      prompt_tokens_details: { cached_tokens: 0 },
      completion_tokens_details: {
        reasoning_tokens: 0,
        accepted_prediction_tokens: 0,
        rejected_prediction_tokens: 0,
      },
    },
  });
  const short = { prompt: GOLDEN[0].ids, ...greedy, max_tokens: 5 };
  const { choices: [five] } = await server.ask(COMPLETIONS, short);
  assertEquals([STORY.startsWith(five.text), five.finish_reason], [true, "length"]);
  const events = await server.events(COMPLETIONS, { ...short, stream_options: { include_usage: true } });
  assertEquals(events.pop()!.data, "[DONE]");
  assertEquals(events.pop()!.data.usage.completion_tokens, 5);
  assertEquals(events.map(({ data }) => data.choices[0].text).join(""), five.text);
  assertEquals(events.map(({ data }) => data.choices[0].finish_reason).filter((reason) => reason), ["length"]);
  const { usage } = await server.ask(COMPLETIONS, { prompt: GOLDEN[0].prompt });
  assertEquals(usage.completion_tokens, 16); // OpenAI's default
});

Deno.test("several prompts, each with n answers, keep their order", async () => {
  await using server = await TestServer.start();
  const prompt = [GOLDEN[1].prompt, GOLDEN[0].prompt];
  const { choices, usage } = await server.ask(COMPLETIONS, { prompt, ...greedy, n: 2, echo: true, max_tokens: 3 });
  const starts = [GOLDEN[1], GOLDEN[1], GOLDEN[0], GOLDEN[0]];
  choices.forEach(({ index, text }: Choice, i: number) => {
    assertEquals(index, i);
    assert((starts[i].prompt + starts[i].text).startsWith(text) && text.length > starts[i].prompt.length, text);
  });
  const prompts = GOLDEN[0].ids.length + GOLDEN[1].ids.length;
  assertEquals([usage.prompt_tokens, usage.completion_tokens], [prompts, 12]);
  const { choices: both } = await server.ask(COMPLETIONS, {
    prompt: [GOLDEN[0].ids, GOLDEN[1].ids],
    ...greedy,
    max_tokens: 3,
  });
  assertEquals(both.map(({ text }: Choice) => text), [2, 0].map((i) => choices[i].text.slice(starts[i].prompt.length)));
});

Deno.test("log probabilities are lists with an item for each token", async () => {
  await using server = await TestServer.start();
  const body = { prompt: GOLDEN[0].prompt, ...greedy, max_tokens: 6, logprobs: 2 };
  const { choices: [{ text, logprobs }] } = await server.ask(COMPLETIONS, body);
  assertEquals(logprobs.tokens.join(""), text);
  let at = 0;
  const offsets = logprobs.tokens.map((token: string) => (at += token.length) - token.length);
  assertEquals(logprobs.text_offset, offsets);
  logprobs.tokens.forEach((token: string, i: number) => {
    const top: Record<string, number> = logprobs.top_logprobs[i];
    assertEquals(Object.keys(top).length, 2);
    assertEquals(top[token], logprobs.token_logprobs[i]); // greedy: the token is the most probable one
    assertEquals(Math.max(...Object.values(top)), top[token]);
  });
  const events = await server.events(COMPLETIONS, body);
  const streamed = events.flatMap(({ data }) => data.choices?.[0].logprobs ?? []);
  for (const name of ["tokens", "token_logprobs", "top_logprobs", "text_offset"]) {
    assertEquals(streamed.flatMap((one) => one[name]), logprobs[name], name);
  }
});

Deno.test("control tokens in a prompt count, as the caller writes the template here", async () => {
  await using server = await TestServer.start();
  const { choices, usage } = await server.ask(COMPLETIONS, { prompt: GOLDEN[5].prompt, ...greedy, max_tokens: 99 });
  assertEquals([choices[0].text, usage.prompt_tokens], ["The answer is 42.", GOLDEN[5].ids.length]);
});

Deno.test("wrong fields are status 400, with the name of the field", async () => {
  await using server = await TestServer.start();
  const cases: readonly (readonly [fields: Record<string, unknown>, param: string | null, says: RegExp])[] = [
    [{ prompt: undefined }, "prompt", /missing/],
    [{ prompt: 5 }, "prompt", /5, expected a list/],
    [{ prompt: [] }, "prompt", /at least 1/],
    [{ prompt: "" }, null, /empty/],
    [{ prompt: [1, "a"] }, "prompt[1]", /"a"/],
    [{ prompt: ["a", 1] }, "prompt[1]", /1, expected a list/],
    [{ prompt: [99999] }, null, /99999/],
    [{ prompt: new Array(129).fill("a") }, "prompt", /at most 128/],
    [{ suffix: "end" }, "suffix", /no gap/],
    [{ best_of: 3 }, "best_of", /3/],
    [{ best_of: 3, n: 2 }, "best_of", /at most n, which is 2/],
    [{ echo: true, logprobs: 1 }, "echo", /exclude/],
    [{ logprobs: true }, "logprobs", /true/],
  ];
  const both = await server.ask(COMPLETIONS, { prompt: "a", max_tokens: 1, n: 2, best_of: 2 });
  assertEquals(both.choices.length, 2);
  const wrong: unknown[] = [];
  for (const [fields, param, says] of cases) {
    const response = await server.post(COMPLETIONS, { prompt: "a", max_tokens: 1, ...fields });
    const { error } = await response.json();
    if (response.status !== 400 || error?.param !== param || !says.test(error.message)) {
      wrong.push([fields, response.status, error]);
    }
  }
  assertEquals(wrong, []);
});
