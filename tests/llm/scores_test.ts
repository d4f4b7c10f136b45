/** Hidden states, embeddings and perplexity: equal to mlx-lm's in float32, with bounded memory, and mistakes by name. */

import { assert, assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices.ts";
import { GOLDEN, TINY_DIR } from "../support/models.ts";
import { nmse } from "../support/oracle.ts";
import { CASES, scoreModel, SCORES, type Scores, TEXTS } from "../support/scores.ts";

const EXPECTED: Scores = JSON.parse(Deno.readTextFileSync(SCORES));
const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources
const REFUSED = { code: "option" } as const;

async function refused(call: () => unknown, message: string, code: string = REFUSED.code): Promise<void> {
  const error = await assertRejects(async () => await call(), mx.lm.LlmError, message);
  assertEquals(error.code, code);
}

for (const device of DEVICES) {
  Deno.test(`hidden states, embeddings and perplexity are mlx-lm's on ${device}`, async (t) => {
    using files = await scoreModel();
    const backend = mx.withDevice(device, getBackend);
    const alive = backend.liveObjects();
    const { model, tokenizer } = await mx.lm.load(files.dir, { device });

    await t.step("hidden states of every layer", () => {
      mx.tidy(() => {
        const states = mx.lm.hiddenStates(model, CASES.hidden);
        assertEquals(states.map(({ shape }) => shape), states.map(() => [1, CASES.hidden.length, 64]));
        assertEquals(states.length, 3);
        states.forEach((state, i) => {
          assert(nmse(state.toTypedArray() as Float32Array, EXPECTED.hidden[i]) < 1e-7, `layer ${i}`);
        });
        const [last, first] = mx.lm.hiddenStates(model, mx.array([[...CASES.hidden]], mx.int32), { layers: [-1, 0] });
        assertEquals(last.toTypedArray(), states[2].toTypedArray());
        assertEquals(first.toTypedArray(), states[0].toTypedArray());
        const logits = model.logits!(last);
        assertEquals(logits.toTypedArray(), model.forward(mx.array([[...CASES.hidden]], mx.int32)).toTypedArray());
      });
      assertThrows(
        () => mx.lm.hiddenStates(model, [1], { layers: [3] }),
        mx.lm.LlmError,
        "layers has 3, expected integers from -3 to 2",
      );
      assertThrows(() => mx.lm.hiddenStates(model, [4096]), mx.lm.LlmError, "The list has token id 4096");
    });

    await t.step("hidden states of tokens behind a cache", () => {
      mx.tidy(() => {
        using cache = model.makeCache();
        const ids = mx.array([[...CASES.hidden]], mx.int32);
        mx.eval(model.hiddenStates!(ids.index(mx.Slice(null), mx.Slice(0, 7)), cache).at(-1), cache.state);
        const rest = model.hiddenStates!(ids.index(mx.Slice(null), mx.Slice(7, null)), cache).at(-1)!;
        const whole = EXPECTED.hidden[2].slice(7 * 64);
        assert(nmse(rest.toTypedArray() as Float32Array, whole) < 1e-5); // the cache may be float16
      });
    });

    await t.step("embeddings, whatever is padded", async () => {
      for (const [i, options] of CASES.embed.entries()) {
        for (const batchSize of [1, 2, 32]) {
          using found = await mx.lm.embed(model, tokenizer, TEXTS, { ...options, batchSize });
          assertEquals([found.shape, found.dtype], [[3, 64], mx.float32]);
          assert(nmse(found.toTypedArray() as Float32Array, EXPECTED.embeddings[i]) < 1e-7, JSON.stringify(options));
        }
      }
      using asked = await mx.lm.embed(model, tokenizer, ["fox"], { instruction: "Find it" });
      using spelled = await mx.lm.embed(model, tokenizer, ["Instruct: Find it\nQuery:fox"]);
      assertEquals(asked.toTypedArray(), spelled.toTypedArray());
      using short = await mx.lm.embed(model, tokenizer, TEXTS, { dimensions: 8, pooling: "mean" });
      const cut = Array.from({ length: 3 }, (_, i) => EXPECTED.embeddings[2].slice(i * 64, i * 64 + 8));
      const unit = cut.flatMap((row) => row.map((x) => x / Math.hypot(...row)));
      assert(nmse(short.toTypedArray() as Float32Array, unit) < 1e-7);
    });

    await t.step("perplexity of windows, side by side and sliding", async () => {
      for (const [i, options] of CASES.perplexity.entries()) {
        const [perplexity, stderr, tokens] = EXPECTED.perplexity[i];
        for (const batchSize of [1, 4]) {
          const progress: number[] = [];
          const onProgress = (done: number): void => void progress.push(done);
          const found = await mx.lm.perplexity(model, tokenizer, CASES.text, { ...options, batchSize, onProgress });
          const what = JSON.stringify(options);
          assertAlmostEquals(found.perplexity / perplexity, 1, 1e-5, what);
          assertAlmostEquals(found.stderr / stderr, 1, 1e-4, what);
          assertAlmostEquals(found.nll, Math.log(perplexity), 1e-5, what);
          assertEquals(found.tokens, tokens, what);
          assertEquals(progress.at(-1), tokens, what);
        }
      }
      const whole = await mx.lm.perplexity(model, tokenizer, CASES.text.slice(0, 20));
      assertEquals(whole.tokens, 19);
    });

    await t.step("nothing stays behind", async () => {
      await model.traces.idle();
      model[Symbol.dispose]();
      assertEquals(backend.liveObjects(), alive);
    });
  });

  Deno.test(`perplexity of a quantized model and of text is what forward gives on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    using _ = model;
    const { ids, text } = GOLDEN[0];
    const all = tokenizer.encode(GOLDEN[0].prompt + text).slice(0, 48);
    assert(all.length > 40 && ids.length > 0);
    const losses = mx.tidy(() => {
      const logits = model.forward(mx.array([all], mx.int32)).reshape([all.length, -1]);
      const rows = logits.index(mx.Slice(0, all.length - 1));
      return mx.fast.logprobs(rows, mx.array(all.slice(1), mx.int32), 0).toTypedArray() as Float32Array;
    });
    const nll = -losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    const found = await mx.lm.perplexity(model, tokenizer, all);
    assertAlmostEquals(found.nll / nll, 1, 1e-3); // products of many rows may be in float16
    assert(found.perplexity < 30, "the model knows its own stories");
  });
}

Deno.test("perplexity holds few logits at a time", async () => {
  const vocab = 2 ** 16;
  using files = await scoreModel({ vocab, layers: 1 }, { bits: 4, groupSize: 32 });
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: "wasm" });
  using _ = model;
  const ids = Array.from({ length: 1024 }, (_, i) => (i * 977) % vocab);
  mx.resetPeakMemory();
  const before = mx.getPeakMemory();
  await mx.lm.perplexity(model, tokenizer, ids, { context: 1024 });
  const logits = 1023 * vocab * 4;
  assert(mx.getPeakMemory() - before < logits * 0.6, `${mx.getPeakMemory() - before} bytes`);
});

Deno.test("what cannot be embedded or scored is refused by name", async () => {
  const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: DEVICES.includes("wasm") ? "wasm" : DEVICES[0] });
  using _ = model;
  const { embed, perplexity } = mx.lm;
  const anyOptions = (options: object): object => options;
  await refused(() => embed(model, tokenizer, []), "embed() expected a list of texts");
  await refused(() => embed(model, tokenizer, "one" as unknown as string[]), "embed() expected a list of texts");
  await refused(
    () => embed(model, tokenizer, ["a"], anyOptions({ pooling: "max" })),
    "pooling is max, expected one of last, mean, cls",
  );
  await refused(() => embed(model, tokenizer, ["a"], anyOptions({ normalise: true })), 'did you mean "normalize"?');
  await refused(
    () => embed(model, tokenizer, ["a"], { dimensions: 257 }),
    "dimensions is 257, expected an integer from 1 to 256",
  );
  await refused(() => embed(model, tokenizer, ["a", ""]), "Text 1 has 0 tokens", "context");
  await refused(
    () => embed(tokenizer as unknown as mx.lm.LanguageModel, tokenizer, ["a"]),
    "expected the model that load() returns",
  );
  await refused(() => perplexity(model, tokenizer, "a", { context: 1 }), "context is 1, expected an integer from 2 to");
  await refused(
    () => perplexity(model, tokenizer, "a b c", { context: 8, stride: 9 }),
    "stride is 9, expected an integer from 1 to 8",
  );
  await refused(() => perplexity(model, tokenizer, "a b c", { batchSize: 0 }), "batchSize is 0");
  await refused(() => perplexity(model, tokenizer, [5]), "The text has 1 tokens: at least 2 are needed", "context");
  await refused(() => perplexity(model, tokenizer, [5, 4096]), "The text has token id 4096", "tokenizer");
  await refused(() => perplexity(model, tokenizer, "a b", anyOptions({ strides: 1 })), 'did you mean "stride"?');
  const { hiddenStates: _none, ...plain } = { ...model, forward: model.forward, makeCache: model.makeCache };
  await refused(() => embed(plain as unknown as mx.lm.LanguageModel, tokenizer, ["a"]), "which gives hidden states");
  const reason = new Error("enough");
  const long = Array.from({ length: 400 }, (_, i) => i);
  const ends = new AbortController();
  const aborted = perplexity(model, tokenizer, long, {
    context: 16,
    batchSize: 1,
    signal: ends.signal,
    onProgress: () => ends.abort(reason),
  });
  assertEquals(await assertRejects(() => aborted), reason);
  const stopped = embed(model, tokenizer, TEXTS, { signal: AbortSignal.abort(reason) });
  assertEquals(await assertRejects(() => stopped), reason);
});

Deno.test("a checkpoint for embeddings loads without prefixes and head", async () => {
  using files = await scoreModel({ tied: false }, { bits: 16, seed: 31 });
  const file = `${files.dir}/model.safetensors`;
  const device = DEVICES.includes("wasm") ? "wasm" : DEVICES[0];
  const bare = (keepHead: boolean): void => {
    const arrays = Object.entries(mx.loadSafetensors(file)).filter(([name]) =>
      keepHead || !name.startsWith("lm_head.")
    );
    mx.saveSafetensors(file, Object.fromEntries(arrays.map(([name, array]) => [name.replace(/^model\./, ""), array])));
  };
  const embedded = async (check: (model: mx.lm.LanguageModel) => void): Promise<unknown> => {
    const { model, tokenizer } = await mx.lm.load(files.dir, { device });
    using _ = model;
    check(model);
    using found = await mx.lm.embed(model, tokenizer, TEXTS);
    return found.tolist();
  };
  const ids = (): mx.Tensor => mx.array([[1, 2]], mx.int32);
  const whole = await embedded(() => {});
  bare(true);
  assertEquals(await embedded((model) => assertEquals(model.forward(ids()).shape, [1, 2, 4096])), whole);
  bare(false);
  const headless = (model: mx.lm.LanguageModel): void => {
    assertThrows(() => model.forward(ids()), mx.lm.LlmError, "The model has no head");
  };
  assertEquals(await embedded(headless), whole);
});
