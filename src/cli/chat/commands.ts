/**
 * The commands of a conversation: one row each, with its help, its argument and its function.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { nearest } from "../../graph/nearest.ts";
import { note } from "../output.ts";
import { type Argument, expanded } from "./completion.ts";
import { load, save } from "./conversation.ts";
import type { Chat } from "./chat.ts";
import { CommandError } from "./error.ts";
import { describeModel, exchange } from "./session.ts";
import { describeSettings, SETTING_NAMES, settingOf, withSetting } from "./settings.ts";

/** A row of the table. */
export interface ChatCommand {
  /** How its argument is called in the list. */
  readonly argument?: string;
  /** Words that Tab completes there; without it, the command takes no argument. */
  readonly takes?: Argument;
  /** Whether it cannot do without. */
  readonly needed?: boolean;
  readonly help: string;
  /** Other names. */
  readonly aliases?: readonly string[];
  /** Does it; "exit" ends the conversation. */
  readonly run: (chat: Chat, argument: string) => Promise<"exit" | void> | "exit" | void;
}

/** Commands by name, in the order of the list. */
const ROWS: Readonly<Record<string, ChatCommand>> = {
  help: { help: "show this list", aliases: ["?"], run: () => note(help()) },
  clear: { help: "begin a new conversation", run: clear },
  system: { argument: "[TEXT]", takes: "text", help: 'show or set the system message; "" removes it', run: system },
  set: {
    argument: "[NAME [VALUE]]",
    takes: { first: SETTING_NAMES },
    help: 'show settings, or change one: /set temp 0.7; "default" takes it back',
    run: set,
  },
  retry: { help: "answer the last message again", run: retry },
  undo: { help: "take back the last message and its answer", run: undo },
  save: { argument: "FILE", takes: "file", needed: true, help: "write the conversation as JSON", run: saveTo },
  load: {
    argument: "FILE",
    takes: "file",
    needed: true,
    help: "go on with a conversation that was saved",
    run: loadFrom,
  },
  think: {
    argument: "[on|off|hide|show]",
    takes: ["on", "off", "hide", "show"],
    help: "let the model think first or not; hide or show its thoughts",
    run: think,
  },
  stats: {
    argument: "[on|off]",
    takes: ["on", "off"],
    help: "show figures; with or without a line of them after each answer",
    run: stats,
  },
  model: {
    argument: "[NAME]",
    takes: "folder",
    help: "show the model, or load another one by name or folder",
    run: model,
  },
  exit: { help: "end, as Ctrl-D does", aliases: ["bye", "quit"], run: () => "exit" },
};

/** The same by every name. */
export const COMMANDS: Readonly<Record<string, ChatCommand>> = Object.fromEntries(
  Object.entries(ROWS).flatMap(([name, row]) => [name, ...row.aliases ?? []].map((word) => [word, row])),
);

/** Runs a command. Throws an Error whose message is for the user; "exit" asks for the end. */
export async function runCommand(chat: Chat, name: string, argument: string): Promise<"exit" | void> {
  if (!Object.hasOwn(COMMANDS, name)) {
    const setting = settingOf(name);
    const near = setting !== undefined
      ? `set ${setting}`
      : name.length > 1
      ? nearest(name, Object.keys(COMMANDS))
      : undefined;
    const hint = near === undefined ? "" : `: did you mean /${near}?`;
    throw new CommandError(
      `Unknown command ${shownPath(`/${name}`)}${hint} (/help lists all, "//" begins a message with "/")`,
    );
  }
  const { takes, needed, argument: called, run } = COMMANDS[name];
  if (takes === undefined && argument !== "") throw new CommandError(`/${name} takes nothing after it`);
  if (needed && argument === "") throw new CommandError(`/${name} needs a value: /${name} ${called}`);
  if (Array.isArray(takes) && argument !== "" && !takes.includes(argument)) {
    const near = nearest(argument, takes);
    const expected = near === undefined ? `, expected ${takes.join(", ")}` : `: did you mean ${near}?`;
    throw new CommandError(`/${name} is ${quoted(argument)}${expected}`);
  }
  return await run(chat, argument);
}

function help(): string {
  const rows = Object.entries(ROWS).map(([name, { argument, aliases = [], help }]) => [
    [`/${name}`, ...argument === undefined ? [] : [argument], ...aliases.map((alias) => `/${alias}`)].join(" "),
    help,
  ]);
  rows.push(
    ['"""', 'begin a message of several lines, which """ ends; Alt-Enter begins another line too'],
    ["//TEXT", 'send a message that begins with "/"'],
    ["Tab", "complete a command or a file name"],
    ["Up, Down", "earlier messages"],
    ["Ctrl-C", "stop the answer"],
  );
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `${left.padEnd(width)}  ${right}\n`).join("");
}

function clear(chat: Chat): void {
  chat.messages = [];
  note("[a new conversation]\n");
}

function system(chat: Chat, argument: string): void {
  if (argument !== "") chat.system = argument === '""' ? undefined : argument;
  const { system } = chat;
  note(system === undefined ? "[no system message]\n" : `[the system message is ${quoted(system)}]\n`);
}

function set(chat: Chat, argument: string): void {
  const [, name, value] = /^(\S*)\s*([^]*)$/.exec(argument)!;
  if (value !== "") chat.settings = withSetting(chat.settings, chat.defaults, name, value);
  note(describeSettings(chat.settings, name));
}

async function retry(chat: Chat): Promise<void> {
  if (!await chat.retry()) throw new CommandError("/retry has nothing to answer: nothing was said");
}

function undo(chat: Chat): void {
  if (!chat.undo()) throw new CommandError("/undo has nothing to take back: nothing was said");
  note("[the last message and its answer were taken back]\n");
}

function saveTo({ loaded, system, settings, messages }: Chat, argument: string): void {
  save(expanded(argument), { model: loaded.name, system, options: settings, messages });
  note(`[${counted(messages.length)} saved to ${shownPath(argument)}]\n`);
}

function loadFrom(chat: Chat, argument: string): void {
  const { model, system, options, messages } = load(expanded(argument));
  chat.messages = messages;
  chat.system = system;
  chat.settings = { maxTokens: chat.settings.maxTokens, ...options };
  const other = model === chat.loaded.name ? "" : `; it was with ${shownPath(model)}: /model loads that`;
  note(`[${counted(messages.length)} loaded from ${shownPath(argument)}${other}]\n`);
}

function counted(messages: number): string {
  return messages === 1 ? "1 message" : `${messages} messages`;
}

function think(chat: Chat, argument: string): void {
  if (argument === "on" || argument === "off") chat.settings = { ...chat.settings, enableThinking: argument === "on" };
  else if (argument !== "") chat.hideThoughts = argument === "hide";
  const { enableThinking = true } = chat.settings;
  note(`[thinking is ${enableThinking ? "on" : "off"}, thoughts are ${chat.hideThoughts ? "hidden" : "shown"}]\n`);
}

function stats(chat: Chat, argument: string): void {
  if (argument !== "") {
    chat.stats = argument === "on";
    return note(`[figures after answers are ${argument}]\n`);
  }
  const { totals, last, loaded } = chat;
  const rows = [
    ["model", describeModel(loaded)],
    ["context", `${loaded.cache.offset} of ${chat.contextSize} tokens`],
    [
      "conversation",
      `${totals.answers} answers, ${totals.read} tokens read, ${totals.cached} cached, ${totals.generated} generated`,
    ],
    ...(last === undefined ? [] : [[
      "last answer",
      `${last.promptTokens - last.cachedTokens} tokens read at ${
        last.promptTps.toFixed(1)
      }/s, ${last.cachedTokens} cached, ` +
      `${last.generationTokens} generated at ${last.generationTps.toFixed(1)}/s`,
    ]]),
    ...(last?.draftedTokens === undefined
      ? []
      : [["drafts", `${last.draftedTokens} tokens, ${last.acceptedTokens} accepted`]]),
    ["memory", `${gigabytes(mx.getActiveMemory())}, at most ${gigabytes(mx.getPeakMemory())}`],
  ];
  const width = Math.max(...rows.map(([left]) => left.length));
  note(rows.map(([left, right]) => `${left.padEnd(width)}  ${right}\n`).join(""));
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(3)} GB`;
}

async function model(chat: Chat, argument: string): Promise<void> {
  if (argument !== "") await exchange(chat.loaded, (name) => chat.load(name), argument, (loaded) => chat.take(loaded));
  note(`${describeModel(chat.loaded)}\n`);
}
