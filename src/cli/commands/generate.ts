/**
 * `vkmx generate`: text from a language model.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { GENERATE, Generation } from "../generation.ts";
import { type Command, command } from "../program.ts";
import { PromptCacheFile } from "../prompt_cache.ts";

const generate: Command = command(GENERATE, async (values, operands) => {
  const run = await Generation.open(values, operands);
  const loaded = await mx.lm.load(run.model, run.loading);
  const { model, tokenizer, generationConfig } = loaded;
  using _ = model;
  const draft = await run.loadDraft();
  using _draft = draft?.model;
  using file = await PromptCacheFile.open(values, model);
  const options = { ...run.options(generationConfig, draft), ...file.options };
  return await run.finish(loaded, async () => {
    for (const prompt of run.prompts(tokenizer)) {
      file.check(prompt);
      for await (const response of mx.lm.streamGenerate(model, tokenizer, prompt, options)) run.take(response);
    }
    if (!options.signal?.aborted) await file.save();
  });
});

export default generate;
