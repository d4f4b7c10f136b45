/**
 * `vkmx pull`, `models`, `devices`, `doctor` and `bench` as processes, with a hub on localhost: exit code and both streams of each.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { devices } from "../../src/backend/devices.ts";
import { VARIABLES } from "../../src/cli/doctor/places.ts";
import { ROOT } from "../../scripts/tools.ts";
import { HubBench } from "../support/models/hub_models.ts";
import { COMMIT } from "../support/processes/hub_server.ts";
import { TINY_DIR } from "../support/models/models.ts";
import { checkRows, type CommandLineRow, runRow } from "../support/processes/table.ts";

const DIR = fileURLToPath(TINY_DIR).replace(/[\\/]$/, "");
const GGUF_FILE = fileURLToPath(new URL("../golden/array_files/blocks.gguf", import.meta.url));
const TINY = "org/tiny";

devices(); // opens the Vulkan library outside of any test

/** A hub with the embedded model as `org/tiny` beside a model that cannot be loaded, and an empty cache. */
async function bench(): Promise<HubBench> {
  const hub = new HubBench();
  const files: Record<string, { bytes: Uint8Array<ArrayBuffer>; lfs: boolean }> = {};
  for (const { name } of Deno.readDirSync(TINY_DIR)) {
    files[name] = { bytes: await Deno.readFile(new URL(name, TINY_DIR)), lfs: name.endsWith(".safetensors") };
  }
  hub.server.models.set(TINY, { commit: COMMIT, revisions: ["main"], files });
  return hub;
}

/** Compares rows, in which "GGUF_FILE", "DIR", "CACHE" and "HOST" stand for those of the test. */
async function check(hub: HubBench, rows: readonly CommandLineRow[]): Promise<void> {
  const real = (text = ""): string =>
    text.replaceAll("GGUF_FILE", GGUF_FILE).replaceAll("DIR", DIR).replaceAll("CACHE", hub.cache).replaceAll(
      "HOST",
      new URL(hub.server.endpoint).host,
    );
  await checkRows(rows.map((row) => ({
    ...row,
    args: row.args.map(real),
    stdout: real(row.stdout),
    stderr: real(row.stderr),
  })));
}

/** A row that ends with one line on stderr. */
function refused(args: string, message: string, code = 2, env: Record<string, string> = {}): CommandLineRow {
  return { args: args.split(" "), code, stderr: `error: ${message}\n`, env };
}

const NO_NAME = "is no model of the hub, expected a name such as Qwen/Qwen3-0.6B-MLX-4bit";

const MISTAKES: readonly CommandLineRow[] = [
  refused("pull", "Expected a model: vkmx pull NAME"),
  refused("pull org/name org/tiny", "Expected one model, found 2"),
  refused("pull name", `"name" ${NO_NAME}`),
  refused("pull org/name --revison x", "Unknown flag --revison: did you mean --revision? (--help lists all)"),
  refused(
    "pull org/none",
    "HOST knows no model org/none: check the name; a private or gated one needs HF_TOKEN",
    1,
  ),
  refused(
    "pull org/name@none",
    'HOST has no revision "none" of org/name: see the branches and tags at http://HOST/org/name',
    1,
  ),
  refused("pull org/name --include *.none", 'org/name has no file that fits "*.none"', 1),
  refused("pull org/name --exclude **", 'org/name has no file that fits a model but for "**"', 1),
  refused(
    "pull org/name",
    'org/name ("main") is not in CACHE and HF_HUB_OFFLINE or VKMX_OFFLINE is set: unset it to download it',
    1,
    { VKMX_OFFLINE: "1" },
  ),
  refused("models lst", 'The action is "lst": did you mean list?'),
  refused("models all", 'The action is "all", expected list, show, remove or verify'),
  refused("models list x", 'models list takes no operand, found "x"'),
  refused("models list --yes", "models list takes no --yes"),
  refused("models show", "Expected a model: vkmx models show NAME"),
  refused(
    "models show none",
    '"none" is no folder and no model of the hub, expected a name such as Qwen/Qwen3-0.6B-MLX-4bit',
  ),
  refused(
    "models verify GGUF_FILE",
    '"GGUF_FILE" is a GGUF file, expected a folder with a SHA256SUMS',
  ),
  refused(
    "pull https://huggingface.co/org/name/tree/main",
    '"https://huggingface.co/org/name/tree/main" is no model of the hub: did you mean org/name?',
  ),
  refused(
    "models show hf.co/org/name/blob/v2/config.json",
    '"hf.co/org/name/blob/v2/config.json" is no folder and no model of the hub: did you mean org/name@v2?',
  ),
  refused("completions", "Expected one shell: bash, zsh, fish"),
  refused("launch", "Expected how many processes: vkmx launch -n 2 -- program.ts"),
  refused("launch -n 2", "Expected a program: vkmx launch -n 2 -- program.ts"),
  refused("launch -n 0 -- program.ts", '--processes is "0", expected a whole number from 1 to 4096'),
  refused("launch -n 2 --hosts a,-b -- program.ts", '--hosts has "-b", expected names of machines'),
  refused("completions powershell", 'The shell is "powershell", expected bash, zsh or fish'),
  refused("models show org/name", "org/name is not in CACHE", 1),
  refused("models remove org/name --yes", "org/name is not in CACHE", 1),
  refused("models remove DIR --yes", `"DIR" ${NO_NAME}`),
  refused("models verify org/name", "org/name is not in CACHE", 1),
  refused("models verify", "Expected a model: vkmx models verify NAME"),
  refused("models verify DIR --remove-damaged", "--remove-damaged is for models of the hub only"),
  refused(
    "models verify DIR",
    "DIR: no SHA256SUMS and no download of Hugging Face tells the SHA-256 of model.safetensors",
    1,
  ),
  refused("devices --helf", "Unknown flag --helf: did you mean --help? (--help lists all)"),
  refused("bench --prompt 0", '--prompt is "0", expected whole numbers of at least 1 with commas between them'),
  refused("bench --tokens 4,x", '--tokens is "4,x", expected whole numbers of at least 1 with commas between them'),
  refused("bench --runs 0", '--runs is "0", expected a whole number from 1 to 1000'),
  refused("bench --dtype float17", '--dtype is "float17": did you mean float16?'),
  refused("bench x", 'Expected flags only, found "x" (--help lists all)'),
  refused(
    "bench --device cpu --prompt 4090",
    "--prompt and --tokens ask for 4123 tokens, more than the model's context of 4096",
  ),
  {
    args: ["bench", "--device", "vulkan:99"],
    code: 2,
    stderr: 'error: there is no device "vulkan:99"; there are {text}\n',
  },
  { args: ["devices", "vulkan:99"], code: 2, stderr: 'error: there is no device "vulkan:99"; there are {text}\n' },
  refused("doctor x", 'Expected flags only, found "x" (--help lists all)'),
];

const SHOWN = [
  "architecture   qwen3",
  "parameters     8.92 M",
  "quantization   4 bits, groups of 128",
  "weights        4.75 MB (uint32, bfloat16)",
  "context        4096 tokens",
  "vocabulary     4096 tokens",
  "chat template  yes",
];

const FILES = [
  "files          README.md (1.73 kB)",
  "               config.json (728 B)",
  "               generation_config.json (169 B)",
  "               model.safetensors (4.77 MB)",
  "               tokenizer.json (376 kB)",
  "               tokenizer_config.json (2.05 kB)",
];

const WITHOUT_MODELS: readonly CommandLineRow[] = [
  { args: ["models"], stderr: "There are no models in CACHE: vkmx pull NAME downloads one\n" },
  { args: ["models", "list", "--json"], stdout: "[]\n" },
  { args: ["models", "show", "DIR"], stdout: ["path           DIR", ...SHOWN, ...FILES, ""].join("\n") },
  {
    args: ["models", "show", "DIR", "--json"],
    stdout: '{"model_type":"qwen3","parameters":8919296,"quantization":{"bits":4,{text}\n',
  },
  { args: ["devices", "cpu"], stdout: "* wasm  CPU (WebAssembly)\n    CPU, {number} GB of {number} GB free\n" },
  {
    args: ["devices", "cpu", "--json"],
    stdout: '[{"name":"wasm","default":true,"description":"CPU {text}}]\n',
  },
  {
    args: ["bench", "--prompt", "8,4", "--tokens", "4", "--runs", "2", "--device", "cpu"],
    stdout: `MODEL          SIZE  PARAMETERS  DEVICE  TEST   {text}TOK/S  {text}SPREAD
tiny-qwen3  4.75 MB      8.92 M  wasm    prompt 8 {text}{number}  {text}± {number}
tiny-qwen3  4.75 MB      8.92 M  wasm    prompt 4 {text}{number}  {text}± {number}
tiny-qwen3  4.75 MB      8.92 M  wasm    decode 4 {text}{number}  {text}± {number}

wasm: CPU (WebAssembly); activations of float32, loaded in {number} s, {number} MB of memory at most
`,
  },
];

const cached = `CACHE/models--org--tiny/snapshots/${COMMIT}`;

/** Every file of the model but for its README, which is not downloaded. */
const GOOD = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
  .map((name) => `good  ${name}\n`).join("");

const KEPT: readonly CommandLineRow[] = [
  { args: ["pull", TINY], stdout: `${cached}\n` }, // asks, and downloads nothing
  {
    args: ["pull", `${TINY}@main`, "--json"],
    stdout: `{"name":"${TINY}","commit":"${COMMIT}",{text}"missing":[]}\n`,
  },
  {
    args: ["models"],
    stdout:
      "NAME      REVISION     SIZE  LAST USED\norg/tiny  main      5.15 MB  {number}-{number}-{number} {number}:{number}\n",
  },
  {
    args: ["models", "show", TINY],
    stdout: `name           org/tiny\nrevision       main\ncommit         ${COMMIT}\npath           ${cached}\n{lines}${
      SHOWN.join("\n")
    }\n{lines} model.safetensors (4.77 MB)\n{lines}`,
  },
  { args: ["models", "verify", TINY], stdout: GOOD },
  refused(`models remove ${TINY}`, `There is no terminal to ask on: vkmx models remove ${TINY} --yes`),
  {
    args: ["bench", "--model", TINY, "--prompt", "4", "--tokens", "2", "--runs", "1", "--device", "cpu", "--json"],
    stdout:
      '{"model":"org/tiny","size_bytes":4747776,"parameters":8919296,"runs":1,"devices":[{"device":"wasm",{text}\n',
  },
];

Deno.test("mistakes on the command line are one line each, with the exit code", async () => {
  await using hub = await bench();
  await check(hub, MISTAKES);
});

Deno.test("what models, devices and bench print", async () => {
  await using hub = await bench();
  await check(hub, WITHOUT_MODELS);
});

Deno.test("a model is pulled, listed, shown, measured, found damaged, mended and removed", async () => {
  await using hub = await bench();
  const downloaded = "Downloaded 5.15 MB in {number} s ({text}/s)\n";
  await check(hub, [{ args: ["pull", TINY], stdout: `${cached}\n`, stderr: downloaded }]);
  await check(hub, KEPT);

  const weights = hub.entries.find((path) => path.includes("snapshots") && path.endsWith("model.safetensors"))!;
  const path = await Deno.realPath(`${hub.cache}/${weights}`);
  const bytes = await Deno.readFile(path);
  bytes[5000] ^= 1;
  await Deno.writeFile(path, bytes);
  const damaged = `model.safetensors of ${TINY} are not what was published`;
  const stdout = "{lines}damaged  model.safetensors\n{lines}";
  const how = `vkmx models verify ${TINY} --remove-damaged removes them, then vkmx pull ${TINY} fetches them again`;
  const [one, two] = ["", " --remove-damaged"].map((flag) => `models verify ${TINY}${flag}`.split(" "));
  await check(hub, [{ args: one, code: 1, stdout, stderr: `error: ${damaged}; ${how}\n` }]);
  const removed = `they were removed: vkmx pull ${TINY} fetches them again`;
  await check(hub, [{ args: two, code: 1, stdout, stderr: `error: ${damaged}; ${removed}\n` }]);
  await check(hub, [{ args: ["models"], stdout: "NAME {text}\n{text}  in part\n" }]);
  await check(hub, [{ args: ["pull", TINY], stdout: `${cached}\n`, stderr: "Downloaded 4.77 MB in {text}\n" }]);
  await check(hub, [{ args: one, stdout: GOOD }]);
  await check(hub, [{ args: ["models", "remove", TINY, "--yes"], stdout: `Removed ${TINY}: 5.15 MB\n` }]);
  await check(hub, [WITHOUT_MODELS[0]]);
});

Deno.test("pull takes patterns, and what cannot be loaded is shown with the reason", async () => {
  await using hub = await bench();
  const args = ["pull", "org/name", "--include", "*.json", "--include", "README.md", "--exclude", "tok*"];
  await check(hub, [{
    args,
    stdout: `CACHE/models--org--name/snapshots/${COMMIT}\n`,
    stderr: "Downloaded {number} B in {text}\n",
  }]);
  assertEquals(hub.server.downloads.sort(), ["README.md", "config.json"]);
  const stdout =
    "name {text} org/name\n{lines}missing {text} tokenizer.json, model.safetensors\n{lines}cannot be loaded  " +
    '{text}: model_type "none" {text}\n{lines}';
  await check(hub, [{ args: ["models", "show", "org/name"], stdout }]);
});

Deno.test("a model directory is compared with the sums beside it", async () => {
  await using hub = await bench();
  const folder = await Deno.makeTempDir({ dir: hub.cache });
  const lines: string[] = [];
  for (const { name } of Deno.readDirSync(TINY_DIR)) {
    const bytes = await Deno.readFile(new URL(name, TINY_DIR));
    lines.push(`${createHash("sha256").update(bytes).digest("hex")}  ${name}\n`);
    await Deno.writeFile(`${folder}/${name}`, bytes);
  }
  await Deno.writeTextFile(`${folder}/SHA256SUMS`, lines.join(""));
  await check(hub, [{ args: ["models", "verify", folder], stdout: `good  ${folder}\n` }]);
  const path = `${folder}/model.safetensors`;
  const bytes = await Deno.readFile(path);
  bytes[bytes.length >> 1] ^= 4;
  await Deno.writeFile(path, bytes);
  await check(hub, [{
    args: ["models", "verify", folder],
    code: 1,
    stderr: "error: {text}model.safetensors{text}\n",
  }]);
});

Deno.test({
  ignore: Deno.build.os !== "linux",
  name: "removing a model asks on a terminal",
  fn: async () => {
    await using hub = await bench();
    await hub.pull();
    const line =
      `"${Deno.execPath()}" run -A --no-check --config "${ROOT}deno.json" "${ROOT}src/cli/mod.ts" models remove org/name`;
    for (const [answer, code, said] of [["n", 1, "Nothing was removed"], ["y", 0, "Removed org/name: "]] as const) {
      const child = new Deno.Command("script", {
        args: ["-qec", line, "/dev/null"],
        env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
        stdin: "piped",
        stdout: "piped",
      }).spawn();
      const writer = child.stdin.getWriter();
      const limit = setTimeout(() => child.kill("SIGKILL"), 60_000);
      let text = "";
      for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
        if (text === "") await writer.write(new TextEncoder().encode(`${answer}\n`));
        text += part;
      }
      assertEquals((await child.status).code, code, text);
      clearTimeout(limit);
      await writer.close().catch(() => {});
      assert(text.startsWith("Remove org/name (3.03 kB) from "), text);
      assert(text.includes(said), text);
    }
    assertEquals(hub.whole, []);
  },
});

// ---- doctor ---------------------------------------------------------------------------------------------------------------

/** A check as --json prints it. */
interface Found {
  readonly name: string;
  readonly state: string;
  readonly text: string;
  readonly advice?: string;
}

async function examine(
  env: Record<string, string>,
  expected = "",
): Promise<{ readonly code: number; readonly of: (name: string) => Found[] }> {
  const { code, stdout, stderr } = await runRow({ args: ["doctor", "--json"], env });
  const text = stdout;
  assert(!text.includes("hf_good"), "a token was printed");
  const { ok, checks }: { readonly ok: boolean; readonly checks: readonly Found[] } = JSON.parse(text);
  assertEquals([code === 0, stderr], [ok, expected]);
  return { code, of: (name) => checks.filter((check) => check.name === name) };
}

Deno.test("doctor finds everything in order, computes on every device, and prints no token", async () => {
  await using hub = await bench();
  const { code, of } = await examine({ HF_TOKEN: "hf_good", VKMX_CACHE: `${hub.cache}/own` });
  assertEquals(code, 0);
  for (const name of ["vkmx", "Deno", "WebAssembly", "threads", "cache", "models", "hub", "wasm"]) {
    assertEquals(of(name).map(({ state }) => state), ["ok"], name);
  }
  assertMatch(of("hub")[0].text, /^127\.0\.0\.1:\d+ answers after \d+ ms; with a token$/);
  for (const { name, usable, type } of devices()) {
    const [{ state, text }] = of(name);
    assertEquals(state, usable ? "ok" : "warn", text);
    if (usable && type !== "wasm") assertMatch(text, /, computes what the CPU does$/);
  }
  const { code: printed, stdout, stderr } = await runRow({ args: ["doctor"], env: { VKMX_OFFLINE: "1" } });
  assertEquals([printed, stderr], [0, ""]);
  assertMatch(stdout, /^ok {4}vkmx: \d+\.\d+\.\d+\nok {4}Deno: /);
  assertMatch(stdout, /^ok {4}hub: 127\.0\.0\.1:\d+ is not asked, since connections are switched off; /m);
});

Deno.test("doctor says what is wrong and what to do, and fails where nothing can run", async () => {
  await using hub = await bench();
  const file = `${hub.cache}/file`;
  await Deno.writeTextFile(file, "");
  const { code, of } = await examine({
    VKMX_CACHE: `${file}/x`,
    VKMX_DEVICE: "vulkan:99",
    VKMX_LIBARY: "x",
    VKMX_LIBRARY: `${hub.cache}/none.so`,
    VKMX_THREADS: "0",
    HF_ENDPOINT: "http://127.0.0.1:9",
  }, 'vkmx: VKMX_THREADS is "0", expected a number of threads from 1 to 999: it counts as unset\n');
  assertEquals(code, 1);
  assertEquals(of("VKMX_DEVICE").map(({ state }) => state), ["fail"]);
  assertMatch(of("library")[0].text, /^cannot open \S+none\.so: /);
  assertEquals([of("library")[0].state, of("library")[0].advice], ["warn", "unset VKMX_LIBRARY"]);
  assertMatch(of("hub")[0].text, /^127\.0\.0\.1:9 is not reached: /);
  const environment = of("environment").filter(({ state }) => state === "warn");
  assertEquals(environment.map(({ text, advice }) => [text.split(" ")[0], advice]), [
    ["VKMX_LIBARY", "did you mean VKMX_LIBRARY?"],
    ["VKMX_THREADS", "docs/variables.md says what is"],
  ]);
});

Deno.test("doctor knows the variables that docs/variables.md lists", async () => {
  const text = await Deno.readTextFile(new URL("../../docs/variables.md", import.meta.url));
  const names = Array.from(text.matchAll(/^\| `(VKMX_\w+)/gm), ([, name]) => name);
  assertEquals(VARIABLES.toSorted(), names.sort());
});
