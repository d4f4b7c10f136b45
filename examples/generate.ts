/**
 * Generates text with a language model: a model is loaded, its answer comes token by token.
 *
 *     deno run -A examples/generate.ts "Once upon a time"
 *     deno run -A examples/generate.ts --model DIR --temp 0 "Why is the sky blue?"
 *
 * Without --model it runs the embedded demonstration model, so it needs neither a network nor a GPU. The flags and what is printed
 * are those of `vkmx generate`; a program of your own writes `mx.lm.load("DIR")` and `{ temp: 0, maxTokens: 100 }` in their place.
 *
 * @module
 */

import * as mx from "../mod.ts";
import { GENERATE, Generation } from "../src/cli/generation.ts";
import { runMain } from "../src/cli/program.ts";

await runMain({ ...GENERATE, name: "generate.ts" }, async (flags, operands) => {
  const run = await Generation.open(flags, operands);

  // A directory or a name of the Hugging Face Hub, to the best device that is here unless `device` names one.
  const loaded = await mx.lm.load(run.model, run.loading);
  const { model, tokenizer, generationConfig } = loaded;
  // Options of sampling and of the end: temp, topP, maxTokens, stop, seed, …
  const options = run.options(generationConfig);

  const code = await run.finish(loaded, async () => {
    // A prompt is a text that goes on, or a list of messages that go into the chat template.
    for (const prompt of run.prompts(tokenizer)) {
      for await (const response of mx.lm.streamGenerate(model, tokenizer, prompt, options)) {
        run.take(response); // response.raw to stdout, and the figures for the end
      }
    }
  });
  model[Symbol.dispose](); // the garbage collector would do it later
  return code;
});
