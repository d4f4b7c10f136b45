/** Drafts by another model: the tokens that come without them, and all drafts right where the model drafts for itself. */

import { assert, assertEquals, assertRejects } from "@std/assert";
import * as mx from "../../../mod.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
import { anyDevice } from "../../support/devices/devices.ts";
import { onceMade } from "../../support/models/idle_after.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { wrapped } from "../../support/models/wrapped_model.ts";

const { load, streamGenerate, LlmError } = mx.lm;
const device = anyDevice();
mx.setDefaultDevice(device);
const target = await load(TINY_DIR, { device });
/** Nearly the same model: its logits are those of other norms of the last layer's output. */
const draft = await load(TINY_DIR, { device });
{
  const norm = namedLeaves(draft.model.parameters()).find(([name]) => name === "model.norm.weight")![1] as mx.Tensor;
  const factors = mx.array(Array.from({ length: norm.size }, (_, i) => i % 3 === 0 ? 0.2 : 1));
  draft.model.update({ model: { norm: { weight: mx.multiply(norm, factors) } } });
}
const MODELS = [target.model, draft.model];
const PROMPT = GOLDEN[0].prompt;

const SETTINGS: Readonly<Record<string, mx.lm.GenerateOptions>> = {
  "greedy": {},
  "sampled": { temp: 1, seed: 3 },
  "sampled with filters and penalties": {
    temp: 0.9,
    topP: 0.9,
    topK: 40,
    seed: 8,
    repetitionPenalty: 1.3,
    frequencyPenalty: 0.3,
    repetitionContextSize: 5,
  },
};

/** Tokens and counts of an answer. */
async function answer(
  options: mx.lm.GenerateOptions,
  drafter?: mx.lm.DraftModel,
  numDraftTokens = 3,
): Promise<{ readonly tokens: number[]; readonly drafted: number; readonly accepted: number }> {
  const speculation = drafter && { drafter, numDraftTokens, adaptive: false };
  const stream = streamGenerate(target.model, target.tokenizer, PROMPT, { maxTokens: 40, ...options, speculation });
  const responses = await Array.fromAsync(stream);
  const { draftedTokens = 0, acceptedTokens = 0 } = responses.at(-1)!;
  return { tokens: responses.map(({ token }) => token), drafted: draftedTokens, accepted: acceptedTokens };
}

for (const [name, options] of Object.entries(SETTINGS)) {
  Deno.test(`a model that drafts for itself is always right: ${name}`, async () => {
    const plain = await answer(options);
    for (const count of [1, 3, 7]) {
      const found = await onceMade([target.model], () => answer(options, target, count));
      assertEquals(found.tokens, plain.tokens);
      assert(found.drafted > 8 && found.accepted === found.drafted, `${found.accepted} of ${found.drafted}`);
    }
  });

  Deno.test(`tokens are those that come without a draft model: ${name}`, async () => {
    const plain = await answer(options);
    const { tokens, drafted, accepted } = await onceMade(MODELS, () => answer(options, draft));
    assertEquals(tokens, plain.tokens);
    assert(accepted > 5 && accepted < drafted, `${accepted} of ${drafted}`);
  });
}

Deno.test("a draft model of another vocabulary is refused", async () => {
  const tokenBytes = (id: number): Uint8Array | undefined =>
    id === 9 ? Uint8Array.of(1) : target.tokenizer.tokenBytes(id);
  const tokenizer = new Proxy(target.tokenizer, {
    get(of, name) {
      if (name === "tokenBytes") return tokenBytes;
      const value = Reflect.get(of, name, of);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
  await assertRejects(
    () => answer({}, { model: draft.model, tokenizer }),
    LlmError,
    "The draft model has another vocabulary than the model: token 9 is another one",
  );
});

Deno.test("a draft model leaves no memory, and drafts nothing after its context", async () => {
  const run = (): Promise<unknown> => answer({ maxTokens: 12 }, draft);
  await onceMade(MODELS, run);
  const before = mx.getActiveMemory();
  await run();
  assertEquals(mx.getActiveMemory(), before);
  const makeCache = (): mx.lm.KvCache => {
    const { layers, kvHeads, headDim } = draft.model.config as unknown as Record<string, number>;
    return new mx.lm.KvCache({ layers, heads: kvHeads, headDim, batch: 1, dtype: mx.float32, limit: 16 });
  };
  const short = { ...draft, model: wrapped(draft.model, { makeCache }) };
  const found = await onceMade(MODELS, () => answer({}, short));
  assertEquals(found.tokens, (await answer({})).tokens);
  assert(found.drafted > 0 && found.drafted < 16, `${found.drafted}`);
});
