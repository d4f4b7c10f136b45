/**
 * The test before decoding in one dispatch: it runs beside decoding, which changes over with the same tokens, and its verdict is kept. The
 * content on disk may be anything: another program is testing, one was killed while it did, or the file is damaged.
 */

import { assert, assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import * as mx from "../../../mod.ts";
import { ROOT } from "../../../scripts/tools.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { forgetLaunchModes } from "../../../src/schedule/decoder/megakernel.ts";
import type { Node } from "../../../src/graph/node.ts";
import { madeUpPages } from "../../../src/schedule/decoder/megakernel_check.ts";
import { matrixMap } from "../../../src/schedule/ops/matmul/coopmat.ts";
import { type Architecture, modelOf } from "../../support/models/architectures.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";
import { tryLayers, tryOn, withSteps } from "../../support/processes/megakernel_check_process.ts";
import { withOptions } from "../../../scripts/support/options.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

Deno.test("sequences of the test have pages of their own as far as they see, and few pages in all", () => {
  const cacheOf = (columns: number) => (
    { kind: "paged", table: { shape: [16, columns] } as unknown as Node, page: 64, pages: 1000 } as const
  );
  for (const [columns, each] of [[32, 5], [4, 4]]) {
    const { pages = [], positions } = madeUpPages(cacheOf(columns), 16, 301);
    const seen = pages.filter((_, i) => i % columns < each);
    assertEquals([new Set(seen).size, Math.max(...pages), Math.min(...pages)], [16 * each, 16 * each - 1, 0]);
    assertEquals(positions, 16 * each * 64);
  }
  assertEquals(madeUpPages({ kind: "contiguous", capacity: 2048 }, 3, 301), { positions: 3 * 2048 });
});

/** Runs with layers tested on every device and an empty folder for verdicts. */
async function trying(device: string, body: (folder: string) => Promise<void>): Promise<void> {
  const backend = mx.withDevice(device, getBackend);
  const folder = await Deno.makeTempDir();
  using _cache = withOptions({ env: { VKMX_CACHE: folder } });
  using _options = tryOn(device);
  try {
    await body(folder);
  } finally {
    forgetLaunchModes(backend);
    await Deno.remove(folder, { recursive: true });
  }
}

/** The verdicts in a folder: their files, what was asked, and the answers. */
function verdicts(folder: string): { readonly path: string; readonly question: string; readonly answer: string }[] {
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => name.startsWith("finding-"));
  return names.map((name) => {
    const path = `${folder}/${name}`;
    const [question, answer] = Deno.readTextFileSync(path).split("\n");
    return { path, question, answer };
  });
}

/** A process that has the layers tested: its exit code, and what it explained. */
async function other(
  device: string,
  folder: string,
  ...args: readonly string[]
): Promise<{ readonly code: number; readonly said: string }> {
  const flags = ["run", "-A", "--no-check", "--no-lock"];
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...flags,
      `${ROOT}tests/support/processes/megakernel_check_process.ts`,
      device,
      fileURLToPath(TINY_DIR),
      ...args,
    ],
    env: { VKMX_CACHE: folder, VKMX_EXPLAIN: "1", NO_COLOR: "1" },
    stdout: "null",
  }).output();
  return { code, said: new TextDecoder().decode(stderr) };
}

for (const device of DEVICES) {
  const { concurrent } = mx.withDevice(device, getBackend).limits;
  const expected = concurrent ? "works" : "fails";

  Deno.test(`decoding changes over to one dispatch with the same tokens where a test allows it on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const { prompt, greedy } = GOLDEN[0];
    await trying(device, async (folder) => {
      for (const round of ["tested", "known"]) {
        forgetLaunchModes(mx.withDevice(device, getBackend));
        model.traces[Symbol.dispose]();
        const count = concurrent ? greedy.length : round === "tested" ? 36 : 3; // software devices are slow
        const found: number[] = [];
        const kernels = await kernelsOf(device, async () => {
          for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens: count })) {
            found.push(r.token);
            if (found.length > 34) await model.traces.idle();
          }
        });
        assertEquals(found, greedy.slice(0, count), round);
        assertEquals([...kernels].some((name) => name.startsWith("decode_layers")), concurrent, round);
        assertEquals(kernels.has("decode_greedy_u64"), round === "tested" || !concurrent, round);
        const answers = verdicts(folder).filter(({ question }) => !question.endsWith("tokens")).map((v) => v.answer);
        assertEquals(answers, [expected], round);
      }
    });
    model[Symbol.dispose]();
  });

  Deno.test(`prompts of few tokens have a verdict of their own, and go on with the same tokens, on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const { prompt, greedy } = GOLDEN[0];
    await trying(device, async (folder) => {
      using _options = withOptions({ batched: "on" });
      const tokens = async (maxTokens: number): Promise<number[]> => {
        const found: number[] = [];
        for await (const r of mx.lm.streamGenerate(model, tokenizer, prompt, { maxTokens })) found.push(r.token);
        return found;
      };
      const few = await tokens(3);
      assertEquals(verdicts(folder).length, 0, "nothing is tested for a few tokens");
      assertEquals(await tokens(36), greedy.slice(0, 36));
      await model.traces.idle();
      const found = verdicts(folder).map(({ question, answer }) => [question.endsWith(" of 8 tokens"), answer]);
      assertEquals(found.toSorted(), [[false, expected], [true, expected]]);
      assertEquals(await tokens(3), few); // in one dispatch, where that works
    });
    model[Symbol.dispose]();
  });

  Deno.test(`prompts of several sequences have theirs behind the steps of all of them on ${device}`, async () => {
    const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
    const { prompt, greedy } = GOLDEN[0];
    await trying(device, async (folder) => {
      using scopes = new DisposableStack();
      scopes.use(withOptions({ batched: "on" }));
      const tokens: number[][] = [[], []];
      for await (const r of mx.lm.streamBatchGenerate(model, tokenizer, [prompt, prompt], { maxTokens: 36 })) {
        if (!concurrent) scopes.use(withOptions({ batched: "off" })); // the steps, which would take long
        tokens[r.sequence].push(r.token);
      }
      assertEquals(tokens, [greedy.slice(0, 36), greedy.slice(0, 36)]);
      await model.traces.idle();
      const found = verdicts(folder).filter(({ question }) => question.endsWith(" of 8 tokens in pages of 64"));
      assertEquals(found.map(({ answer }) => answer), [expected]);
    });
    model[Symbol.dispose]();
  });

  Deno.test(`a verdict is looked for again where there is none to be trusted on ${device}`, async () => {
    const { model } = await mx.lm.load(TINY_DIR, { device });
    await trying(device, async (folder) => {
      await tryLayers(model);
      const [{ path, question }] = verdicts(folder);
      const rows: readonly (readonly [string, string])[] = [
        [`${question}\ntrying 2\n`, expected],
        [`${question}\ntrying 3\n`, "trying 3"], // each may have taken a program with it
        [`${question}\nwor`, expected],
        [`${question} of another driver\nfails\n`, expected],
        [`${question}\nworks\n`, "works"],
        [`${question}\nfails\n`, "fails"],
        ["", expected],
      ];
      for (const [text, answer] of rows) {
        Deno.writeTextFileSync(path, text);
        forgetLaunchModes(mx.withDevice(device, getBackend));
        await tryLayers(model);
        assertEquals(verdicts(folder).map((v) => v.answer), [answer], text);
      }
    });
    model[Symbol.dispose]();
  });

  Deno.test(`architectures have verdicts of their own, whatever their biases are, on ${device}`, async () => {
    const shape = {
      hidden: 128,
      intermediate: 192,
      layers: 2,
      heads: 2,
      kvHeads: 1,
      headDim: 64,
      tied: true,
      vocab: 4096,
    };
    mx.setDefaultDevice(device);
    await trying(device, async (folder) => {
      for (const qkNorm of [true, false]) {
        const biased: Architecture = { qkNorm, qkvBias: true, activation: "silu", fifthBiases: [100, 300] };
        const model = await modelOf(biased, shape, { groupSize: 64 }, mx.float32);
        await tryLayers(model);
        model[Symbol.dispose]();
      }
      const found = verdicts(folder);
      assertEquals(found.map(({ answer }) => answer), [expected, expected]);
      assert(found[0].question !== found[1].question);
    });
  });

  Deno.test({ name: `several sequences have a verdict of their own on ${device}`, ignore: !concurrent }, async () => {
    const { model } = await mx.lm.load(TINY_DIR, { device });
    await trying(device, async (folder) => {
      using _options = withOptions({ batched: "on" });
      for (const count of [3, 2]) await tryLayers(model, count);
      const found = verdicts(folder);
      assertEquals(found.map(({ question }) => question.slice(-1)).toSorted(), ["2", "3"]);
      for (const { answer } of found) assertEquals(answer, expected);
    });
    model[Symbol.dispose]();
  });

  const { pairs } = matrixMap(mx.withDevice(device, getBackend));
  // Without matrix units the plain kernels serve, where they are asked for, and none take them by themselves.
  const after = [[3, "decode_mlp_u64"], ...(pairs ? [[6, "batch_begin"]] as const : [])] as const;
  for (const [count, kernel] of after) {
    Deno.test(`a loop of ${count} goes on where its test fails, and the next one runs ${kernel} on ${device}`, async () => {
      const { model } = await mx.lm.load(TINY_DIR, { device });
      await trying(device, async (folder) => {
        using _options = withOptions({ batched: pairs ? "auto" : "on", spinLimit: 1 }); // one look is never enough
        await withSteps(model, count, async (trace, state) => {
          const runs = async (loop: DeviceLoop<typeof state>, kernel: string): Promise<void> => {
            const kernels = await kernelsOf(device, async () => {
              loop.run();
              await loop.done();
            });
            assert(kernels.has(kernel), [...kernels].join(" "));
          };
          using loop = new DeviceLoop(state, trace);
          await runs(loop, "batch_begin");
          using _auto = withOptions({ batched: "auto" });
          await loop.improve();
          assertEquals(verdicts(folder).map(({ answer }) => answer), ["fails"]);
          await runs(loop, "batch_begin");
          using next = new DeviceLoop(state, trace);
          await runs(next, kernel);
        });
        // A program that finds the verdict does so for that reason.
        const { said } = await other(device, folder, "", String(count));
        const why = `${count} sequences: a grid of the kernels of one, because ${count} sequences are faster that way`;
        assertEquals(said.includes(why), count === 3, said);
      });
      model[Symbol.dispose]();
    });
  }

  Deno.test(`a test goes with the weights that it reads on ${device}`, async () => {
    const backend = mx.withDevice(device, getBackend);
    const alive = backend.liveObjects();
    const { model } = await mx.lm.load(TINY_DIR, { device });
    await trying(device, async (folder) => {
      const trial = tryLayers(model).catch(() => {});
      model[Symbol.dispose]();
      await trial;
      for (const { answer } of verdicts(folder)) assert([expected, "trying 0"].includes(answer), answer);
    });
    assertEquals(backend.liveObjects(), alive);
  });

  Deno.test(`programs may be killed or be done while they test, and test at the same time, on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    assert((await other(device, folder, "kill")).code !== 0);
    assertEquals(verdicts(folder).map(({ answer }) => answer), ["trying 1"]);
    assertEquals((await other(device, folder, "exit")).code, 3);
    assertEquals(verdicts(folder).map(({ answer }) => answer), ["trying 1"], "ending is no failure");
    assertEquals((await other(device, folder, "leave")).code, 0);
    assertEquals(verdicts(folder).map(({ answer }) => answer), [expected], "a program ends behind its test");
    Deno.removeSync(verdicts(folder)[0].path);
    const both = await Promise.all([other(device, folder), other(device, folder)]);
    assertEquals(both.map(({ code }) => code), [0, 0]);
    assertEquals(verdicts(folder).map(({ answer }) => answer), [expected]);
    await Deno.remove(folder, { recursive: true });
  });
}
