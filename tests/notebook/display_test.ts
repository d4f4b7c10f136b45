/** The output of arrays, streams and progress in a cell of a notebook, with `Deno.jupyter`, and on a terminal. */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { ROOT } from "../../scripts/tools.ts";

mx.setDefaultDevice("wasm");

function html(array: mx.Tensor): string {
  const shown = array as unknown as Record<symbol, () => Record<string, string>>;
  const bundle = shown[Symbol.for("Jupyter.display")]();
  assertEquals(bundle["text/plain"], array.toString());
  return bundle["text/html"];
}

const entries = (text: string): string[] => Array.from(text.matchAll(/<td>([^<]*)<\/td>/g), ([, entry]) => entry);

Deno.test("an array is a table with the entries that its text has", () => {
  const table = html(mx.array([[1.5, NaN], [-Infinity, 1e-7]]));
  assertEquals(entries(table), ["1.5", "nan", "-inf", "1e-07"]);
  assertMatch(table, /\(2, 2\) float32/);
  assertEquals(entries(html(mx.array([true, false]))), ["True", "False"]);
  assertEquals(entries(html(mx.array(3, mx.int32))), ["3"]);
});

Deno.test("tables are cut as numpy does it, behind a thousand entries", () => {
  assertEquals(entries(html(mx.arange(1000))).length, 1000);
  assertEquals(entries(html(mx.arange(1001))), ["0", "1", "2", "…", "998", "999", "1000"]);
  assertEquals(entries(html(mx.zeros([40, 40]))).length, 49);
});

Deno.test("matrices of numbers have a heat map, others have none", () => {
  assertMatch(html(mx.array([[1, 2], [3, 4]])), /<img alt="heat map, 1 to 4"/);
  for (
    const array of [mx.zeros([4]), mx.zeros([1, 4]), mx.zeros([2, 2, 2]), mx.zeros([2, 2], mx.bool), mx.zeros([0, 2])]
  ) {
    assert(!html(array).includes("<img"), `${array.shape}`);
  }
});

Deno.test("the output is small whatever the array is", () => {
  for (const shape of [[3000, 2000], [9, 9, 9, 9, 9, 3], [100_000]]) {
    assert(html(mx.random.normal(shape)).length < 100_000, `${shape}`);
  }
});

Deno.test("a disposed array is told as one", () => {
  const array = mx.zeros([2]);
  array.dispose();
  assertEquals(html(array), undefined as unknown as string);
});

/** The stdout of a program. */
async function output(code: string): Promise<string> {
  const head = `const mx = await import("${new URL("mod.ts", `file://${ROOT}`)}");`;
  const child = new Deno.Command(Deno.execPath(), { args: ["eval", "--no-lock", `${head}${code}`], cwd: ROOT });
  const { success, stdout, stderr } = await child.output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}

/** A program in a notebook: it prints the messages that a cell would get. */
const CELL = `const sent = [];
  const jupyter = { broadcast: (type, content) => { sent.push([type, content]); return Promise.resolve(); } };
  Object.defineProperty(globalThis, "Deno", { value: Object.create(Deno, { jupyter: { value: jupyter } }) });`;

Deno.test("print() writes a stream to stdout and returns its last response with the whole text", async () => {
  const code = `const stream = async function* () { yield { text: "a\\x1b[2J", n: 1 }; yield { text: "b", n: 2 }; };
    console.error(JSON.stringify(await mx.lm.print(stream())));
    const { text } = await mx.lm.print(["x", "y\\n"]);
    if (text !== "xy\\n") throw new Error(text);`;
  assertEquals(await output(code), "a\x1b[2Jb\nxy\n"); // a pipe gets what the model wrote
});

Deno.test("print() gathers text for a cell, and shows control characters there", async () => {
  const code = `${CELL}
    const stream = async function* () {
      for (let i = 0; i < 100; i++) yield { text: i + "\\x1b[31m\\r", token: i, generationTokens: i, generationTps: 5, finishReason: "stop" };
      yield { text: "\\nend", generationTokens: 101, generationTps: 5.25, finishReason: "stop" };
    };
    const printed = await mx.lm.print(stream());
    console.log(JSON.stringify({ sent, printed, shown: printed[Symbol.for("Jupyter.display")]() }));`;
  const { sent, printed, shown } = JSON.parse(await output(code));
  assert(sent.length < 20, `${sent.length} messages`);
  const text = sent.map(([type, content]: [string, { name: string; text: string }]) => {
    assertEquals([type, content.name], ["stream", "stdout"]);
    return content.text;
  }).join("");
  // deno-lint-ignore no-control-regex
  assert(!/[\x1b\r]/.test(text));
  assert(text.startsWith("0␛[31m␍1␛[31m␍2") && text.endsWith("99␛[31m\nend\n"), text);
  assertEquals(printed.finishReason, "stop");
  assert(printed.text.endsWith("\r\nend"));
  assertEquals(shown, { "text/plain": "101 tokens, 5.3 tokens/s, finishReason: stop" });
});

Deno.test("print() throws what the stream throws, behind the text before", async () => {
  const code = `${CELL}
    const stream = async function* () { yield "before"; throw new RangeError("broken"); };
    const error = await mx.lm.print(stream()).catch((error) => error.message);
    console.log(JSON.stringify({ sent, error }));`;
  const { sent, error } = JSON.parse(await output(code));
  assertEquals(error, "broken");
  assertEquals(sent.map((message: [string, { text: string }]) => message[1].text).join(""), "before\n");
});

Deno.test("print() refuses what is no stream", async () => {
  await assertRejects(() => mx.lm.print(5 as unknown as string[]), mx.ValueError, "expected a stream of texts");
  await assertRejects(() => mx.lm.print([5 as unknown as string]), mx.ValueError, "expected a stream of texts");
});

Deno.test("progress changes in place in a cell and writes nothing to a pipe", async () => {
  const piped = `using bar = mx.progress("x", 3); for (let i = 0; i <= 3; i++) bar.update(i);`;
  assertEquals(await output(piped), "");
  const cell = `${CELL}
    { using bar = mx.progress("<b>", 3); for (let i = 0; i <= 3; i++) bar.update(i); }
    await new Promise((resolve) => setTimeout(resolve, 5));
    console.log(JSON.stringify(sent));`;
  const sent: [string, { data: Record<string, string>; transient: { display_id: string } }][] = JSON.parse(
    await output(cell),
  );
  assertEquals(sent[0][0], "display_data");
  assert(sent.length > 1 && sent.slice(1).every(([type]) => type === "update_display_data"));
  assertEquals(new Set(sent.map(([, content]) => content.transient.display_id)).size, 1);
  const last = sent.at(-1)![1].data;
  assertMatch(last["text/html"], /&lt;b&gt; <progress max="3" value="3"/);
  assertMatch(last["text/plain"], /#{30}\] 3\/3/);
});

Deno.test("a training plots its losses in a cell, in place, unless it is given a callback", async () => {
  const cell = (more: string) =>
    `${CELL}
    mx.setDefaultDevice("wasm");
    const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { onProgress: () => {} });
    const { train, prepareModel, createDataset } = mx.lm.tuner;
    prepareModel(model, { fineTuneType: "lora", numLayers: 1, loraParameters: { rank: 2, scale: 20, dropout: 0 } });
    const set = createDataset([{ text: "Once upon a time" }, { text: "there was a girl" }], tokenizer);
    const args = { batchSize: 1, iters: 3, stepsPerReport: 1, adapterFile: null };
    const trained = await train(model, new mx.optimizers.SGD({ learningRate: 1e-3 }), set, { valDataset: set, args${more} });
    await new Promise((resolve) => setTimeout(resolve, 5));
    console.log(JSON.stringify({ sent, plot: mx.lm.tuner.lossPlot(trained).svg }));`;
  const { sent, plot } = JSON.parse(await output(cell("")));
  assertEquals(sent[0][0], "display_data");
  assertEquals(
    new Set(sent.map(([, content]: [string, { transient: unknown }]) => JSON.stringify(content.transient))).size,
    1,
  );
  assertEquals(sent.at(-1)[1].data["image/svg+xml"], plot);
  assert(plot.includes("training") && plot.includes("validation"));
  assertEquals(JSON.parse(await output(cell(", callback: {}"))).sent, []);
});

Deno.test("progress refuses what it cannot count", () => {
  assertThrows(() => mx.progress("x", NaN), mx.ValueError, "total");
  assertThrows(() => mx.progress("x", 1, "bits" as "bytes"), mx.ValueError, '"steps" or "bytes"');
});
