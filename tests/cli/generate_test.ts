/**
 * examples/generate.ts, chat.ts and some scripts as processes: what goes where, and one line for every mistake.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { findLibrary } from "../../ffi/library.ts";
import { GOLDEN, TINY_DIR } from "../support/models/models.ts";
import { otherBuild } from "../support/processes/other_build.ts";

const SCRIPT = new URL("../../examples/generate.ts", import.meta.url);
const CONFIG = new URL("../../deno.json", import.meta.url);

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

interface Run {
  readonly stdin?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  /** Flags for Deno. */
  readonly flags?: readonly string[];
  readonly script?: URL;
}

function command(args: readonly string[], { cwd, env, flags = [], script = SCRIPT }: Run = {}): Deno.Command {
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", ...flags, "--config", CONFIG.pathname, script.pathname, ...args],
    cwd,
    env: { VKMX_DEVICE: "wasm", NO_COLOR: "1", ...env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  });
}

async function run(args: readonly string[], options: Run = {}): Promise<Result> {
  const child = command(args, options).spawn();
  const writer = child.stdin.getWriter();
  if (options.stdin !== undefined) await writer.write(new TextEncoder().encode(options.stdin));
  await writer.close();
  const { code, stdout, stderr } = await child.output();
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

const TEXT = GOLDEN[0].text.replace("<|endoftext|>", "");

Deno.test("generate.ts streams text to stdout and figures to stderr", async () => {
  const { code, stdout, stderr } = await run(["--temp", "0", "Once upon a time"], { cwd: Deno.makeTempDirSync() });
  assertEquals([code, stdout], [0, `${TEXT}\n`]);
  assertMatch(stderr, /^Prompt: 4 tokens, [\d.]+ tokens-per-sec$/m);
  assertMatch(stderr, /^Generation: 141 tokens, [\d.]+ tokens-per-sec$/m);
  assertMatch(stderr, /^Peak memory: [\d.]+ GB$/m);
  assertMatch(stderr, /^Device: wasm/m);
  assert(!stderr.includes("\r"), "no progress bar without a terminal");
});

Deno.test("generate.ts --json prints one object", async () => {
  const { code, stdout } = await run(["--json", "--temp", "0", "--max-tokens", "3", "-"], {
    stdin: "Once upon a time\n",
  });
  const object = JSON.parse(stdout);
  assertEquals(code, 0);
  assertEquals(stdout.trimEnd().split("\n").length, 1);
  assertEquals(object.tokens, GOLDEN[0].greedy.slice(0, 3));
  assertEquals([object.text, object.prompt_tokens, object.finish_reason], [", there was", 4, "length"]);
  const numbers = ["prompt_tps", "generation_tps", "time_to_first_token_s", "load_s", "peak_memory_bytes"];
  for (const name of numbers) assert(object[name] > 0, name);
  assertEquals([object.device, object.model], ["wasm", "tiny-qwen3"]);
});

Deno.test("generate.ts --profile and VKMX_PROFILE=1 print where the time goes to stderr", async () => {
  const args = ["--temp", "0", "--max-tokens", "3", "Once upon a time"];
  for (
    const [more, env] of [[["--profile"], {}], [[], { VKMX_PROFILE: "1" }]] as [string[], Record<string, string>][]
  ) {
    const { code, stdout, stderr } = await run([...more, ...args], { env });
    assertEquals([code, stdout], [0, ", there was\n"]);
    assertMatch(stderr, /^wasm {2}op by op +\d+ +[\d.]+ +100\.0 %/m);
    assertMatch(stderr, /^quantizedMatmul +\d+ +[1-9\d.]+/m);
    assertMatch(stderr, /^host: .* lowering, .* compiling, .* enqueuing \d+ submissions of \d+ runs/m);
    assertMatch(stderr, /^ran on the CPU: wasm$/m);
  }
});

Deno.test("generate.ts answers in the chat template and leaves the EOS token out", async () => {
  const { stdout } = await run(["--json", "--temp", "0", "--no-think", "What is 17 + 25?"]);
  const { text, tokens, finish_reason } = JSON.parse(stdout);
  assertEquals([text, tokens, finish_reason], ["The answer is 42.", GOLDEN[5].greedy.slice(0, -1), "stop"]);
  const thinking = await run(["--temp", "0", "--chat", "Hi what is your name"]);
  assertEquals(thinking.stdout, GOLDEN[3].text.replace("<|im_end|>", "\n"));
});

Deno.test("generate.ts answers a prompt that the embedded model has nothing to add to", async () => {
  const { code, stdout } = await run(["--temp", "0", "What is Vulkan?"]);
  assertEquals(code, 0);
  assertStringIncludes(stdout, "Vulkan is an open interface");
});

Deno.test("generate.ts hands penalties and a stop text on", async () => {
  const args = ["--temp", "0", "--max-tokens", "40", "Once upon a time"];
  const plain = (await run(args)).stdout;
  assertEquals((await run(["--stop", " was a", ...args])).stdout, `${plain.slice(0, plain.indexOf(" was a"))}\n`);
  const others = await Promise.all(
    [["--repetition-penalty", "3"], ["--presence-penalty=9"], ["--frequency-penalty=3"]].map(async (flags) =>
      (await run([...flags, ...args])).stdout
    ),
  );
  assert(others.every((text) => text.length > 1 && text !== plain), others.join());
});

Deno.test("generate.ts repeats itself with a seed", async () => {
  const args = ["--seed", "5", "--max-tokens", "12", "--temp", "1", "Once"];
  assertEquals((await run(args)).stdout, (await run(args)).stdout);
});

Deno.test("chat.ts answers line by line and reads only what is new", async () => {
  const script = new URL("../../examples/chat.ts", import.meta.url);
  const stdin = "Hi what is your name\n\nWhat is 17 + 25?\r\n/clear\nWhat is 17 + 25?";
  const { code, stdout, stderr } = await run(["--temp", "0", "--no-think"], { script, stdin });
  const answers = stdout.trimEnd().split("\n");
  assertEquals([code, answers.length, ...answers.slice(1)], [0, 3, "The answer is 42.", "The answer is 42."]);
  const figures = Array.from(
    stderr.matchAll(/^\[(\d+) of (\d+) tokens read, \d+ at [\d.]+\/s, context \d+ of 4096 \(\d+ %\)\]$/gm),
    ([, ...n]) => n.map(Number),
  );
  const [[first, all], [second, both], [third, again]] = figures;
  assertEquals(first, all);
  assert(second < both && third < again && again === GOLDEN[5].ids.length, stderr); // the second and third begin alike
  const long = await run(["--temp", "0", "--no-think"], {
    script,
    stdin: `${"a ".repeat(5000)}\nWhat is 17 + 25?`,
  });
  assertMatch(long.stderr, /^error: The prompt has \d+ tokens [^\n]*: shorten the prompt$/m);
  assertEquals([long.code, long.stdout.trim()], [0, "The answer is 42."]);
  const wrong = await run(["Hi"], { script, stdin: "" });
  assertEquals([wrong.code, wrong.stderr], [2, 'error: Expected flags only, found "Hi" (--help lists all)\n']);
});

Deno.test("--device takes devices that share the layers, as --split says", async () => {
  const common = ["--temp", "0", "--max-tokens", "3", "Once upon a time"];
  const { code, stdout, stderr } = await run(["--device", "cpu,wasm-threads=1", "--split", "5,3", ...common]);
  assertEquals([code, TEXT.startsWith(stdout.trimEnd())], [0, true], stderr);
  assertMatch(stderr, /^Device: wasm \(layers 0-4\), wasm-threads=1 \(layers 5-7\)$/m);
  const refused = [
    [["--split", "5,3"], '--split "5,3" needs several devices: --device A,B'],
    [
      ["--device", "cpu,wasm-threads=1", "--split", "5"],
      '--split is "5", expected layers or 2 positive numbers, one for each device',
    ],
    [["--device", "cpu,cpu", "--split", "5,3"], '--split needs devices that differ: --device names "cpu" twice'],
    [
      ["--device", "cpu,wasm-threads=1", "--speculate", "mtp"],
      "--speculate mtp needs one device, and --device names 2",
    ],
    [
      ["--device", "cpu,wasm-threads=1", "--adapter-path", "a"],
      "--adapter-path needs one device, and --device names 2",
    ],
  ] as const;
  for (const [args, message] of refused) {
    const { code, stderr } = await run([...args, "x"]);
    assertEquals([code, stderr], [2, `error: ${message}\n`]);
  }
});

Deno.test("--device takes cpu, gpu and list, and a name that is not there is wrong usage", async () => {
  const chat = new URL("../../examples/chat.ts", import.meta.url);
  for (const script of [SCRIPT, chat]) {
    for (const name of ["tpu", "vulkan:99", "wasm:0", "tp\nu"]) {
      const { code, stdout, stderr } = await run(["--device", name], { script, stdin: "" });
      assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [2, "", 1], stderr);
      assertMatch(stderr, /^error: there is no device "[^"]*"; there are [^\n]*wasm \(CPU \(WebAssembly\)\)\n$/);
    }
    const list = await run(["--device", "list"], { script, stdin: "" });
    assertEquals([list.code, list.stderr], [0, ""]);
    assertMatch(list.stdout, /^\* wasm +CPU \(WebAssembly\)$/m);
  }
  const cpu = await run(["--json", "--device", "cpu", "--max-tokens", "1", "Once"], { env: { VKMX_DEVICE: "" } });
  assertEquals([cpu.code, JSON.parse(cpu.stdout).device], [0, "wasm"]);
  const gpu = await run(["--json", "--device", "gpu", "--max-tokens", "1", "Once"]);
  if (gpu.code === 0) assertMatch(JSON.parse(gpu.stdout).device, /^vulkan:\d+$/);
  else {
    assertEquals([gpu.code, gpu.stdout], [1, ""]);
    assertMatch(gpu.stderr, /^error: there is no GPU that vkmx can use: [^\n]+\n$/);
  }
});

Deno.test("an answer that ends at a limit says so on stderr", async () => {
  const note = /^\[the answer was cut off at (.*)\]$/gm;
  const told = (stderr: string): string[] => Array.from(stderr.matchAll(note), ([, why]) => why);
  const three = ["the limit of 3 tokens: --max-tokens sets it"];
  const short = ["--temp", "0", "--max-tokens", "3"];
  assertEquals(told((await run([...short, "Once upon a time"])).stderr), three);
  assertEquals(told((await run(["--json", ...short, "Once upon a time"])).stderr), three);
  assertEquals(told((await run(["--temp", "0", "--no-think", "What is 17 + 25?"])).stderr), []);
  const chat = new URL("../../examples/chat.ts", import.meta.url);
  assertEquals(told((await run([...short, "--no-think"], { script: chat, stdin: "Hi\nWhat" })).stderr), [
    ...three,
    ...three,
  ]);
});

Deno.test("generate.ts --help lists every flag", async () => {
  const { code, stdout } = await run(["--help"]);
  assertEquals(code, 0);
  const flags = [
    "model",
    "chat",
    "raw",
    "system",
    "max-tokens",
    "temp",
    "top-p",
    "top-k",
    "min-p",
    "repetition-penalty",
    "presence-penalty",
    "frequency-penalty",
    "stop",
    "seed",
    "no-think",
    "device",
    "json",
  ];
  for (const flag of flags) assertStringIncludes(stdout, `--${flag} `);
  assert(stdout.split("\n").every((line) => line.length <= 120));
  assertEquals((await run(["-h"])).stdout, stdout);
});

/** A copy of the embedded model with some files changed; `undefined` removes a file. */
async function broken(change: Record<string, string | Uint8Array | undefined>): Promise<string> {
  const dir = await Deno.makeTempDir();
  for await (const { name } of Deno.readDir(TINY_DIR)) {
    if (!(name in change)) await Deno.copyFile(new URL(name, TINY_DIR), `${dir}/${name}`);
  }
  for (const [name, content] of Object.entries(change)) {
    if (content === undefined) continue;
    await Deno.writeFile(`${dir}/${name}`, typeof content === "string" ? new TextEncoder().encode(content) : content);
  }
  return dir;
}

const read = (name: string): string => Deno.readTextFileSync(new URL(name, TINY_DIR));
const edited = (change: Record<string, unknown>): string =>
  JSON.stringify({ ...JSON.parse(read("config.json")), ...change });

/** A tensor of a safetensors header. */
interface Description {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Bytes before the data, with another header. */
function headed(header: Record<string, Description>): Uint8Array {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

const weights = await Deno.readFile(new URL("model.safetensors", TINY_DIR));
const dataStart = 8 + Number(new DataView(weights.buffer).getBigUint64(0, true));
const { __metadata__: _, ...tensors } = JSON.parse(new TextDecoder().decode(weights.subarray(8, dataStart)));

/** The embedded weights with another description of the last norm; the data stay. */
function norm(change: Partial<Description>): Uint8Array {
  const name = "model.norm.weight";
  const head = headed({ ...tensors, [name]: { ...tensors[name], ...change } });
  const bytes = new Uint8Array(head.length + weights.length - dataStart);
  bytes.set(head);
  bytes.set(weights.subarray(dataStart), head.length);
  return bytes;
}

/** Weights for a vocabulary of any size as a file of holes. */
async function writeSparse(path: string, vocab: number): Promise<void> {
  let end = 0;
  const header = Object.entries<Description>(tensors).map(([name, { dtype, shape }]) => {
    const sizes = name.startsWith("model.embed_tokens.") ? [vocab, ...shape.slice(1)] : shape;
    const begin = end;
    end += sizes.reduce((product, size) => product * size, dtype === "U32" ? 4 : 2);
    return [name, { dtype, shape: sizes, data_offsets: [begin, end] }];
  });
  const head = headed(Object.fromEntries(header));
  await Deno.writeFile(path, head);
  await Deno.truncate(path, head.length + end);
}

Deno.test("generate.ts names what is wrong with a model in one line and exits with 1", async () => {
  const hugeHeader = weights.slice();
  new DataView(hugeHeader.buffer).setBigUint64(0, 2n ** 40n, true);
  const cases: readonly (readonly [Record<string, string | Uint8Array | undefined>, string])[] = [
    [{ "config.json": undefined }, "config.json does not exist"],
    [{ "config.json": edited({ hidden_size: undefined }) }, '"hidden_size" is missing'],
    [
      { "config.json": edited({ model_type: "mystery" }) },
      'model_type "mystery" is not known: known are gemma, gemma2, gemma3, gemma3_text, gemma4, gemma4_text, ',
    ],
    [{ "config.json": edited({ hidden_size: 512 }) }, "do not fit config.json"],
    [{ "config.json": edited({ num_hidden_layers: 9 }) }, "are missing: model.layers.8"],
    [{ "config.json": edited({ num_hidden_layers: 7 }) }, 'are not part of the model: "model.layers.7'],
    [{ "model.safetensors": undefined }, "has no model*.safetensors"],
    [{ "model.safetensors": weights.subarray(0, 5) }, "model.safetensors"],
    [{ "model.safetensors": weights.subarray(0, weights.length - 100) }, "model.safetensors"],
    [{ "model.safetensors": hugeHeader }, "model.safetensors"],
    [
      { "model.safetensors": norm({ data_offsets: [0, 512] }) },
      '"model.norm.weight" and "model.embed_tokens.weight" overlap',
    ],
    [{ "model.safetensors": norm({ data_offsets: [2 ** 40, 2 ** 40 + 512] }) }, "it is cut off"],
    [{ "model.safetensors": norm({ shape: [16, 16] }) }, '"model.norm.weight" is bfloat16 (16, 16), expected'],
    [{ "model.safetensors": norm({ dtype: "I16" }) }, '"model.norm.weight" is int16 (256), expected float32 or'],
    [{ "tokenizer.json": undefined }, "tokenizer.json does not exist"],
    [
      { "tokenizer.json": read("tokenizer.json").replace('"id": 4095', '"id": 5000') },
      "has ids up to 5000 but the model has only 4096",
    ],
    [{ "generation_config.json": '{"temperature": "x"}' }, '"temperature" is "x"'],
  ];
  for (const [change, message] of cases) {
    const dir = await broken(change);
    const { code, stdout, stderr } = await run(["--model", dir, "x"]);
    assertEquals([code, stdout], [1, ""], stderr);
    assertMatch(stderr, /^error: [^\n]*\n$/);
    assertStringIncludes(stderr, message);
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("generate.ts names a missing directory and a prompt that is too long", async () => {
  const fails = async (args: string[], message: string, options: Run = {}) => {
    const { code, stdout, stderr } = await run(args, options);
    assertEquals([code, stdout], [1, ""], stderr);
    assertStringIncludes(stderr, message);
    assertMatch(stderr, /^error: [^\n]*\n$/);
  };
  await fails(["--model", "/nowhere", "x"], "The model directory /nowhere does not exist");
  const env = { HF_HUB_OFFLINE: "1", HF_HUB_CACHE: "/nowhere" };
  const hint = 'There is no folder Qwen/Qwen3-8B, and as a model of the hub: Qwen/Qwen3-8B ("main") is not in /nowhere';
  await fails(["--model", "Qwen/Qwen3-8B", "x"], hint, { env });
  await fails(["--model", "", "x"], "The model directory is an empty text");
  const gguf = await Deno.makeTempDir();
  await Deno.writeTextFile(`${gguf}/q4.gguf`, "GGUF");
  await fails(["--model", `${gguf}/q4.gguf`, "x"], "q4.gguf: is too short for a GGUF file");
  await fails(["--model", gguf, "x"], "q4.gguf: is too short for a GGUF file");
  await fails(["--model", `${gguf}/none.gguf`, "x"], "none.gguf: does not exist");
  await Deno.remove(gguf, { recursive: true });
  await fails(["-"], "The prompt has 5001 tokens and the context has room for 4096", { stdin: "a ".repeat(5000) });
});

Deno.test("generate.ts names a model directory that is a file, and one that does not fit into memory", async () => {
  const file = await run(["--model", SCRIPT.pathname, "x"]);
  assertEquals(file.code, 1);
  assertMatch(file.stderr, /^error: The model directory \S+ is a file: name the folder that it lies in\n$/);
  const dir = await broken({ "config.json": edited({ vocab_size: 2 ** 25 }), "model.safetensors": undefined });
  await writeSparse(`${dir}/model.safetensors`, 2 ** 25);
  const large = await run(["--model", dir, "x"], { env: { VKMX_THREADS: "1" } }); // 4 GiB at most
  assertEquals([large.code, large.stdout], [1, ""], large.stderr);
  assertMatch(large.stderr, /^error: [^\n]* needs 4\.\d\d GB [^\n]* wasm has only \d+\.\d\d GB free: [^\n]*\n$/);
  await Deno.remove(dir, { recursive: true });
});

Deno.test("generate.ts says in one line that WASM memory cannot grow", async () => {
  const full = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(
    full,
    `const { Instance } = WebAssembly;
    WebAssembly.Instance = class extends Instance {
      constructor(module: WebAssembly.Module, imports?: { env?: { memory: WebAssembly.Memory } }) {
        super(module, imports as unknown as WebAssembly.Imports);
        const exports = this.exports as { memory: WebAssembly.Memory; vk_alloc(n: number, kind: number): number };
        const memory = imports?.env?.memory ?? exports.memory;
        exports.vk_alloc(1, 0); // takes the pages there are
        if (!imports) memory.grow(65536 - memory.buffer.byteLength / 65536); // all others are somebody else's
        else (memory.grow as (pages: unknown) => void)(2n ** 18n - BigInt(memory.buffer.byteLength / 65536));
      }
    };`,
  );
  const { code, stdout, stderr } = await run(["x"], { flags: [`--preload=${full}`] });
  assertEquals([code, stdout], [1, ""], stderr);
  assertMatch(stderr, /^error: [^\n]*MB[^\n]*\n$/);
  await Deno.remove(full);
});

Deno.test("generate.ts goes on with WASM where the library is of another build, and refuses it by name", async () => {
  const library = findLibrary();
  if (library === undefined) return;
  const other = await otherBuild(library);
  const cache = await Deno.makeTempDir();
  const env = { VKMX_LIBRARY: other, VKMX_DEVICE: "", VKMX_CACHE: cache };
  const fallback = await run(["--temp", "0", "--max-tokens", "3", "Once upon a time"], { env });
  assertEquals([fallback.code, fallback.stdout], [0, ", there was\n"], fallback.stderr);
  assertMatch(fallback.stderr, /^vkmx: running on the CPU \(wasm\): \S+ has the ABI 0x12345678, [^\n]*\n/);
  const named = await run(["--device", "vulkan:0", "x"], { env });
  assertEquals([named.code, named.stdout], [1, ""]);
  assertMatch(named.stderr, /^error: [^\n]*0x12345678[^\n]*deno task build[^\n]*\n$/);
  await Deno.remove(other);
  await Deno.remove(cache, { recursive: true });
});

Deno.test({
  ignore: Deno.build.os !== "linux",
  name: "generate.ts names a stream that cannot be read or written",
  fn: async () => {
    const redirected = async (redirection: string): Promise<[number, string]> => {
      const words = [Deno.execPath(), "run", "-A", "--no-check", SCRIPT.pathname, "--max-tokens", "1", "-"];
      const { code, stderr } = await new Deno.Command("sh", {
        args: ["-c", `echo hi | "$@" ${redirection}`, "sh", ...words],
        env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
      }).output();
      return [code, new TextDecoder().decode(stderr)];
    };
    assertEquals(await redirected("< /"), [1, "error: stdin cannot be read: Is a directory (os error 21)\n"]);
    const full = "error: stdout cannot be written: No space left on device (os error 28)\n";
    assertEquals(await redirected("> /dev/full"), [1, full]);
  },
});

Deno.test("generate.ts shows a stack with VKMX_DEBUG=1 only", async () => {
  const { stderr } = await run(["--model", "/nowhere", "x"], { env: { VKMX_DEBUG: "1" } });
  assertMatch(stderr, /^error: .*\n[^]*\n {4}at /);
});

Deno.test("generate.ts without permission to read says so in one line", async () => {
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", "--no-check", "--config", CONFIG.pathname, SCRIPT.pathname, "x"],
    env: { NO_COLOR: "1" },
  }).output();
  assertEquals(code, 1);
  assertMatch(new TextDecoder().decode(stderr), /^error: [^\n]* cannot be read: [^\n]*--allow-read flag\n$/);
});

Deno.test("what needs a GPU says in one line that there is none", async () => {
  const script = (name: string): URL => new URL(`../../scripts/${name}`, import.meta.url);
  const bench = await run([], { script: script("bench/gpu.ts") });
  assertEquals([bench.code, bench.stdout], [2, ""]);
  assertMatch(bench.stderr, /^error: wasm is no GPU: [^\n]*deno task devices[^\n]*\n$/);
  const env = { VKMX_LIBRARY: SCRIPT.pathname }; // whatever it is, nothing is set up
  assertEquals(await run(["--gpu"], { script: script("test.ts"), env }), {
    code: 1,
    stdout: "",
    stderr: "test: this machine has no GPU that vkmx can use; `deno task devices` says why\n",
  });
});

Deno.test("generate.ts ends quietly when nobody reads its output", async () => {
  const child = command(["--temp", "0", "--max-tokens", "100", "Once upon a time"]).spawn();
  await child.stdin.close();
  const reader = child.stdout.getReader();
  await reader.read();
  await reader.cancel();
  const stderr = new TextDecoder().decode(await new Response(child.stderr).bytes());
  assertEquals([(await child.status).code, stderr], [0, ""]);
});

Deno.test("generate.ts finishes the line and the figures on Ctrl-C and exits with 130", async () => {
  const child = command(["--temp", "0", "--max-tokens", "140", "Once upon a time"]).spawn();
  await child.stdin.close();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let stdout = (await reader.read()).value ?? "";
  child.kill("SIGINT");
  for (let part = await reader.read(); !part.done; part = await reader.read()) stdout += part.value;
  const stderr = new TextDecoder().decode(await new Response(child.stderr).bytes());
  assertEquals((await child.status).code, 130);
  assert(TEXT.startsWith(stdout.trimEnd()) && stdout.endsWith("\n"), stdout);
  assertMatch(stderr, /^Generation: \d+ tokens/m);
});
