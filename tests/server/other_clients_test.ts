/**
 * Official clients for Python and in Node.js: the snippets of docs/server.md, and programs for Python that use what users do.
 */

import { assert, assertEquals } from "@std/assert";
import { PYTHON_CLIENTS } from "../../scripts/setup/python_clients.ts";
import { needing } from "../support/needs.ts";
import { blocks, DOCUMENT, LOCAL, runInNode, runPython, startCaller } from "../support/server/client_programs.ts";
import { TINY } from "../support/server/served.ts";

Deno.test("the document names the clients for Python that run here", () => {
  for (const name of ["openai", "anthropic", "ollama"]) {
    const { version } = PYTHON_CLIENTS.find((one) => one.name === name)!;
    assert(DOCUMENT.includes(`PyPI's \`${name}\`, ${version}:`), `${name} ${version}`);
  }
});

Deno.test({
  ...await needing("the snippets of the document for Python answer", "python clients"),
  fn: async () => {
    await using server = await startCaller();
    const snippets = blocks("python");
    assertEquals(snippets.length, 3);
    for (const snippet of snippets) assert((await runPython(snippet, server)).trim() !== "", snippet);
  },
});

Deno.test({
  ...await needing("the snippets of the document for npm's clients answer in Node.js", "node", "npm clients"),
  fn: async () => {
    await using server = await startCaller();
    for (const snippet of blocks("ts ignore")) assert((await runInNode(snippet, server)).trim() !== "", snippet);
  },
});

Deno.test({
  ...await needing(
    "openai for Python streams, calls functions, embeds, parses and raises its errors",
    "python clients",
  ),
  fn: async () => {
    await using server = await startCaller();
    const output = await runPython(
      `
import json
import openai
client = openai.OpenAI(base_url="${LOCAL}/v1", api_key="none", max_retries=0)
say = lambda value: print(json.dumps(value))
sum = dict(model="${TINY}", messages=[{"role": "user", "content": "What is 17 + 25?"}], temperature=0, reasoning_effort="none")
say("".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**sum, stream=True)))
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
messages = [{"role": "user", "content": "Weather?"}]
first = client.chat.completions.create(model="caller", messages=messages, tools=tools).choices[0]
call = first.message.tool_calls[0]
say([first.finish_reason, call.function.name, json.loads(call.function.arguments)])
messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
say(client.chat.completions.create(model="caller", messages=messages, tools=tools).choices[0].message.content)
say(len(client.embeddings.create(model="${TINY}", input="a").data[0].embedding))
say(client.completions.create(model="${TINY}", prompt="Once upon a time", max_tokens=3, temperature=0).choices[0].text)
answer = dict(model="${TINY}", input="What is 17 + 25?", temperature=0, reasoning={"effort": "none"})
say(client.responses.create(**answer).output_text)
with client.responses.stream(**answer) as stream:
    for event in stream:
        pass
    response = stream.get_final_response()
say(response.output_text)
say([item.content[0].text for item in client.responses.input_items.list(response.id)])
say(client.responses.input_tokens.count(model="${TINY}", input=answer["input"], reasoning=answer["reasoning"]).input_tokens == response.usage.input_tokens)
say([model.id for model in client.models.list()])
for body in [{**sum, "model": "gpt-9"}, {**sum, "temperature": "hot"}]:
    try:
        client.chat.completions.create(**body)
    except openai.APIStatusError as error:
        say([type(error).__name__, error.status_code, error.code, error.param])
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      ["tool_calls", "weather", { city: "Paris" }],
      "It is rain.",
      256,
      ", there was",
      "The answer is 42.",
      "The answer is 42.",
      ["What is 17 + 25?"],
      true,
      [TINY, "caller"],
      ["NotFoundError", 404, "model_not_found", "model"],
      ["BadRequestError", 400, "invalid_type", "temperature"],
    ]);
  },
});

Deno.test({
  ...await needing("anthropic for Python streams, thinks, calls tools, counts and raises its errors", "python clients"),
  fn: async () => {
    await using server = await startCaller();
    const output = await runPython(
      `
import json
import anthropic
client = anthropic.Anthropic(base_url="${LOCAL}", api_key="none", max_retries=0)
say = lambda value: print(json.dumps(value))
sum = dict(model="${TINY}", extra_body={"temperature": 0}, messages=[{"role": "user", "content": "What is 17 + 25?"}])
with client.messages.stream(**sum, max_tokens=99) as stream:
    say("".join(stream.text_stream))
with client.messages.stream(**sum, max_tokens=400, thinking={"type": "enabled", "budget_tokens": 1024}) as stream:
    say([block.type for block in stream.get_final_message().content])
document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "What is 17 + 25?"}}
say(client.messages.create(**{**sum, "messages": [{"role": "user", "content": [document]}]}, max_tokens=99).content[0].text)
say(client.messages.create(**sum, max_tokens=0).content)
say([model.display_name for model in client.models.list()])
say(client.messages.count_tokens(model=sum["model"], messages=sum["messages"]).input_tokens > 5)
tools = [{"name": "weather", "input_schema": {"type": "object"}}]
messages = [{"role": "user", "content": "Weather?"}]
with client.messages.stream(model="caller", max_tokens=99, tools=tools, messages=messages) as stream:
    first = stream.get_final_message()
use = first.content[0]
say([first.stop_reason, use.name, use.input])
messages += [
    {"role": "assistant", "content": first.content},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"}]},
]
say(client.messages.create(model="caller", max_tokens=99, tools=tools, messages=messages).content[0].text)
try:
    client.messages.create(**{**sum, "model": "claude"}, max_tokens=9)
except anthropic.APIStatusError as error:
    say([type(error).__name__, error.status_code, error.body["error"]["type"]])
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      ["thinking", "text"],
      "The answer is 42.",
      [],
      [TINY, "caller"],
      true,
      ["tool_use", "weather", { city: "Paris" }],
      "It is rain.",
      ["NotFoundError", 404, "not_found_error"],
    ]);
  },
});

Deno.test({
  ...await needing("ollama for Python streams, calls functions, embeds, lists and raises its errors", "python clients"),
  fn: async () => {
    await using server = await startCaller();
    const output = await runPython(
      `
import json
import ollama
client = ollama.Client(host="${LOCAL}")
say = lambda value: print(json.dumps(value))
sum = dict(model="${TINY}", messages=[{"role": "user", "content": "What is 17 + 25?"}], think=False, options={"temperature": 0})
say(client.chat(**sum).message.content)
say("".join(part.message.content for part in client.chat(**sum, stream=True)))
def weather(city: str) -> str:
    """Tells the weather.

    Args:
      city: where
    """
messages = [{"role": "user", "content": "Weather?"}]
first = client.chat(model="caller", messages=messages, tools=[weather])
call = first.message.tool_calls[0].function
say([call.name, dict(call.arguments)])
messages += [first.message, {"role": "tool", "tool_name": "weather", "content": "rain"}]
say(client.chat(model="caller", messages=messages, tools=[weather]).message.content)
say(client.generate(model="${TINY}", prompt="Once upon a time", raw=True, options={"num_predict": 3, "temperature": 0}).response)
say([len(row) for row in client.embed(model="${TINY}", input=["a", "b"]).embeddings])
say([model.model for model in client.list().models])
say(client.show("${TINY}").details.family)
say(len(client.ps().models) > 0)
try:
    client.chat(**{**sum, "model": "elsewhere"})
except ollama.ResponseError as error:
    say([error.status_code, error.error])
`,
      server,
    );
    assertEquals(output.trimEnd().split("\n").map((line) => JSON.parse(line)), [
      "The answer is 42.",
      "The answer is 42.",
      ["weather", { city: "Paris" }],
      "It is rain.",
      ", there was",
      [256, 256],
      [TINY, "caller"],
      "qwen3",
      true,
      [404, 'There is no model "elsewhere": GET /v1/models lists all'],
    ]);
  },
});
