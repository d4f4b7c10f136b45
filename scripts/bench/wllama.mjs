// llama.cpp compiled to WebAssembly (npm @wllama/wllama): runs the cases of a benchmark on a GGUF file and prints their times as
// JSON like llama_cpp.mjs.
//   deno run -A --node-modules-dir=manual wllama.mjs MODEL.gguf SETTINGS     (see PeerSettings in compare.ts)
// Runs in the folder that the package is installed in.
//
// The package is written for browsers. Deno has all that it needs, but under other names: workers must be modules, nothing may
// look like Node, the page has no address, and there is no cache for downloads.
import { openAsBlob, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { peakMemory, timesOf } from "./times.ts";

const [path, text] = process.argv.slice(2);
const { threads = 1, batch, cases } = JSON.parse(text);
const require = createRequire(pathToFileURL(`${process.cwd()}/`));
const script = require.resolve("@wllama/wllama/esm/index.js");

const SHIM = `globalThis.process = undefined;
{
  const Own = globalThis.Worker;
  globalThis.Worker = class extends Own { constructor(url, o) { super(url, { name: o?.name, type: "module" }); } };
}
`;
globalThis.location = { href: pathToFileURL(`${process.cwd()}/`).href };
const OwnBlob = globalThis.Blob;
globalThis.Blob = class extends OwnBlob {
  constructor(parts, options) {
    super(options?.type === "text/javascript" ? [SHIM, ...parts] : parts, options);
  }
};
const kernels = new OwnBlob([readFileSync(script.replace("index.js", "wasm/wllama.wasm"))], {
  type: "application/wasm",
});

const { Wllama } = await import(pathToFileURL(script).href);
const wllama = new Wllama({ default: URL.createObjectURL(kernels) }, {
  suppressNativeLog: true,
  cacheManager: {},
  modelManager: {},
  logger: { debug() {}, log() {}, warn() {}, error: console.error },
});

// The first 256 tokens of the file are single bytes: a text of n letters is a prompt of n tokens.
const prompt = (n) => Array.from({ length: n }, (_, i) => String.fromCharCode(97 + (i * 7) % 26)).join("");

// When tokens came, and what the server says that the prompt took.
async function complete(n, tokens, sampled) {
  const settings = sampled ? { temperature: 0.6, top_k: 20, top_p: 0.95, seed: 1 } : { temperature: 0 };
  const request = {
    prompt: prompt(n),
    max_tokens: tokens,
    stream: true,
    ignore_eos: true,
    cache_prompt: false,
    ...settings,
  };
  const moments = [];
  let timings;
  for await (const chunk of await wllama.createCompletion(request)) {
    moments.push(performance.now());
    timings = chunk.timings ?? timings;
  }
  if (timings.prompt_n < n) throw new Error(`the prompt had ${timings.prompt_n} tokens instead of ${n}`);
  return { moments, milliseconds: timings.prompt_ms };
}

const KINDS = {
  prefill: async (c) => (await complete(c.prompt, 1)).milliseconds,
  // Milliseconds of a token: the shortest mean of `window` tokens in a row.
  decode: async ({ prompt, tokens, window = tokens, sampled }) => {
    const { moments } = await complete(prompt, tokens + 1, sampled);
    return Math.min(...moments.slice(window).map((t, i) => (t - moments[i]) / window));
  },
};

const started = performance.now();
const room = Math.max(...cases.map(({ prompt, tokens = 1 }) => prompt + tokens)) + 64;
const model = new File([await openAsBlob(path)], "model.gguf");
await wllama.loadModel([model], { n_ctx: room, n_batch: batch, n_threads: threads, n_parallel: 1, n_gpu_layers: 0 });
await complete(16, 1);
const load = [performance.now() - started];
const memory = peakMemory();
const times = await timesOf(cases, (c) => KINDS[c.kind](c));
console.log(JSON.stringify({ device: `WASM, ${wllama.getNumThreads()} threads`, times: { load, ...times }, memory }));
process.exit(0);
