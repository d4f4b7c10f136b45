/**
 * Notebooks in Deno's kernel as `vkmx kernel` sets it up: the example runs and shows what it should, and interrupts leave the kernel alive.
 * nbclient drives them; where it cannot be had these tests are skipped.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { provideNbclient } from "../../scripts/setup/nbclient.ts";
import { ROOT, run } from "../../scripts/tools.ts";
import { needing } from "../support/needs.ts";

const python = await provideNbclient();
const EXAMPLE = "examples/notebook.ipynb";

interface Output {
  readonly output_type: string;
  readonly name?: string;
  readonly text?: string | readonly string[];
  readonly data?: Readonly<Record<string, unknown>>;
}

interface Notebook {
  readonly cells: readonly { readonly cell_type: string; readonly outputs?: readonly Output[] }[];
}

/** Starts a Python script beside this file with a kernel that `vkmx kernel` wrote to a folder. */
async function start(script: string, folder: string, args: readonly string[]): Promise<Deno.ChildProcess> {
  const env = { JUPYTER_DATA_DIR: folder, JUPYTER_PATH: folder, VKMX_DEVICE: "wasm", NO_COLOR: "1", ...python!.env };
  const added = await run([Deno.execPath(), "run", "-A", "src/cli/mod.ts", "kernel"], { env });
  assert(added.ok, added.stderr);
  return new Deno.Command(python!.command, {
    args: [`${ROOT}tests/notebook/${script}`, "vkmx", ...args],
    cwd: ROOT,
    env,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Runs such a script to its end. */
async function drive(script: string, folder: string, args: readonly string[], stdin = ""): Promise<string> {
  const child = await start(script, folder, args);
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(stdin));
  await writer.close();
  const { success, stdout, stderr } = await child.output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

async function withFolder(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** The outputs of code cells, one list for each. */
function outputsOf(text: string): (readonly Output[])[] {
  const notebook: Notebook = JSON.parse(text);
  return notebook.cells.filter((cell) => cell.cell_type === "code").map((cell) => cell.outputs ?? []);
}

const joined = (text: unknown): string => Array.isArray(text) ? text.join("") : String(text ?? "");
const printed = (outputs: readonly Output[]): string =>
  outputs.filter(({ name }) => name === "stdout").map(({ text }) => joined(text)).join("");

Deno.test({
  ...await needing("the example notebook runs and shows tables, plots, bars and a streamed answer", "nbclient"),
  fn: () =>
    withFolder(async (folder) => {
      const target = `${folder}/out.ipynb`;
      await drive("run.py", folder, [EXAMPLE, target]);
      const ran = outputsOf(await Deno.readTextFile(target));
      const saved = outputsOf(await Deno.readTextFile(ROOT + EXAMPLE));
      const shape = (cells: typeof ran): unknown =>
        cells.map((outputs) => outputs.map(({ output_type, data = {} }) => [output_type, Object.keys(data).sort()]));
      assertEquals(shape(saved), shape(ran)); // the repository shows the real output
      assertEquals(saved.map(printed), ran.map(printed));

      const data = ran.flatMap((outputs) => outputs.flatMap((output) => output.data ? [output.data] : []));
      const of = (type: string): string[] =>
        data.filter((bundle) => type in bundle).map((bundle) => joined(bundle[type]));
      assert(of("text/html").some((html) => /<table>.*<img alt="heat map/s.test(html)), "no heat map of an array");
      const bars = of("text/html").filter((html) => html.includes("<progress"));
      assertEquals(bars.length, 2); // of loading, and of the loop: updated in place
      assertMatch(bars[0], /Loading.*(\d+)\/\1 MB/);
      assertMatch(bars[1], / 50\/50/);
      assertEquals(of("image/svg+xml").length, 3);
      assertEquals(of("application/vnd.vegalite.v5+json").length, 3);
      assertMatch(ran.map(printed).join(""), /^, there was a little girl named Nina\./m);
    }),
});

Deno.test({
  ...await needing("an interrupt ends an answer or an endless loop, and the kernel and the model go on", "nbclient"),
  fn: () =>
    withFolder(async (folder) => {
      const answer =
        'await mx.lm.print(mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { maxTokens: 12 }));';
      const cells = [
        {
          code: 'import * as mx from "../mod.ts"; ' +
            'const { model, tokenizer } = await mx.lm.load("models/tiny-qwen3", { onProgress: () => {} });',
        },
        { code: answer },
        { code: `let rounds = 0; for (;;) { ${answer.replace("12", "200")} rounds++; }`, interrupt_when: 300 },
        { code: answer },
        {
          code: "const before = rounds; await new Promise((r) => setTimeout(r, 300)); console.log(rounds === before);",
        },
        { code: "while (true) {}", interrupt_when: 0 },
        {
          code: "await new Promise((resolve) => setTimeout(resolve, 1500)); console.log('awaited');",
          interrupt_when: 0,
        },
        { code: answer },
        {
          code: "const w = mx.zeros([64, 64]); " +
            "for (let i = 0;; i++) { await mx.asyncEval(mx.matmul(w, w)); if (i % 50 === 0) console.log(i); }",
          interrupt_when: 10,
        },
        {
          code: "const set = mx.lm.tuner.createDataset([{ text: 'Once upon a time' }], tokenizer); " +
            "await mx.lm.tuner.train(model, new mx.optimizers.SGD({ learningRate: 0 }), set, " +
            "{ args: { iters: 1e6, batchSize: 1, adapterFile: null }, callback: { onStep: console.log } });",
          interrupt_when: 30,
        },
        { code: answer },
      ];
      const lines = (await drive("interrupt.py", folder, [], JSON.stringify(cells))).trim().split("\n");
      const [load, first, endless, second, still, loop, awaiting, third, evaluating, training, last] = lines.map((
        line,
      ) => JSON.parse(line));
      assertEquals([load.status, first.status], ["ok", "ok"]);
      assertMatch(first.text, /^, there was a little girl named/);
      assertEquals([endless.status, endless.error], ["error", "AbortError"]);
      assert(endless.text.length > 300);
      assertEquals(second, first);
      assertEquals(still.text, "true\n");
      assertEquals(loop.status, "error");
      assertEquals([awaiting.status, awaiting.text], ["ok", "awaited\n"]); // cannot be interrupted, and harms nothing
      assertMatch(awaiting.notes, /cannot be stopped, such as a timer: it goes on. Restarting the kernel ends it/);
      assertEquals(third, first);
      for (const { status, error } of [evaluating, training]) assertEquals([status, error], ["error", "AbortError"]);
      assertEquals([evaluating.notes, training.notes], ["", ""]);
      assertEquals(last, first);
    }),
});

/** Starts orphan.py; gives it with the process ids of the kernel and of its launcher. */
async function startOrphan(folder: string): Promise<{ readonly client: Deno.ChildProcess; readonly pids: string[] }> {
  const client = await start("orphan.py", folder, []);
  await client.stdin.close();
  const reader = client.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (!text.endsWith("\n")) {
    const { value, done } = await reader.read();
    assert(!done, "orphan.py ended");
    text += value;
  }
  await Promise.all([reader.cancel(), client.stderr.cancel()]);
  return { client, pids: text.trim().split(" ") };
}

/** Waits until processes are gone, a while. */
async function untilGone(...pids: readonly string[]): Promise<void> {
  const end = performance.now() + 20_000;
  while (pids.some(isRunning) && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 100));
  assertEquals(pids.filter(isRunning), []);
}

/** Whether a process is there; for Linux. */
function isRunning(pid: string): boolean {
  try {
    return !/^State:\s+Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

Deno.test({
  name: "the kernel and its launcher end when the program that started them is killed, also while a cell computes",
  ignore: !python || Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (folder) => {
      const { client, pids } = await startOrphan(folder);
      assertEquals(pids.map(isRunning), [true, true]);
      client.kill("SIGKILL");
      await client.status;
      await untilGone(...pids);
    }),
});

Deno.test({
  name: "a kernel that computes ends when its launcher is killed",
  ignore: !python || Deno.build.os !== "linux",
  fn: () =>
    withFolder(async (folder) => {
      const { client, pids: [kernel, launcher] } = await startOrphan(folder);
      Deno.kill(Number(launcher), "SIGKILL");
      await untilGone(kernel).finally(() => client.kill("SIGKILL"));
      await client.status;
    }),
});
