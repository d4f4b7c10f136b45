/**
 * `vkmx chat` on a terminal: keys are typed, and what a person would see is read from the screen. The file of /save tells which text
 * reached the model.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TINY_DIR } from "../support/models/models.ts";
import { Pty, type PtyOptions } from "../support/processes/pty.ts";

const ROOT = new URL("../../", import.meta.url);
/** libc is called by its name on Linux. */
const ignore = Deno.build.os !== "linux";

const folder = Deno.makeTempDirSync();
const KEPT = `${folder}/cache`;
/** The embedded model without an end: its answers go on to the end of the context. */
const ENDLESS = `${folder}/endless`;
Deno.test.beforeAll(() => {
  Deno.mkdirSync(ENDLESS);
  for (const { name } of Deno.readDirSync(TINY_DIR)) Deno.copyFileSync(new URL(name, TINY_DIR), `${ENDLESS}/${name}`);
  for (const name of ["config.json", "generation_config.json", "tokenizer_config.json"]) {
    const value = JSON.parse(Deno.readTextFileSync(`${ENDLESS}/${name}`));
    Deno.writeTextFileSync(
      `${ENDLESS}/${name}`,
      JSON.stringify({ ...value, eos_token_id: 4092, eos_token: "<tool_call>" }),
    );
  }
});
Deno.test.afterAll(() => Deno.removeSync(folder, { recursive: true }));

function chat(args: readonly string[], { env, ...options }: PtyOptions = {}): Pty {
  const program = [
    "run",
    "-A",
    "--no-check",
    "--config",
    `${ROOT.pathname}deno.json`,
    `${ROOT.pathname}src/cli/mod.ts`,
  ];
  return new Pty([Deno.execPath(), ...program, "chat", "--temp", "0", ...args], {
    env: { VKMX_DEVICE: "wasm", VKMX_CACHE: KEPT, TERM: "xterm", NO_COLOR: "", ...env },
    ...options,
  });
}

/** The user messages that the model got, by the file of a conversation. */
function said(path: string): string[] {
  const text = Deno.readTextFileSync(path);
  // deno-lint-ignore no-control-regex
  assert(!/[\x00-\x09\x0b-\x1f\x7f-\x9f]|\\u00[0189]/.test(text), "a control character reached the model");
  return JSON.parse(text).messages.filter(({ role }: { role: string }) => role === "user")
    .map(({ content }: { content: string }) => content);
}

const visible = (text: string): string => text.replaceAll("\x1b", "␛");

/** The figures after an answer. */
const ANSWERED = "%)]";

Deno.test({
  ignore,
  name: "keys edit, pastes are one message, and no escape byte reaches the model",
  fn: async () => {
    const file = `${folder}/keys.json`;
    await using pty = chat(["--no-think"], { columns: 40, rows: 12 });
    await pty.until("/help for commands");
    assertStringIncludes(pty.screen.text, "tiny-qwen3: qwen3, 8.92 M parameters,");
    // Editing in the middle: the word is mended with arrows, and the line goes from wherever the cursor is.
    pty.type("What is 17 + 2?\x1b[D5");
    await pty.untilScreen("> What is 17 + 25?");
    pty.type("\r");
    await pty.until(ANSWERED);
    assertStringIncludes(pty.screen.text, "> What is 17 + 25?\nThe answer is 42.\n[");
    // Wide characters, accents and emoji. The row is broken before the character that does not fit.
    pty.type("你好👍e\u0301x\x1b[D\x1b[D\x7f");
    await pty.untilScreen("> 你好e\u0301x");
    assertEquals(pty.screen.cursor[1], 6);
    pty.type(`\x05${"字".repeat(20)}`);
    await pty.untilScreen(`> 你好e\u0301x${"字".repeat(16)}`, "字".repeat(4));
    pty.type("\x01\x06\x7f\x05\x7f\r");
    await pty.until(ANSWERED);
    // A narrower terminal: the same text in more rows.
    pty.resize(20, 12);
    pty.type("abcdefghijklmnopqrstuvwxyz");
    await pty.untilScreen("> abcdefghijklmnopqr", "stuvwxyz");
    pty.resize(60, 12);
    pty.type("\x15\x1a/think"); // Ctrl-Z: without a shell the program goes on at once
    await pty.untilScreen("> /think");
    pty.type("\r");
    await pty.until("[thinking is off, thoughts are shown]");
    // A paste waits for Enter, whatever is in it; unknown keys are nothing.
    pty.type(
      "\x1b[200~Give me\r\nthe opposite\x1b[31m of\x1b]0;t\x07\x03\x04\x1b[201~\x1b[<0;1;1M\x1b[97;5u\x1b[15~ hard.",
    );
    await pty.untilScreen("> Give me", "  the opposite of hard.");
    pty.type("\r");
    await pty.until(ANSWERED);
    // A block goes on until its quotes, past a line that looks like a command.
    pty.type('"""Hi\r/clear\r\rwhat"""');
    await pty.untilScreen('> """Hi', "  /clear", "", '  what"""');
    pty.type("\r");
    await pty.until(ANSWERED);
    // Alt-Enter, and arrows between lines.
    pty.type("one\x1b\rtwo\x1b[A!");
    await pty.untilScreen("> one!", "  two");
    pty.type("\r");
    await pty.until(ANSWERED);
    pty.type("//x\r");
    await pty.until(ANSWERED);
    // Tab completes, and lists where more than one is meant.
    pty.type("/s\t");
    await pty.until("system  set     save    stats");
    pty.type(`av\t${folder}/keys.js`);
    await pty.untilScreen(`> /save ${folder}/keys.js`.slice(-1 - (`> /save ${folder}/keys.js`.length - 1) % 60));
    pty.type("on\r");
    await pty.until("12 messages saved");
    pty.type("/hlep\r");
    await pty.until("error: Unknown command /hlep: did you mean /help?");
    pty.type("/exit\r");
    assertEquals(await pty.exit(), 0);
    assertEquals(said(file), [
      "What is 17 + 25?",
      `好e\u0301x${"字".repeat(19)}`,
      "Give me\nthe opposite of hard.",
      "Hi\n/clear\n\nwhat",
      "one!\ntwo",
      "/x",
    ]);
    // The next run has the history of this one.
    await using next = chat(["--quiet"]);
    await next.until("> ");
    next.type("\x1b[A\x1b[A");
    await next.untilScreen("> /hlep");
    next.type("\x10\x10\x10");
    await next.untilScreen("> one!", "  two");
    next.type("\x03");
    await next.untilScreen("  two^C", ">");
    next.type("\x04");
    assertEquals(await next.exit(), 0);
  },
});

Deno.test({
  ignore,
  name: "an answer stops and the conversation goes on, with its history, files and another model",
  fn: async () => {
    const file = `${folder}/conversation.json`;
    await using pty = chat([], { columns: 100, rows: 40 });
    await pty.until("/help for commands");
    // Thoughts are dimmed, and without their tags.
    pty.type("What is 17 + 25?\r");
    const shown = await pty.until(ANSWERED);
    assertMatch(visible(shown), /␛\[2mOkay[^<]*␛\[0m\r\n\r\nThe answer is 42\.\r\n\[18/);
    // Text that is typed during an answer waits for the next line.
    pty.type("/think hide\rHi what is your name\rWhat is 17 + 25?\r/sys");
    await pty.until("[thinking is on, thoughts are hidden]");
    const first = await pty.until(ANSWERED);
    assert(!first.includes("What") && !first.includes("Okay"), first);
    const second = await pty.until(ANSWERED);
    assertStringIncludes(second, "> What is 17 + 25?\r");
    await pty.untilScreen("> /sys");
    pty.type("tem Be kind.\r");
    await pty.until('[the system message is "Be kind."]');
    pty.type(`/save ${file}\r`);
    await pty.until("6 messages saved");
    pty.type("/stats\r");
    const stats = await pty.until("memory ");
    assertMatch(
      stats,
      /context +\d+ of 4096 tokens\r\nconversation +3 answers, \d+ tokens read, \d+ cached, \d+ generated/,
    );
    pty.type('/clear\r/system ""\r');
    await pty.until("[a new conversation]");
    await pty.until("[no system message]");
    // A model that cannot be loaded leaves the one before; then one that never ends.
    pty.type("/model /nowhere\r");
    await pty.until("error: The model directory /nowhere does not exist");
    pty.type(`/model ${ENDLESS}\r`);
    await pty.until("endless: qwen3");
    pty.type("Hi what is your name\r");
    await pty.until("[thinking…]");
    await pty.until("Tiny Qwen");
    pty.type("typed ahead\x03");
    await pty.until("[the answer was stopped by Ctrl-C]");
    await pty.until(ANSWERED);
    await pty.untilScreen(">"); // Ctrl-C takes what was typed ahead
    pty.type(`/save ${file}2\r`);
    await pty.until("2 messages saved");
    pty.type(`/model tiny-qwen3\r`);
    await pty.until("tiny-qwen3: qwen3");
    pty.type(`/load ${file}\r`);
    await pty.until("[6 messages loaded");
    pty.type(`/save ${file}3\r`);
    await pty.until("6 messages saved");
    // Ctrl-C at an empty line tells how to end, and ends the second time.
    pty.type("x\x03\x03");
    await pty.until("Ctrl-D or /exit ends");
    pty.type("\x03");
    assertEquals(await pty.exit(), 130);
    assertMatch(visible(pty.output), /␛\[\?2004h[^]*␛\[\?2004l$/);
    assertMatch(await pty.modes(), /(^| )isig icanon .* echo /m);
    assertEquals(said(file), ["What is 17 + 25?", "Hi what is your name", "What is 17 + 25?"]);
    assertEquals(Deno.readTextFileSync(`${file}3`), Deno.readTextFileSync(file));
    const { messages, model } = JSON.parse(Deno.readTextFileSync(`${file}2`));
    assertEquals([model, messages.length], [ENDLESS, 2]);
    assertStringIncludes(messages[1].content, "Tiny Qwen");
    assertEquals(Deno.statSync(`${KEPT}/chat_history`).mode! & 0o777, 0o600);
  },
});

Deno.test({
  ignore,
  name: "Ctrl-C ends loading, Ctrl-D the program, and a signal leaves the terminal as it was",
  fn: async () => {
    const restored = async (pty: Pty): Promise<void> => {
      assert(pty.output.endsWith("\x1b[?2004l"), JSON.stringify(pty.output.slice(-100)));
      assertMatch(await pty.modes(), /(^| )isig icanon .* echo /m);
    };
    const ended = async (): Promise<void> => {
      await using pty = chat(["--quiet"], { columns: 4, rows: 2 });
      await pty.until("> ");
      pty.type("a\x7f\x04");
      assertEquals(await pty.exit(), 0);
      await restored(pty);
    };
    const killed = async (): Promise<void> => {
      await using pty = chat(["--quiet"]);
      await pty.until("> ");
      pty.kill("SIGTERM");
      assertEquals(await pty.exit(), 143);
      await restored(pty);
    };
    const loading = async (): Promise<void> => {
      const asked = Promise.withResolvers<void>();
      const ended = Promise.withResolvers<Response>();
      const silent = Deno.serve({ port: 0, onListen() {} }, () => {
        asked.resolve();
        return ended.promise;
      });
      const env = {
        HF_ENDPOINT: `http://localhost:${silent.addr.port}`,
        HF_HUB_CACHE: `${folder}/hub`,
        HF_HUB_OFFLINE: "",
      };
      await using pty = chat(["--model", "some/model"], { env });
      await asked.promise;
      pty.type("\x03");
      assertEquals(await pty.exit(), 130);
      await restored(pty);
      ended.resolve(new Response(null, { status: 500 }));
      await silent.shutdown();
    };
    const dumb = async (): Promise<void> => {
      await using pty = chat(["--no-think"], { env: { TERM: "dumb" } });
      await pty.until("> ");
      pty.type("What is 17 + 25?\r");
      await pty.until("The answer is 42.");
      await pty.until("> ");
      pty.type("\x04");
      assertEquals(await pty.exit(), 0);
      assert(!visible(pty.output).replaceAll("␛[0G␛[2K␛[J", "").includes("␛"), pty.output); // but for Deno's own
    };
    await Promise.all([ended(), killed()]);
    await Promise.all([loading(), dumb()]);
  },
});
