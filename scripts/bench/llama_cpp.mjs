// Native llama.cpp through node-llama-cpp: runs the cases of a benchmark on a GGUF file and prints their times as JSON, by name in
// milliseconds: for "prefill" of a prompt, for "decode" of a token, for "load" from opening the file to the first token.
//   deno run -A --node-modules-dir=manual llama_cpp.mjs MODEL.gguf SETTINGS     (see PeerSettings in compare.ts)
// Runs in the folder that node-llama-cpp is installed in.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { peakMemory, timesOf } from "./times.ts";

const [path, text] = process.argv.slice(2);
const { gpu, threads, batch, cases } = JSON.parse(text);
const require = createRequire(pathToFileURL(`${process.cwd()}/`));
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const llama = await getLlama({
  gpu: gpu ? "vulkan" : false,
  build: "never",
  logLevel: LlamaLogLevel.error,
  maxThreads: threads,
});
const started = performance.now();
const model = await llama.loadModel({ modelPath: path, gpuLayers: gpu ? "max" : 0 });
const shapeOf = ({ kind, prompt, rows = 1 }) => ({
  batchSize: kind === "prefill" ? Math.min(batch, Math.max(prompt, 512)) : 512,
  sequences: rows,
});
let context, sequences, shape;

// A context for a case: that of the one before where it does, with room for all cases that share it.
async function open(c) {
  const wanted = JSON.stringify(shapeOf(c));
  if (wanted === shape) return;
  shape = wanted;
  const sharing = [c, ...cases.filter((other) => JSON.stringify(shapeOf(other)) === wanted)];
  await context?.dispose();
  context = await model.createContext({
    ...shapeOf(c),
    contextSize: Math.max(...sharing.map(({ prompt, tokens = 0 }) => prompt + tokens)) + 64,
    ...threads ? { threads: { ideal: threads, min: threads } } : {},
  });
  sequences = Array.from({ length: c.rows ?? 1 }, () => context.getSequence());
}

const ids = (n, from = 0) => Array.from({ length: n }, (_, i) => 100 + ((i + from) * 7919) % 4000);

// Milliseconds of a prompt, without a first token: its samplers run on the CPU and would count for more than the prompt.
async function prefill(n) {
  await sequences[0].clearHistory();
  const start = performance.now();
  await sequences[0].evaluateWithoutGeneratingNewTokens(ids(n));
  return performance.now() - start;
}

// Milliseconds of a token: the shortest mean of `window` tokens in a row.
async function generate(sequence, { prompt, tokens, window = tokens, sampled }, row = 0) {
  await sequence.clearHistory();
  await sequence.evaluateWithoutGeneratingNewTokens(ids(prompt, row));
  const settings = sampled ? { temperature: 0.6, topK: 20, topP: 0.95, seed: 1 } : { temperature: 0 };
  const moments = [];
  for await (const _ of sequence.evaluate([500 + row], { ...settings, yieldEogToken: true })) {
    if (moments.push(performance.now()) > tokens) break;
  }
  return Math.min(...moments.slice(window).map((t, i) => (t - moments[i]) / window));
}

const KINDS = {
  prefill: (c) => prefill(c.prompt),
  // Rows in one batch: milliseconds of a token of all of them together.
  decode: async (c) => {
    const each = await Promise.all(sequences.map((sequence, i) => generate(sequence, c, i)));
    return Math.max(...each) / each.length;
  },
};

await open({ kind: "decode", prompt: 16 });
await prefill(16);
for await (const _ of sequences[0].evaluate([500], { temperature: 0, yieldEogToken: true })) break;
const load = [performance.now() - started];
const memory = peakMemory();
const times = await timesOf(cases, async (c) => {
  await open(c);
  return KINDS[c.kind](c);
});
const device = gpu ? (await llama.getGpuDeviceNames()).join(", ") : "CPU";
console.log(JSON.stringify({ device, times: { load, ...times }, memory }));
process.exit(0);
