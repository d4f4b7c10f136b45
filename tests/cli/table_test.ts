/**
 * `vkmx` on the command line, row by row: help, wrong usage, `generate` and what may go wrong with it. Other commands have tables of
 * their own beside this one.
 */

import { assert, assertEquals } from "@std/assert";
import { VERSION } from "../../ffi/version.ts";
import { COMMANDS } from "../../src/cli/commands.ts";
import { describe } from "../../src/cli/program.ts";
import { GOLDEN, TINY_DIR } from "../support/models/models.ts";
import { type CommandLineRow, matches, runRow, testTable } from "../support/processes/table.ts";

const TEXT = GOLDEN[0].text.replace("<|endoftext|>", "");
/** An answer with a thought, and its parts. */
const ALL = GOLDEN[3].text.replace("<|im_end|>", "");
const [, reasoning, answer] = /^<think>\n([^]*)\n<\/think>\n\n([^]*)$/.exec(ALL)!;
const FIGURES = `==========
Prompt: {number} tokens, {number} tokens-per-sec
Generation: {number} tokens, {number} tokens-per-sec
Peak memory: {number} GB
Device: {device}
`;
const CUT = (count: number): string =>
  `[the answer was cut off at the limit of ${count} tokens: --max-tokens sets it]\n`;

/** Greedy, so that the text is known. The flags of each row come after these. */
const greedy = (...args: string[]): string[] => ["generate", "--temp", "0", ...args];
/** The first three tokens of the story, without figures. */
const SHORT = ["-m", "3", "--verbose", "false"];

const usage = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 2,
  stderr: `error: ${message}\n`,
});

/** The embedded model with a context of few tokens: answers end where that does. */
const SMALL = await Deno.makeTempDir();
for (const { name } of Deno.readDirSync(TINY_DIR)) await Deno.copyFile(new URL(name, TINY_DIR), `${SMALL}/${name}`);
const CONFIG = JSON.parse(await Deno.readTextFile(`${SMALL}/config.json`));
await Deno.writeTextFile(`${SMALL}/config.json`, JSON.stringify({ ...CONFIG, max_position_embeddings: 32 }));
/** A folder with a model of another format. */
const GGUF = await Deno.makeTempDir();
await Deno.writeTextFile(`${GGUF}/q4.gguf`, "GGUF");
/** One whose weights were not downloaded. */
const WEIGHTLESS = await Deno.makeTempDir();
await Deno.copyFile(`${SMALL}/config.json`, `${WEIGHTLESS}/config.json`);

Deno.test.afterAll(() => {
  for (const folder of [SMALL, GGUF, WEIGHTLESS]) Deno.removeSync(folder, { recursive: true });
});

testTable("help and of mistakes in front of a command", [
  { args: [], stdout: "usage: vkmx COMMAND [flags]\n{lines}\n  generate {text}\n  chat {text}\n{lines}" },
  { args: ["help"], stdout: "usage: vkmx COMMAND [flags]\n{lines}\nexamples:\n  vkmx generate {lines}" },
  { args: ["--help"], stdout: "usage: vkmx COMMAND [flags]\n{lines}" },
  { args: ["-h"], stdout: "usage: vkmx COMMAND [flags]\n{lines}" },
  { args: ["help", "--help"], stdout: "usage: vkmx COMMAND [flags]\n{lines}" },
  { args: ["--version"], stdout: `vkmx ${VERSION}\n` },
  { args: ["-V"], stdout: `vkmx ${VERSION}\n` },
  {
    args: ["help", "generate"],
    stdout: "usage: vkmx generate [flags] [prompt]\n{lines}\nexamples:\n  vkmx generate {lines}",
  },
  {
    args: ["generate", "--help"],
    stdout: "usage: vkmx generate [flags] [prompt]\n{lines}      --temp T {text}; also --temperature\n{lines}",
  },
  {
    args: ["generate", "-h"],
    stdout: "usage: vkmx generate [flags] [prompt]\n{lines}  -h, --help {text}show this text\n{lines}",
  },
  { args: ["chat", "--help"], stdout: "usage: vkmx chat [flags]{lines}" },
  usage('Unknown command "generat": did you mean generate? (vkmx help lists all)', "generat"),
  usage('Unknown command "run": did you mean chat? (vkmx help lists all)', "run", "qwen3"),
  usage('Unknown command "rm": did you mean models remove? (vkmx help lists all)', "rm", "Qwen/Qwen3-0.6B"),
  usage('Unknown command "server": did you mean serve? (vkmx help lists all)', "server"),
  usage('Unknown command "version": did you mean --version? (vkmx help lists all)', "version"),
  usage('Unknown command "Once upon a time" (vkmx help lists all)', "Once upon a time"),
  usage('Unknown command "\\u001b[31m" (vkmx help lists all)', "\x1b[31m"),
  usage('Unknown command "toString" (vkmx help lists all)', "toString"),
  usage('Unknown command "chatt": did you mean chat? (vkmx help lists all)', "help", "chatt"),
  usage("Expected one command after help, found 2", "help", "chat", "generate"),
  usage("Expected nothing after --version, found 1", "--version", "--json"),
  usage("Expected a command, found the flag --temp (vkmx help lists all)", "--temp", "0"),
]);

testTable("wrong usage of generate", [
  usage("Unknown flag --tmep: did you mean --temp? (--help lists all)", "generate", "--tmep", "1"),
  usage("Unknown flag --temparature: did you mean --temperature? (--help lists all)", "generate", "--temparature", "1"),
  usage("Unknown flag --frobnicate (--help lists all)", "generate", "--frobnicate"),
  usage("Unknown flag -x (--help lists all)", "generate", "-x"),
  usage("Unknown flag --format: did you mean --response-format? (--help lists all)", "generate", "--format", "json"),
  usage("Unknown flag -t: VKMX_THREADS sets the threads of the CPU (--help lists all)", "generate", "-t", "4"),
  usage(
    "Unknown flag --ctx-size: the context is that of the model, and memory is taken as it fills (--help lists all)",
    "generate",
    "--ctx-size",
    "4096",
  ),
  usage("Unknown flag --threads (--help lists all)", "pull", "--threads", "4"),
  usage(
    "Unknown flag --n-cpu-moe: did you mean --weight-bytes, a number of bytes? (--help lists all)",
    "generate",
    "--n-cpu-moe",
    "3",
  ),
  usage(
    '--weight-bytes is "6GB", expected a whole number of bytes, at least 0',
    "generate",
    "--weight-bytes",
    "6GB",
  ),
  usage("Unknown flag -temp: did you mean --temp? (--help lists all)", "generate", "-temp", "1"),
  usage("Unknown flag -model: did you mean --model? (--help lists all)", "generate", "-model=x"),
  usage("Unknown flag -n: did you mean --max-tokens? (--help lists all)", "generate", "-n", "5"),
  usage("Unknown flag -ngl: did you mean --device? (--help lists all)", "generate", "--seed", "1", "-ngl", "99"),
  usage(
    "Unknown flag --repeat-penalty: did you mean --repetition-penalty? (--help lists all)",
    "generate",
    "--repeat-penalty",
    "2",
  ),
  usage("--temperature and --temp are the same flag: give one", "generate", "--temperature", "0", "--temp", "1"),
  usage('--temp is "hot", expected a number from 0 to 100', "generate", "--temp", "hot"),
  usage('--temperature is "-1", expected a number from 0 to 100', "generate", "--temperature=-1"),
  usage('--top-p is "1.5", expected a number from 0 to 1', "generate", "--top-p", "1.5"),
  usage('--max-tokens is "0", expected a whole number of at least 1', "generate", "--max-tokens", "0"),
  usage('--max-tokens is "1.5", expected a whole number of at least 1', "generate", "-m", "1.5"),
  usage('--seed is "", expected a whole number of at least 0', "generate", "--seed", ""),
  usage("--temp needs a value: --temp T", "generate", "--temp"),
  usage('--temp is "-1", expected a number from 0 to 100', "generate", "--temp", "-1"),
  usage(
    '--prompt-cache needs a value: --prompt-cache FILE; one that begins with "-" follows "=": --prompt-cache=-…',
    ...["generate", "--prompt-cache", "-x"],
  ),
  usage("--prompt needs a value: --prompt TEXT", "generate", "-p"),
  usage("--json takes no value", "generate", "--json=yes"),
  usage('--verbose is "loud", expected true or false', "generate", "--verbose", "loud"),
  usage("--chat and --raw exclude each other", "generate", "--chat", "--ignore-chat-template", "x"),
  usage("--system and --no-think need the chat template: leave out --raw", "generate", "--system-prompt", "s", "--raw"),
  usage("--prefill-response needs the chat template: leave out --raw", "generate", "--prefill-response", "s", "--raw"),
  usage("Expected one prompt, found 2: put quotes around it", "generate", "two", "prompts"),
  usage('Expected one prompt, found --prompt and "two": give one', "generate", "-p", "one", "two"),
  usage("The prompt is empty", "generate", ""),
  usage("The prompt on stdin is empty", "generate", "-"),
  usage("The prompt on stdin is empty", "generate", "--prompt", "-"),
  usage('there is no device "tpu"; there are {text}wasm (CPU (WebAssembly))', "generate", "--device", "tpu"),
  usage('there is no device "vulkan:99"; there are {text}', "generate", "--device", "vulkan:99"),
  usage('Expected flags only, found "Hi" (--help lists all)', "chat", "Hi"),
]);

testTable("generate", [
  { args: greedy("Once upon a time"), stdout: `${TEXT}\n`, stderr: FIGURES },
  { args: greedy(...SHORT), stdout: ", there was\n", stderr: CUT(3) },
  {
    args: greedy("--prompt", "Once upon a time", "--max-tokens", "3", "--verbose", "True"),
    stdout: ", there was\n",
    stderr: CUT(3) + FIGURES,
  },
  {
    args: ["generate", "--temperature", "0", ...SHORT, "-"],
    stdin: "Once upon a time\n",
    stdout: ", there was\n",
    stderr: CUT(3),
  },
  { args: greedy(...SHORT), stdin: "Once upon a time\n", stdout: ", there was\n", stderr: CUT(3) },
  { args: greedy(...SHORT, "--", "Once upon a time"), stdout: ", there was\n", stderr: CUT(3) },
  { args: greedy("--stop", " girl", "--stop", " was a", "--verbose", "F"), stdout: ", there\n" },
  { args: greedy("--extra-eos-token", "Ġwas", "--verbose", "f"), stdout: ", there\n" },
  {
    args: greedy("--json", ...SHORT, "--device", "cpu"),
    stdout:
      '{"text":", there was","reasoning":"","answer":", there was","tokens":[{number}],"prompt_tokens":4,"finish_reason":"length","prompt_tps":{number},' +
      '"generation_tps":{number},"time_to_first_token_s":{number},"load_s":{number},"peak_memory_bytes":{number},' +
      '"device":"wasm","model":"tiny-qwen3"}\n',
    stderr: CUT(3),
    env: { VKMX_DEVICE: "" },
  },
  {
    args: greedy("--json", "--chat", "--verbose", "0", "Hi what is your name"),
    stdout: `${JSON.stringify({ text: ALL, reasoning, answer }).slice(0, -1)},"tokens":{text}}\n`,
  },
  { args: greedy("--no-think", "--verbose", "0", "What is 17 + 25?"), stdout: "The answer is 42.\n" },
  {
    args: greedy("--verbose", "0", "--prefill-response", "The answer is", "--no-think", "What is 17 + 25?"),
    stdout: " 42.\n",
  },
  {
    args: greedy("--verbose", "0", "--prefill-step-size", "2", "--no-think", "What is 17 + 25?"),
    stdout: "The answer is 42.\n",
  },
  {
    args: greedy("-m", "3", "--speculate", "ngrams", "--num-draft-tokens", "3"),
    stdin: "Once upon a time\n",
    stdout: ", there was\n",
    stderr: CUT(3) + FIGURES.replace("Peak", "Drafts: {number} tokens, {number} accepted\nPeak"),
  },
  {
    args: greedy(...SHORT, "--draft-model", TINY_DIR.pathname, "Once upon a time"),
    stdout: ", there was\n",
    stderr: CUT(3),
  },
  {
    args: greedy("--speculate", "ngrams", "--draft-model", TINY_DIR.pathname),
    code: 2,
    stderr: "error: --speculate and --draft-model exclude each other\n",
  },
  {
    args: greedy("--speculate", "draft"),
    code: 2,
    stderr: 'error: --speculate is "draft", expected ngrams or mtp\n',
  },
  {
    args: greedy("--num-draft-tokens", "3"),
    code: 2,
    stderr: "error: --num-draft-tokens needs --speculate ngrams or mtp, or a draft model\n",
  },
  {
    args: greedy("--speculate", "mtp", "--model", TINY_DIR.pathname, "Once upon a time"),
    code: 1,
    stderr: 'error: {text} has no head that drafts tokens: models of type "qwen3" have none here\n',
  },
  {
    args: greedy(...SHORT, "--model", TINY_DIR.pathname, "--ignore-chat-template", "Once upon a time"),
    stdout: ", there was\n",
    stderr: CUT(3),
  },
  {
    args: greedy("--model", SMALL, "--raw", "--verbose", "0", "Once upon a time"),
    stdout: "{text}\n",
    stderr: "[the answer was cut off at the end of the model's context]\n",
  },
  {
    args: greedy("Once upon a time"),
    then: "Ctrl-C",
    code: 130,
    stdout: "{lines}\n",
    stderr: `[the answer was stopped by Ctrl-C]\n${FIGURES}`,
  },
  { args: greedy("Once upon a time"), then: "close stdout", stdout: "{text}" },
  { args: ["generate", "--device", "list"], stdout: "{lines}* wasm {text}CPU (WebAssembly)\n{lines}" },
  {
    args: ["generate", "--device", "list", "--json"],
    stdout: '[{text}{"name":"wasm","default":true,"description":"CPU (WebAssembly)"{text}}]\n',
  },
]);

testTable("errors of generate", [
  {
    args: ["generate", "--model", GGUF, "x"],
    code: 1,
    stderr: `error: ${GGUF}/q4.gguf: is too short for a GGUF file\n`,
  },
  {
    args: ["generate", "--model", `${GGUF}/q4.gguf`, "x"],
    code: 1,
    stderr: "error: {text}q4.gguf: is too short for a GGUF file\n",
  },
  {
    args: ["generate", "--model", WEIGHTLESS, "x"],
    code: 1,
    stderr: "error: {text} has no model*.safetensors{text}\n",
  },
  {
    args: ["generate", "--json", "--model", SMALL, "--raw", "a ".repeat(40)],
    code: 1,
    stderr: "error: The prompt has 41 tokens and the context has room for 32: shorten the prompt\n",
  },
  {
    args: ["generate", "--model", "https://huggingface.co/Qwen/Qwen3-0.6B", "x"],
    code: 1,
    stderr:
      "error: The model directory https://huggingface.co/Qwen/Qwen3-0.6B does not exist: did you mean Qwen/Qwen3-0.6B?\n",
  },
  {
    args: ["generate", "--model", "/nowhere", "x"],
    code: 1,
    stderr: "error: The model directory /nowhere does not exist{text}\n",
  },
  { args: ["generate", "--model", "", "x"], code: 1, stderr: "error: The model directory is an empty text{text}\n" },
  {
    args: ["generate", "--model", ".", "x"],
    code: 1,
    stderr: "error: ./config.json does not exist: . is not a model directory\n",
  },
  {
    args: ["generate", "--model", "Qwen/Qwen3-8B", "x"],
    env: { HF_HUB_OFFLINE: "1", HF_HUB_CACHE: "/nowhere" },
    code: 1,
    stderr:
      'error: There is no folder Qwen/Qwen3-8B, and as a model of the hub: Qwen/Qwen3-8B ("main") is not in /nowhere{text}\n',
  },
  {
    args: ["generate", "--extra-eos-token", "<|no|>", "x"],
    code: 1,
    stderr: 'error: The vocabulary has no token "<|no|>"\n',
  },
  {
    args: ["generate", "--model", "/nowhere", "--json"],
    env: { VKMX_DEBUG: "1" },
    code: 1,
    stderr: "error: The model directory /nowhere does not exist{text}\n{text}Error: {text}\n    at {lines}",
  },
]);

Deno.test("what is piped in stands before the prompt, with an empty line between", async () => {
  const short = ["-m", "8", "--verbose", "0", "--raw"];
  const piped = await runRow({ args: greedy(...short, "Nina said:"), stdin: "Once upon a time\nthere was a girl.\n" });
  const whole = await runRow({ args: greedy(...short, "Once upon a time\nthere was a girl.\n\nNina said:") });
  assertEquals(piped, whole);
  assertEquals(whole.code, 0);
});

Deno.test("a text matches its row in every letter but for placeholders", () => {
  assert(matches("a (b) 1.5e-7 tokens\n", "a (b) {number} tokens\n"));
  assert(matches('{"a":1}', '{"a":{number}}'));
  const wrong = [["ab", "a"], ["a\n", "a"], ["a. b", "a, b"], ["a\nb", "a{text}"], ["axb", "a.b"], ["x", "{number}"]];
  assertEquals(wrong.filter(([text, expected]) => matches(text, expected)), []);
});

Deno.test("no line of a help text is wider than 120 columns", async () => {
  for (const [name, { load }] of Object.entries(COMMANDS)) {
    const wide = describe((await load()).default.program).split("\n").filter((line) => line.length > 120);
    assertEquals(wide, [], name);
  }
});

Deno.test("the command line is installed from any folder", async () => {
  const root = await Deno.makeTempDir();
  const run = async (program: string, args: readonly string[]): Promise<Deno.CommandOutput> =>
    await new Deno.Command(program, { args: [...args], cwd: root, env: { NO_COLOR: "1", VKMX_DEVICE: "wasm" } })
      .output();
  const entry = new URL("../../src/cli/mod.ts", import.meta.url).href;
  const installed = await run(Deno.execPath(), ["install", "-g", "-A", "--root", root, "-n", "vkmx", entry]);
  assert(installed.success, new TextDecoder().decode(installed.stderr));
  const program = `${root}/bin/vkmx${Deno.build.os === "windows" ? ".cmd" : ""}`;
  const { code, stdout } = await run(program, greedy(...SHORT));
  assertEquals([code, new TextDecoder().decode(stdout)], [0, ", there was\n"]);
  await Deno.remove(root, { recursive: true });
});
