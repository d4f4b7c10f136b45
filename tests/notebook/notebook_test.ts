/**
 * Notebooks in Deno's kernel as `vkmx kernel` sets it up: the example runs and shows what it should, and interrupts leave the kernel alive.
 * nbclient drives them; where it cannot be had these tests are skipped.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { provideNbclient } from "../../scripts/nbclient.ts";
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

/** Runs a Python script beside this file with a kernel that `vkmx kernel` wrote to a folder. */
async function drive(script: string, folder: string, args: readonly string[], stdin = ""): Promise<string> {
  const env = { JUPYTER_DATA_DIR: folder, JUPYTER_PATH: folder, VKMX_DEVICE: "wasm", NO_COLOR: "1", ...python!.env };
  const added = await run([Deno.execPath(), "run", "-A", "src/cli/mod.ts", "kernel"], { env });
  assert(added.ok, added.stderr);
  const child = new Deno.Command(python!.command, {
    args: [`${ROOT}tests/notebook/${script}`, "vkmx", ...args],
    cwd: ROOT,
    env,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
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
      assertEquals(shape(saved), shape(ran)); // what the repository shows is what it does
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
      ];
      const lines = (await drive("interrupt.py", folder, [], JSON.stringify(cells))).trim().split("\n");
      const [load, first, endless, second, still, loop, awaiting, third] = lines.map((line) => JSON.parse(line));
      assertEquals([load.status, first.status], ["ok", "ok"]);
      assertMatch(first.text, /^, there was a little girl named/);
      assertEquals([endless.status, endless.error], ["error", "AbortError"]);
      assert(endless.text.length > 300);
      assertEquals(second, first);
      assertEquals(still.text, "true\n");
      assertEquals(loop.status, "error");
      assertEquals([awaiting.status, awaiting.text], ["ok", "awaited\n"]); // cannot be interrupted, and harms nothing
      assertEquals(third, first);
    }),
});
