/**
 * `vkmx chat` through pipes, row by row: each line of stdin is a message or a command, answers go to stdout, all else to stderr.
 */

import { TINY_DIR } from "../support/models/models.ts";
import { type CommandLineRow, testTable } from "../support/processes/table.ts";

const SMALL = await Deno.makeTempDir();
for (const { name } of Deno.readDirSync(TINY_DIR)) await Deno.copyFile(new URL(name, TINY_DIR), `${SMALL}/${name}`);
const CONFIG = JSON.parse(await Deno.readTextFile(`${SMALL}/config.json`));
await Deno.writeTextFile(`${SMALL}/config.json`, JSON.stringify({ ...CONFIG, max_position_embeddings: 40 }));
Deno.test.afterAll(() => Deno.removeSync(SMALL, { recursive: true }));

const chat = (...args: string[]): string[] => ["chat", "--temp", "0", ...args];
const usage = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 2,
  stderr: `error: ${message}\n`,
});
const SUM = "What is 17 + 25?";
const LONG = "a ".repeat(60);
const FIGURES = "[{number} of {number} tokens read, {number} at {number}/s, context {number} of 4096 ({number} %)]\n";
const THOUGHT = `<think>\nOkay, the user said "${SUM}". 17 + 25 = 42.\n</think>\n\n`;

testTable("chat through pipes", [
  { args: ["chat"] },
  {
    args: chat("--no-think"),
    stdin: `${SUM}\n\n  \n${SUM}`,
    stdout: "The answer is 42.\n{text}\n",
    stderr: FIGURES + FIGURES,
  },
  { args: chat("--no-think", "--quiet"), stdin: `"""What is\n17 + 25?\n"""\n`, stdout: "The answer is 42.\n" },
  { args: chat("--quiet"), stdin: SUM, stdout: `${THOUGHT}The answer is 42.\n` },
  {
    args: chat("--quiet"),
    stdin: `/think hide\n${SUM}\n/clear\n/think off\n${SUM}`,
    stdout: "The answer is 42.\nThe answer is 42.\n",
    stderr: "[thinking is on, thoughts are hidden]\n[a new conversation]\n[thinking is off, thoughts are hidden]\n",
  },
  {
    args: chat("--json"),
    stdin: `/stats off\n${SUM}`,
    stdout: `{"text":"The answer is 42.","reasoning":"{text}17 + 25 = 42.","prompt_tokens":18,"cached_tokens":0,` +
      `"generation_tokens":40,"prompt_tps":{number},"generation_tps":{number},"finish_reason":"stop"}\n`,
    stderr: "[figures after answers are off]\n",
  },
  {
    args: chat("--quiet"),
    stdin:
      "/hlep\n/zzzzzz\n/ x\n/\x1b[31m\n/toString\n/temp 0.5\n/temperature\n/set tmep 1\n/set temp hot\n/retry\n/undo\n/exit now\n/save\n/think of\n/load nothing.json\n/model /nowhere\n/bye\nnever",
    stderr: [
      'Unknown command /hlep: did you mean /help? (/help lists all, "//" begins a message with "/")',
      'Unknown command /zzzzzz (/help lists all, "//" begins a message with "/")',
      'Unknown command / (/help lists all, "//" begins a message with "/")',
      'Unknown command "/\\u001b[31m" (/help lists all, "//" begins a message with "/")',
      'Unknown command /toString (/help lists all, "//" begins a message with "/")',
      "Unknown command /temp: did you mean /set temp? {text}",
      "Unknown command /temperature: did you mean /set temp? {text}",
      '/set has no "tmep": did you mean temp?',
      '/set temp is "hot", expected a number from 0 to 100',
      "/retry has nothing to answer: nothing was said",
      "/undo has nothing to take back: nothing was said",
      "/exit takes nothing after it",
      "/save needs a value: /save FILE",
      '/think is "of": did you mean on?',
      "nothing.json does not exist",
      "The model directory /nowhere does not exist, {text}",
    ].map((line) => `error: ${line}\n`).join(""),
  },
  {
    args: chat("--quiet", "--no-think", "--system", "Be kind."),
    stdin: `/system\n/system ""\n${SUM}\n/save c.json\n/clear\n/load c.json\n/model tiny-qwen3\n/quit`,
    stdout: "The answer is 42.\n",
    stderr:
      '[the system message is "Be kind."]\n[no system message]\n[2 messages saved to c.json]\n[a new conversation]\n' +
      "[2 messages loaded from c.json]\ntiny-qwen3: qwen3, 8.92 M parameters, 4 bits, {number} MB, context of 4096 tokens, on wasm\n",
  },
  { args: chat(), stdin: "/help", stderr: "/help /?{text}\n/clear {lines}\n/exit /bye /quit {lines}Ctrl-C {text}\n" },
  {
    args: chat(),
    stdin: "/stats",
    stderr: "model {text}\ncontext       0 of 4096 tokens\n" +
      "conversation  0 answers, 0 tokens read, 0 cached, 0 generated\nmemory {text}\n",
  },
  // An answer goes up to the end of the context, and then there is no room for another message.
  {
    args: chat("--quiet", "--model", SMALL),
    stdin: `Tell me a story.\n${LONG}\n/clear\n/think off\n${SUM}`,
    stdout: "{lines}\nThe answer is 42.\n",
    stderr: "[the context of 40 tokens is full: the next message makes room, /clear begins anew]\n" +
      "[the context of 40 tokens is full: the model is not told of the first 2 messages]\n" +
      "error: The prompt has {number} tokens and the context has room for {number}: shorten the prompt\n" +
      "[a new conversation]\n[thinking is off, thoughts are shown]\n",
  },
  {
    args: chat("--quiet", "-m", "3"),
    stdin: SUM,
    stdout: "<think>{lines}\n",
    stderr: "[the answer was cut off at the limit of 3 tokens: --max-tokens sets it]\n",
  },
  {
    args: chat("--quiet", "--no-think"),
    stdin:
      `/set\n/set temp 0.5\n/set temperature default\n/set stop is\n${SUM}\n/undo\n/set stop default\n${SUM}\n/retry\n/save c.json`,
    stdout: "The answer \nThe answer is 42.\nThe answer is 42.\n",
    stderr:
      `temp                0\ntop-p               0.95\n{lines}max-tokens          default\nstop                default\nseed {text}\n` +
      `temp  0.5\ntemp  0\nstop  "is"\n[the last message and its answer were taken back]\nstop  default\n[2 messages saved to c.json]\n`,
  },
  { args: chat("--quiet"), env: { VKMX_DEVICE: "", VKMX_LIBRARY: "/none" } },
  usage("Unknown flag --quite: did you mean --quiet? (--help lists all)", "chat", "--quite"),
]);
