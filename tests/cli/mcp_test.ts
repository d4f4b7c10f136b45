/**
 * --mcp on the command line: calls within a conversation, the question at the terminal, flags that do not fit, and processes that end.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import * as mx from "../../mod.ts";
import { Chat } from "../../src/cli/chat/chat.ts";
import { load, save } from "../../src/cli/chat/conversation.ts";
import type { Input } from "../../src/cli/chat/input.ts";
import { freeModel, loadModel } from "../../src/cli/chat/session.ts";
import { describeCall, openMcp } from "../../src/cli/mcp.ts";
import { ROOT } from "../../scripts/tools.ts";
import { TINY_DIR } from "../support/models/models.ts";
import { needing } from "../support/needs.ts";
import { isRunning, mcpProgram } from "../support/processes/mcp_server.ts";
import { Pty } from "../support/processes/pty.ts";

const folder = Deno.makeTempDirSync();
const CONFIG = `${folder}/mcp.json`;
/**
 * The embedded model with a template that has functions, calls and their results. Its thoughts are ended: after some results they are
 * longer than an answer may be.
 */
const MODEL = `${folder}/model`;
const TEMPLATE = `{%- for m in messages %}<|im_start|>{{ m.role }}
{% if loop.first and tools %}{{ tools | tojson }}
{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>

</think>

{% endif %}`;
Deno.test.beforeAll(() => {
  Deno.mkdirSync(MODEL);
  for (const { name } of Deno.readDirSync(TINY_DIR)) Deno.copyFileSync(new URL(name, TINY_DIR), `${MODEL}/${name}`);
  Deno.writeTextFileSync(`${MODEL}/chat_template.jinja`, TEMPLATE);
  Deno.writeTextFileSync(CONFIG, JSON.stringify({ mcpServers: { s: { ...mcpProgram(), tools: ["pid", "echo"] } } }));
});
Deno.test.afterAll(() => Deno.removeSync(folder, { recursive: true }));

/** A person at a terminal who answers questions by these keys, or a pipe, which has none. */
class TestInput implements Input {
  readonly interactive = true;
  readonly signal = new AbortController().signal;
  readonly asked: string[] = [];
  readonly #keys: (string | undefined)[];

  constructor(keys: readonly (string | undefined)[]) {
    this.#keys = [...keys];
  }

  read(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  choose(question: string): Promise<string | undefined> {
    this.asked.push(question);
    return Promise.resolve(this.#keys.shift());
  }

  [Symbol.dispose](): void {}
}

/** What stdout and stderr get meanwhile. */
async function written(work: () => Promise<void>): Promise<string> {
  const decoder = new TextDecoder();
  const { stdout, stderr } = Deno;
  const before = [stdout.writeSync, stderr.writeSync];
  let text = "";
  const take = (bytes: Uint8Array): number => {
    text += decoder.decode(bytes);
    return bytes.length;
  };
  [stdout.writeSync, stderr.writeSync] = [take, take];
  try {
    await work();
  } finally {
    [stdout.writeSync, stderr.writeSync] = before;
  }
  return text;
}

Deno.test({
  ...await needing(
    "a call of the model is asked about, made, shown in a line, and kept with the conversation",
    "mcp sdk",
  ),
  sanitizeOps: false, // the SDK leaves timers of two seconds after each end, which keep no program
  sanitizeResources: false,
  fn: async () => {
    await using mcp = await openMcp({ mcp: CONFIG, "mcp-rounds": 2 }, { warn: (line) => assert(false, line) });
    const input = new TestInput(["y", "n", undefined, "a"]);
    const loaded = await loadModel(MODEL, { place: { device: "cpu" }, signal: input.signal });
    const tools = mx.lm.describeTools(mcp!.tools.tools.filter(({ tool }) => tool === "pid"));
    const responseFormat = mx.lm.requireToolCalls(loaded.tokenizer, tools, { parallel: false });
    /** Answers that have to be calls before the model says what it likes. */
    let forced = 0;
    const settings = {
      temp: 0,
      maxTokens: 200,
      get responseFormat() {
        return forced-- > 0 ? responseFormat : undefined;
      },
    };
    const chat = new Chat(input, loaded, {
      place: { device: "cpu" },
      adapterPath: undefined,
      system: undefined,
      mcp,
      settingsFor: () => settings,
      json: false,
      stats: false,
    });
    const say = (calls: number): Promise<string> => {
      forced = calls;
      return written(() => chat.say("Who are you?"));
    };
    assertStringIncludes(await say(1), "[s.pid({}): ");
    assertEquals(input.asked, ["s.pid({})\ny allows it, a allows this tool from now on, n refuses: "]);
    const [user, called, result, answered] = chat.messages;
    assertEquals([user.role, called.role, result.role, answered.role], ["user", "assistant", "tool", "assistant"]);
    assertMatch(result.content as string, /^\d+$/);
    assertEquals(called.tool_calls![0].id, result.tool_call_id);
    assertStringIncludes(await say(1), '[s.pid({}): failed, {"error":"the user did not allow this call"}]\n');
    assertStringIncludes(await say(1), "--mcp-allow names what may be called");
    const limit = await say(2); // allowed from now on
    assertEquals(limit.match(/^\[s\.pid\(\{\}\): \d+ bytes\]$/gm)?.length, 1);
    assertStringIncludes(limit, "[ended after 2 answers with calls: --mcp-rounds sets the limit]\n");
    assertEquals(input.asked.length, 4);
    const last = chat.messages.at(-1)!;
    assertEquals([last.role, last.tool_calls], ["assistant", undefined]);
    const path = `${folder}/kept.json`;
    save(path, { model: "m", system: undefined, options: {}, messages: chat.messages });
    assertEquals(load(path).messages, chat.messages);
    freeModel(chat.loaded);
  },
});

Deno.test("what a question shows obeys no terminal and hides nothing unsaid", () => {
  const tool = { server: "s", tool: "write\x1b[2K" };
  assertEquals(describeCall(tool, { path: "a\x1b[1A\u202e" }), 's."write\\u001b[2K"({"path":"a\\u001b[1A\\u202e"})');
  assertMatch(describeCall({ server: "s", tool: "t" }, { a: "x".repeat(5000) }), /x… and 1008 more characters\)$/);
});

Deno.test({
  ignore: Deno.build.os !== "linux", // libc is called by its name there
  name: "a question takes a key that comes after it, no paste and no other key, and Ctrl-C ends the work",
  fn: async () => {
    const program = `
      import { Terminal } from "${ROOT}src/cli/chat/terminal.ts";
      import { History } from "${ROOT}src/cli/chat/history.ts";
      const input = new Terminal(new History(), { complete: () => ({ from: 0, words: [] }), isOpen: () => false });
      await input.read();
      console.error("working");
      await new Promise((resolve) => setTimeout(resolve, 500));
      console.error("got " + await input.choose("Really? ", "yn"));
      console.error("got " + await input.choose("Again? ", "yn").catch(() => "aborted " + input.signal.aborted));
      input[Symbol.dispose]();`;
    const file = `${folder}/ask.ts`;
    await Deno.writeTextFile(file, program);
    const args = ["run", "-A", "--no-check", "--config", `${ROOT}deno.json`, file];
    await using pty = new Pty([Deno.execPath(), ...args], { env: { TERM: "xterm", VKMX_CACHE: `${folder}/cache` } });
    await pty.until("> ");
    pty.type("hi\r");
    await pty.until("working");
    pty.type("y"); // typed ahead: it is the next message's
    await pty.until("Really?");
    pty.type("x\x1b[200~y\x1b[201~\r");
    pty.type("N");
    await pty.until("got n");
    await pty.until("Again?");
    pty.type("\x03");
    await pty.until("got aborted true");
  },
});

/** Runs a command to its end. */
async function run(args: readonly string[], stdin = ""): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", "--no-check", "--config", `${ROOT}deno.json`, `${ROOT}src/cli/mod.ts`, ...args],
    env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(stdin)).catch(() => {});
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

const MISTAKES: readonly (readonly [args: readonly string[], message: string])[] = [
  [["chat", "--mcp-allow", "all"], "--mcp-allow needs --mcp FILE"],
  [["chat", "--mcp", `${folder}/none.json`], `${folder}/none.json does not exist`],
  [["chat", "--mcp", CONFIG, "--mcp-allow", "t.pid"], '--mcp-allow is "t.pid", expected all, or one of s, or its tool'],
  [["serve", "--mcp", CONFIG, "--host", "0.0.0.0"], "--mcp at an address that other machines reach needs --api-key"],
];
for (const [args, message] of MISTAKES) {
  Deno.test(`vkmx ${args.map((arg) => arg.replace(folder, "")).join(" ")} says in a line what is wrong`, async () => {
    const { code, stderr } = await run(args);
    assert(code !== 0);
    assert(stderr.startsWith(`error: ${message}`) && stderr.endsWith("\n") && stderr.split("\n").length === 2, stderr);
  });
}

/** Processes whose parent is one. */
function childrenOf(pid: number): number[] {
  return Deno.readTextFileSync(`/proc/${pid}/task/${pid}/children`).trim().split(" ").filter(Boolean).map(Number);
}

for (const signals of [["SIGTERM"], ["SIGINT", "SIGINT"]] as const) {
  const name = `vkmx serve starts servers, tells of them, and leaves none after ${signals.join(" and ")}`;
  const need = await needing(name, "mcp sdk");
  Deno.test({
    ...need,
    ignore: need.ignore || Deno.build.os !== "linux",
    fn: async () => {
      const config = `${folder}/stubborn.json`;
      const mcpServers = { stubborn: mcpProgram("stubborn"), broken: mcpProgram("broken") };
      await Deno.writeTextFile(config, JSON.stringify({ mcpServers }));
      const child = new Deno.Command(Deno.execPath(), {
        args: [
          ...["run", "-A", "--quiet", "--no-check", "--config", `${ROOT}deno.json`, `${ROOT}src/cli/mod.ts`],
          ...["serve", "--port", "0", "--mcp", config],
        ],
        env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
        stdin: "null",
        stdout: "null",
        stderr: "piped",
      }).spawn();
      let text = "";
      const lines = child.stderr.pipeThrough(new TextDecoderStream()).getReader();
      while (!text.includes("page offers")) text += (await lines.read()).value!;
      assertMatch(text, /^warning: broken does not start: .*its tools are not offered\nvkmx serves /);
      assertStringIncludes(text, "\nits page offers tools of stubborn (11), broken (0)\n");
      const pids = childrenOf(child.pid);
      assertEquals(pids.length, 1);
      if (signals.length > 1) { // an answer that is asked keeps the server up
        const url = /http:\/\/[\d.:]+/.exec(text)![0];
        const body = JSON.stringify({
          prompt: "Once",
          max_tokens: 4000,
          stream: true,
          logit_bias: { 4089: -100, 4091: -100 },
        });
        const reply = await fetch(`${url}/v1/completions`, { method: "POST", body });
        void reply.text().catch(() => {});
      }
      for (const signal of signals) {
        child.kill(signal);
        while (!text.includes("a second signal") && signals.length > 1) text += (await lines.read()).value!;
      }
      for (let piece = await lines.read(); !piece.done; piece = await lines.read());
      assertEquals((await child.status).code, signals.length > 1 ? 130 : 0);
      for (let i = 0; i < 100 && pids.some(isRunning); i++) await new Promise((r) => setTimeout(r, 10));
      assertEquals(pids.filter(isRunning), []);
    },
  });
}
