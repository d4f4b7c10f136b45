/**
 * `vkmx chat`: a conversation with a language model on the terminal.
 *
 * Each line is a message. The cache of keys and values stays between turns, so only what is new is read: see `cachePrompt`.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { useDevice } from "../device.ts";
import { loadOptions } from "../loading.ts";
import { generateOptions, MODEL_FLAGS, tellEnd } from "../model_flags.ts";
import { inputLines, note, print } from "../output.ts";
import { type Command, command } from "../program.ts";

const ABOUT =
  'Answers each line of stdin. "/clear" begins a new conversation, Ctrl-C ends an answer, Ctrl-D the program.';

const PROGRAM = { name: "vkmx chat", about: ABOUT, flags: MODEL_FLAGS, examples: ["--model Qwen/Qwen3-0.6B-MLX-4bit"] };

const chat: Command = command(PROGRAM, async (values) => {
  const { device } = values;
  await useDevice(device);
  const { model, tokenizer, generationConfig } = await mx.lm.load(
    values.model ?? mx.lm.EMBEDDED_MODEL,
    loadOptions(device),
  );
  const options = generateOptions(values, generationConfig);
  using cache = model.makeCache();
  const opening: mx.lm.ChatMessage[] = values.system === undefined ? [] : [{ role: "system", content: values.system }];
  let messages = [...opening];

  let answer: AbortController | undefined;
  Deno.addSignalListener("SIGINT", () => {
    if (answer === undefined) Deno.exit(130);
    answer.abort();
  });

  const ask = (): void => note(Deno.stdin.isTerminal() ? "> " : "");
  ask();
  for await (const line of inputLines()) {
    if (line.trim() === "/clear") messages = [...opening];
    else if (line.trim() !== "") {
      messages.push({ role: "user", content: line });
      answer = new AbortController();
      const content = await reply(answer.signal);
      if (content === undefined) messages.pop();
      else messages.push({ role: "assistant", content });
      answer = undefined;
    }
    ask();
  }
  model[Symbol.dispose]();
  return 0;

  /** Prints the answer to the messages so far and returns it; undefined where the last one is too long for the context. */
  async function reply(signal: AbortSignal): Promise<string | undefined> {
    let text = "";
    let last: mx.lm.GenerationResponse | undefined;
    const responses = mx.lm.streamGenerate(model, tokenizer, messages, {
      ...options,
      cache,
      cachePrompt: true,
      signal,
    });
    try {
      for await (last of responses) {
        text += last.text;
        print(last.raw);
      }
    } catch (error) {
      if (error instanceof mx.lm.LlmError && error.code === "context") {
        note(`error: ${error.message}, or /clear\n`);
        return undefined;
      }
      if (!signal.aborted) throw error; // aborted before the first token
    }
    print("\n");
    if (last) {
      tellEnd(last, options);
      const read = last.promptTokens - last.cachedTokens;
      note(
        `[${read} of ${last.promptTokens} tokens read, ${last.generationTokens} at ${
          last.generationTps.toFixed(1)
        }/s]\n`,
      );
    }
    return text;
  }
});

export default chat;
