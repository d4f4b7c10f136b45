/**
 * `vkmx chat`: a conversation with a language model, on the terminal or line by line through pipes.
 *
 * The cache of keys and values stays between turns, so only new tokens are read: see `cachePrompt`.
 *
 * @module
 */

import { RuntimeError } from "../../../ffi/error.ts";
import { lm } from "../../../mod.ts";
import { Chat } from "../chat/chat.ts";
import { COMMANDS, runCommand } from "../chat/commands.ts";
import { complete } from "../chat/completion.ts";
import { isOpen, readEntry } from "../chat/entry.ts";
import { History } from "../chat/history.ts";
import { type Input, PipedInput } from "../chat/input.ts";
import { describeModel, EMBEDDED, freeModel, loadModel } from "../chat/session.ts";
import { isTerminal, Terminal } from "../chat/terminal.ts";
import { useDevice } from "../device.ts";
import type { Flags } from "../flags.ts";
import { describeTools, MCP_FLAGS, openMcp } from "../mcp.ts";
import { ADAPTER_FLAG, draftHeadOf, generateOptions, kvBitsOf, MODEL_FLAGS, placeOf } from "../model_flags.ts";
import { note } from "../output.ts";
import { type Command, command } from "../program.ts";

const FLAGS = {
  ...MODEL_FLAGS,
  ...ADAPTER_FLAG,
  "system": { ...MODEL_FLAGS.system, help: "system message" },
  ...MCP_FLAGS,
  "no-think": { help: "switch thinking off" },
  "quiet": { help: "no banner, and no figures after answers" },
  "json": { help: "print each answer as a JSON object on one line" },
} as const satisfies Flags;

const ABOUT = `A conversation: each line is a message, and one in """ may have several lines. /help lists the commands.
Through a pipe it answers each line of stdin; commands work there too.
Ctrl-C stops an answer, Ctrl-D ends the program.`;

const PROGRAM = {
  name: "vkmx chat",
  about: ABOUT,
  flags: FLAGS,
  examples: [
    "--model Qwen/Qwen3-0.6B-MLX-4bit",
    '--system "Answer in one sentence."',
    "--model Qwen/Qwen3-0.6B-MLX-4bit --mcp mcp.json",
  ],
};

const chat: Command = command(PROGRAM, async (values) => {
  const { device, quiet = false, json = false } = values;
  using input = openInput();
  const place = placeOf(values);
  const kept = { ...kvBitsOf(values), ...draftHeadOf(values) };
  await using mcp = await openMcp(values, { warn: (line) => note(`warning: ${line}\n`), signal: input.signal });
  await useDevice(device, { quiet });
  const adapterPath = values["adapter-path"];
  const loaded = await loadModel(values.model ?? EMBEDDED, { place, signal: input.signal, adapterPath, ...kept });
  const conversation = new Chat(input, loaded, {
    place,
    adapterPath,
    ...kept,
    system: values.system,
    mcp,
    settingsFor: (wishes) => generateOptions(values, wishes),
    json,
    stats: !quiet,
  });
  if (input.interactive && !quiet) {
    const tools = mcp ? `${describeTools(mcp.tools)}\n` : "";
    note(`${describeModel(loaded)}\n${tools}/help for commands\n`);
  }
  try {
    for (let line = await input.read(); line !== undefined; line = await input.read()) {
      if (await take(conversation, line) === "exit") break;
    }
  } finally {
    freeModel(conversation.loaded);
  }
  return 0;
});

/** Lines of the terminal, or of a pipe. */
function openInput(): Input {
  if (isTerminal()) return new Terminal(new History(), { complete: (text) => complete(COMMANDS, text), isOpen });
  const prompt = (): void => note(Deno.stdin.isTerminal() ? "> " : "");
  return new PipedInput(isOpen, prompt);
}

/** Does what a line asks for; "exit" ends the conversation. A mistake is one line on stderr and the conversation goes on. */
async function take(chat: Chat, line: string): Promise<"exit" | void> {
  const entry = readEntry(line);
  try {
    if (entry.kind === "message") await chat.say(entry.text);
    if (entry.kind === "command") return await runCommand(chat, entry.name, entry.argument);
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) throw error;
    if (error === chat.input.signal.reason) return note("[stopped]\n");
    // A device that is lost, or a mistake of the program, would only come again.
    if (entry.kind === "message" && !(error instanceof lm.LlmError)) throw error;
    const text = error instanceof RuntimeError ? error.detail : (error as Error).message;
    note(`error: ${text.replaceAll(/\s*\n\s*/g, " ")}\n`);
  }
}

export default chat;
