// Native llama.cpp on the CPU through node-llama-cpp: prints a JSON object of the best figures of a GGUF file.
//   node bench_cpu_peer.mjs MODEL.gguf THREADS REPEATS
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [path, threadText, repeatText] = process.argv.slice(2);
const [threads, repeats] = [Number(threadText), Number(repeatText)];
const require = createRequire(pathToFileURL(`${process.cwd()}/`));
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 });
const context = await model.createContext({
  contextSize: 1280,
  batchSize: 512,
  threads: { ideal: threads, min: threads },
});
const sequence = context.getSequence();
const ids = (n) => Array.from({ length: n }, (_, i) => 100 + (i * 7919) % 4000);

async function prefill(n) {
  await sequence.clearHistory();
  const start = performance.now();
  await sequence.evaluateWithoutGeneratingNewTokens(ids(n));
  return performance.now() - start;
}

// Shortest time of WINDOW tokens in a row, per token, as the other side is measured.
const WINDOW = 8;

async function decode(at, n) {
  await prefill(at);
  const times = [];
  for await (const _ of sequence.evaluate([500], { temperature: 0, yieldEogToken: true })) {
    times.push(performance.now());
    if (times.length > n) break;
  }
  return Math.min(...times.slice(WINDOW).map((t, i) => (t - times[i]) / WINDOW));
}

await prefill(32);
let fill = Infinity;
for (let i = 0; i < repeats; i++) fill = Math.min(fill, await prefill(128));
const figures = { prefill128: 128e3 / fill, "decode@16": 1e3 / await decode(12, 32) };
figures["decode@1024"] = 1e3 / await decode(1010, 16);
console.log(JSON.stringify(figures));
process.exit(0);
