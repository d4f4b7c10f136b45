/** Hidden states, embeddings and perplexity: mlx-lm's values in float32 (golden/models/hidden_states.py), and what is refused. */

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { drawCases } from "../../support/draw_cases.ts";
import { withExactCpu } from "../../support/devices/exact.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { hasMatrices, withoutMatrices } from "../../support/devices/matrices.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { smallModel } from "../../support/models/prompt_caches.ts";

/** The reference: every 8th number of vectors, every 16th of states. */
interface Golden {
  readonly text: string;
  readonly ids: readonly number[];
  readonly context: number;
  readonly stride: number;
  readonly perplexity: readonly [number, number];
  readonly sliding: { readonly perplexity: number; readonly tokens: number };
  readonly texts: readonly string[];
  readonly last: readonly number[][];
  readonly cls: readonly number[][];
  readonly mean: readonly number[][];
  readonly states: readonly number[][];
}

const GOLDEN: Golden = JSON.parse(
  await Deno.readTextFile(new URL("../../golden/models/hidden_states.json", import.meta.url)),
);
const LIMIT = 1e-7;
/** Where matrix units multiply in float16. */
const HALF = 1e-6;
const every = (step: number, values: readonly number[]): number[] => values.filter((_, i) => i % step === 0);

for (const device of testDevices()) {
  Deno.test(`hidden states, embeddings and perplexity are mlx-lm's on ${device}`, async () => {
    await withExactCpu(async () => {
      mx.setDefaultDevice(device);
      const limit = hasMatrices(device) ? HALF : LIMIT;
      const unused = mx.getActiveMemory();
      const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
      assertEquals(tokenizer.encode(GOLDEN.text), GOLDEN.ids);

      const checkStates = (): void => {
        using tokens = mx.array([GOLDEN.ids.slice(0, 9)], mx.int32);
        const states = model.hiddenStates(tokens);
        const rows = states.map((state) => every(16, mx.tidy(() => state.index(0, -1).tolist()) as number[]));
        assertEquals(rows.length, GOLDEN.states.length);
        rows.forEach((row, layer) => {
          const error = nmse(row, GOLDEN.states[layer]);
          assert(error <= limit, `states ${layer}: NMSE ${error}`);
        });
        mx.dispose(states);
      };
      const checkVectors = async (pooling: "last" | "cls" | "mean", batchTokens: number): Promise<void> => {
        const options = { pooling, normalize: false, batchTokens };
        using vectors = await mx.lm.embed(model, tokenizer, GOLDEN.texts, options);
        vectors.tolist().forEach((vector, i) => {
          const error = nmse(every(8, vector), GOLDEN[pooling][i]);
          assert(error <= limit, `${pooling} of text ${i}, ${batchTokens} tokens together: NMSE ${error}`);
        });
      };
      const { context, stride } = GOLDEN;
      const close = (found: number, expected: number): void =>
        assert(Math.abs(found / expected - 1) <= (limit === LIMIT ? 1e-5 : 1e-4), `${found} is not ${expected}`);
      const checkPerplexity = async (): Promise<void> => {
        const whole = await mx.lm.perplexity(model, tokenizer, GOLDEN.text, { context, dropLast: true });
        close(whole.perplexity, GOLDEN.perplexity[0]);
        close(whole.standardError, GOLDEN.perplexity[1]);
        close(whole.nll, Math.log(GOLDEN.perplexity[0]));
        assertEquals(whole.tokens, Math.floor(GOLDEN.ids.length / context) * (context - 1));
        const sliding = await mx.lm.perplexity(model, tokenizer, GOLDEN.ids, { context, stride });
        close(sliding.perplexity, GOLDEN.sliding.perplexity);
        assertEquals(sliding.tokens, GOLDEN.sliding.tokens);
      };

      checkStates();
      const ways = (["last", "cls", "mean"] as const).flatMap((pooling) =>
        [1, 20, 4096].map((batchTokens) => ({ pooling, batchTokens })) // one by one, two together, all filled up to the longest
      );
      const drawn = drawCases(device, "poolings", ways, ({ pooling, batchTokens }) => [pooling, `${batchTokens}`]);
      for (const { pooling, batchTokens } of drawn) await checkVectors(pooling, batchTokens);
      await checkPerplexity();
      // Matrix units read weights in an order of their own. It is made once and kept with the weights, so only the first time adds memory.
      const before = mx.getActiveMemory();
      checkStates();
      await checkVectors("mean", 20);
      await checkPerplexity();
      assertEquals(mx.getActiveMemory(), before);
      model[Symbol.dispose]();
      assertEquals(mx.getActiveMemory(), unused);
    });
  });
}

/** The model on one device; tests above close devices. */
async function open(device: string = anyDevice()): Promise<mx.lm.Loaded> {
  mx.setDefaultDevice(device);
  return await mx.lm.load(TINY_DIR, { device });
}

// The number of rows decides which kernel multiplies them. Matrix units round x to float16, which moves the mean by 1e-5, the limit here.
// So they are left out: this looks for windows that change each other.
Deno.test("perplexity() does not depend on how windows go together", async () => {
  await withExactCpu(async () => {
    const { model, tokenizer } = await open(withoutMatrices(anyDevice()));
    using _model = model;
    const { ids } = GOLDEN;
    const long = Array.from({ length: 150 }, (_, i) => ids[i % ids.length]);
    for (const options of [{ context: 16, stride: 6 }, { context: 16 }, { context: 60, stride: 9 }, { context: 149 }]) {
      const run = (batchSize: number): Promise<mx.lm.Perplexity> =>
        mx.lm.perplexity(model, tokenizer, long, { ...options, batchSize });
      const [one, some] = [await run(1), await run(4)];
      assert(Math.abs(some.nll / one.nll - 1) < 1e-5, `${some.nll} and ${one.nll}`);
      assertEquals(some.tokens, one.tokens);
    }
  });
});

Deno.test("perplexity() holds few logits at a time", async () => {
  const vocab = 2 ** 16;
  using files = await smallModel({ vocab, layers: 1 }, { bits: 4, groupSize: 32 });
  const { model, tokenizer } = await mx.lm.load(files.dir, { device: anyDevice() });
  using _model = model;
  const ids = Array.from({ length: 1024 }, (_, i) => (i * 977) % vocab);
  mx.resetPeakMemory();
  const before = mx.getActiveMemory();
  await mx.lm.perplexity(model, tokenizer, ids, { context: 1024 });
  const taken = mx.getPeakMemory() - before;
  assert(taken < 0.6 * 1023 * vocab * 4, `${taken} bytes`);
});

Deno.test("a checkpoint that is untied and has no head embeds, and says that it gives no logits", async () => {
  using files = await smallModel({ tied: false });
  const file = `${files.dir}/model.safetensors`;
  const vectors = async (check: (model: mx.lm.LanguageModel) => void): Promise<unknown> => {
    const { model, tokenizer } = await mx.lm.load(files.dir, { device: anyDevice() });
    using _model = model;
    check(model);
    using found = await mx.lm.embed(model, tokenizer, ["a fox", "b"]);
    return found.tolist();
  };
  const bare = (keepHead: boolean): void =>
    mx.tidy(() => {
      const all = Object.entries(mx.loadSafetensors(file)).filter(([name]) => keepHead || !name.startsWith("lm_head."));
      mx.saveSafetensors(file, Object.fromEntries(all.map(([name, array]) => [name.replace(/^model\./, ""), array])));
    });
  const ids = (): mx.Tensor => mx.array([[1, 2]], mx.int32);
  const whole = await vectors(() => {});
  bare(true);
  assertEquals(await vectors((model) => assertEquals(model.forward(ids()).shape, [1, 2, 4096])), whole);
  bare(false);
  const headless = (model: mx.lm.LanguageModel): void => {
    assertThrows(() => model.forward(ids()), mx.lm.LlmError, "The model has no head");
  };
  assertEquals(await vectors(headless), whole);
});

Deno.test("embed() puts an instruction in front of a query as Qwen3-Embedding has it", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  using asked = await mx.lm.embed(model, tokenizer, ["fox"], { instruction: "Find it" });
  using spelled = await mx.lm.embed(model, tokenizer, ["Instruct: Find it\nQuery:fox"]);
  assertEquals(asked.tolist(), spelled.tolist());
});

Deno.test("embed() gives vectors of length 1 in the order of the texts, and none of none", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  const texts = ["a", "Once upon a time there was", "a", "The sea"];
  using vectors = await mx.lm.embed(model, tokenizer, texts);
  const rows = vectors.tolist();
  assertEquals(vectors.shape.length, 2);
  for (const row of rows) assert(Math.abs(Math.hypot(...row) - 1) < 1e-5);
  assert(nmse(rows[0], rows[2]) < 1e-10);
  assert(nmse(rows[0], rows[3]) > 0.01);
  using none = await mx.lm.embed(model, tokenizer, []);
  assertEquals(none.shape, [0, 0]);
  const whole = tokenizer.encode(texts[1]);
  const cut = { maxTokens: 2, truncate: true, normalize: false } as const;
  using short = await mx.lm.embed(model, tokenizer, [texts[1]], cut);
  using same = await mx.lm.embed(model, tokenizer, [tokenizer.decode(whole.slice(0, 2))], cut);
  assert(nmse(short.tolist()[0], same.tolist()[0]) < 1e-10);
});

Deno.test("a text that is cut keeps the token that ends it, whose state counts", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  const name = "<|endoftext|>";
  const eos = tokenizer.idOf(name)!;
  const file = JSON.parse(await Deno.readTextFile(new URL("tokenizer.json", TINY_DIR)));
  file.post_processor = {
    type: "TemplateProcessing",
    single: [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: name, type_id: 0 } }],
    pair: [],
    special_tokens: { [name]: { id: name, ids: [eos], tokens: [name] } },
  };
  const ending = await mx.lm.Tokenizer.load({
    tokenizer: new TextEncoder().encode(JSON.stringify(file)),
    dir: "test",
    vocabSize: model.config.vocabSize,
    eosTokenIds: [],
  });
  const text = "Once upon a time there was";
  const ids = tokenizer.encode(text);
  assertEquals(ending.encode(text), [...ids, eos]);
  for (const [maxTokens, kept] of [[3, [ids[0], ids[1], eos]], [1, [eos]], [ids.length + 1, [...ids, eos]]] as const) {
    using tokens = mx.array([kept], mx.int32);
    const expected = mx.tidy(() => model.hiddenStates(tokens).at(-1)!.index(0, -1).tolist()) as number[];
    using found = await mx.lm.embed(model, ending, [text], { maxTokens, truncate: true, normalize: false });
    assert(nmse(found.tolist()[0], expected) < 1e-10, `${maxTokens} tokens`);
  }
});

Deno.test("checkpoints without a head, whose tensors have no prefix, embed like those with one", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  const folder = await Deno.makeTempDir();
  try {
    for (const { name } of Deno.readDirSync(TINY_DIR)) {
      await Deno.copyFile(new URL(name, TINY_DIR), `${folder}/${name}`);
    }
    const file = `${folder}/model.safetensors`;
    const stored = Object.entries(mx.loadSafetensors(file));
    const bare = Object.fromEntries(stored.map(([name, tensor]) => [name.replace(/^model\./, ""), tensor]));
    assert(Object.hasOwn(bare, "embed_tokens.weight") && !Object.hasOwn(bare, "lm_head.weight"));
    mx.saveSafetensors(`${folder}/bare`, bare);
    mx.dispose(Object.values(bare));
    await Deno.rename(`${folder}/bare`, file);
    const other = await mx.lm.load(folder, { device: mx.defaultDevice() });
    using _other = other.model;
    using expected = await mx.lm.embed(model, tokenizer, GOLDEN.texts);
    using found = await mx.lm.embed(other.model, other.tokenizer, GOLDEN.texts);
    assertEquals(found.tolist(), expected.tolist());
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("perplexity() scores each token once, whatever the windows", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  const { ids } = GOLDEN;
  const scored = async (options: mx.lm.PerplexityOptions): Promise<number> =>
    (await mx.lm.perplexity(model, tokenizer, ids, options)).tokens;
  assertEquals(await scored({}), ids.length - 1);
  for (const stride of [1, 5, 15]) assertEquals(await scored({ context: 16, stride }), ids.length - 1);
  assertEquals(await scored({ context: 16 }), ids.length - Math.ceil(ids.length / 16));

  const long = Array.from({ length: 400 }, (_, i) => ids[i % ids.length]);
  const progress: number[][] = [];
  const whole = await mx.lm.perplexity(model, tokenizer, long, {
    context: 400,
    onProgress: (done, total) => void progress.push([done, total]),
  });
  assertEquals(progress, [[0, 399], [399, 399]]);
  using logits = mx.tidy(() => {
    const all = model.forward(mx.array([long.slice(0, -1)], mx.int32)).astype(mx.float32).index(0);
    const chosen = mx.takeAlongAxis(all, mx.array(long.slice(1), mx.int32).reshape(-1, 1), -1).squeeze(-1);
    return mx.mean(mx.subtract(mx.logsumexp(all, -1), chosen));
  });
  assert(Math.abs(Number(logits.item()) / whole.nll - 1) < 1e-3); // of many rows a GPU may multiply in float16

  const controller = new AbortController();
  const aborted = mx.lm.perplexity(model, tokenizer, long, {
    context: 400,
    signal: controller.signal,
    onProgress: (done) => done > 0 && controller.abort(),
  });
  await assertRejects(() => aborted, DOMException, "aborted");
});

Deno.test("wrong arguments of embed() and perplexity() are refused before any work", async () => {
  const { model, tokenizer } = await open();
  using _model = model;
  const wrong: readonly [() => Promise<unknown>, string][] = [
    [() => mx.lm.embed(model, tokenizer, "a" as unknown as string[]), "expected a list of texts"],
    [() => mx.lm.embed(model, tokenizer, [""]), "Text 0 is empty"],
    [() => mx.lm.embed(model, tokenizer, ["a", "a b c d"], { maxTokens: 2 }), "Text 1 has 4 tokens, at most 2"],
    [() => mx.lm.embed(model, tokenizer, ["a"], { pooling: "max" as "mean" }), 'pooling is "max", expected one of'],
    [() => mx.lm.embed(model, tokenizer, ["a"], { batchTokens: 0 }), "batchTokens is 0"],
    [() => mx.lm.embed(model, tokenizer, ["a"], { normalise: true } as object), 'did you mean "normalize"?'],
    [() => mx.lm.perplexity(model, tokenizer, "a"), "The text has 1 tokens, at least 2 are needed"],
    [() => mx.lm.perplexity(model, tokenizer, [1, 2], { context: 3, dropLast: true }), "at least 3 are needed"],
    [() => mx.lm.perplexity(model, tokenizer, [1, 1e9]), "token ids below 4096"],
    [() => mx.lm.perplexity(model, tokenizer, "a b", { context: 1 }), "context is 1"],
    [
      () => mx.lm.perplexity(model, tokenizer, "a b", { context: 8, stride: 9 }),
      "stride is 9, expected a whole number",
    ],
  ];
  for (const [call, message] of wrong) await assertRejects(call, mx.lm.LlmError, message);
  assertThrows(() => model.hiddenStates(mx.array([1, 2], mx.int32)), mx.ShapeError, "(batch, tokens)");
});
