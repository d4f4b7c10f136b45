/**
 * The pieces of `vkmx chat` without a terminal: keys, the editor, the rows on the screen, entries, thoughts, files.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { LlmError } from "../../src/llm/error.ts";
import { COMMANDS } from "../../src/cli/chat/commands.ts";
import { complete } from "../../src/cli/chat/completion.ts";
import { load, save } from "../../src/cli/chat/conversation.ts";
import { Editor } from "../../src/cli/chat/editor.ts";
import { isOpen, readEntry } from "../../src/cli/chat/entry.ts";
import { History } from "../../src/cli/chat/history.ts";
import { KeyDecoder } from "../../src/cli/chat/keys.ts";
import { layout } from "../../src/cli/chat/screen.ts";
import { exchange, freeModel, type LoadedModel, loadModel } from "../../src/cli/chat/session.ts";
import { AnswerView } from "../../src/cli/chat/view.ts";
import { graphemes, harmless, typed, width } from "../../src/cli/chat/width.ts";
import { withOptions } from "../../scripts/support/options.ts";

/** Names of keys, and texts in brackets, of bytes that come in pieces of some length. */
function decoded(text: string, piece = 1000): string {
  const bytes = new TextEncoder().encode(text);
  const decoder = new KeyDecoder();
  const keys = [];
  for (let at = 0; at < bytes.length; at += piece) keys.push(...decoder.push(bytes.subarray(at, at + piece)));
  return keys.map((key) => "name" in key ? key.name : `${key.pasted ? "paste" : ""}[${key.text}]`).join(" ")
    .replaceAll("] [", "");
}

Deno.test("bytes become keys, however they are cut", () => {
  const cases: readonly (readonly [bytes: string, keys: string])[] = [
    ["a中\x1b[Ab", "[a中] up [b]"],
    ["\x1b[D\x1bOC\x1b[1;5D\x1bb\x1b[3~\x7f\x1b\x7f", "left right ctrl-left alt-b delete backspace alt-backspace"],
    ["\x01\x03\x04\x1a\t\x1b[Z", "ctrl-a ctrl-c ctrl-d ctrl-z tab shift-tab"],
    ["x\ry\n\x1b\r", "[x] return [y] return alt-return"],
    ["\x1b[200~a\r\x1b[Ab\x1b[201~\x1b[Ac", "paste[a\r\x1b[Ab] up [c]"],
    // Bytes of no key are ignored, and never become text in pieces.
    ["\x1b[<0;10;20M\x1b]11;rgb:0/0/0\x07\x1b[97;5u\x1b[?62;1c\x1bP1$r0m\x1b\\z", "[z]"],
  ];
  for (const [bytes, keys] of cases) {
    for (const piece of [1000, 1, 2, 3]) assertEquals(decoded(bytes, piece), keys, JSON.stringify(bytes));
  }
});

Deno.test("Escape alone is nothing, and what is typed later is text", () => {
  const decoder = new KeyDecoder();
  const bytes = (text: string) => new TextEncoder().encode(text);
  assertEquals(decoder.push(bytes("\x1b")), []);
  assert(decoder.waiting);
  decoder.flush();
  assertEquals(decoder.push(bytes("a")), [{ text: "a", pasted: false }]);
  assert(!decoder.waiting);
});

/** The text with a bar at the cursor after keys by name; other words are typed. */
function edited(keys: string, history: readonly string[] = []): string {
  const editor = new Editor({ history, isOpen, complete: (text) => complete(COMMANDS, text) });
  for (const word of keys.split(" ")) {
    const text = word.replaceAll("_", " ");
    editor.press(word.startsWith("<") ? { name: word.slice(1, -1) } : { text, pasted: false });
  }
  return `${editor.text.slice(0, editor.cursor)}|${editor.text.slice(editor.cursor)}`;
}

Deno.test("the editor moves, deletes and puts back by characters, words and lines", () => {
  const cases: readonly (readonly [keys: string, text: string])[] = [
    ["ab <left> c", "ac|b"],
    ["ab <home> <delete> <end> c", "bc|"],
    ["你好👍🏽e\u0301 <left> <left> x", "你好x|👍🏽e\u0301"],
    ["e\u0301👨‍👩‍👧 <backspace> <backspace>", "|"],
    ["one_two_three <ctrl-left> <ctrl-left> x", "one x|two three"],
    ["one_two_three <ctrl-w> <ctrl-a> <ctrl-y>", "three|one two "],
    ["one_two <ctrl-a> <alt-d> <ctrl-e> <ctrl-y>", " twoone|"],
    ["one_two <alt-b> <ctrl-k> <home> <ctrl-y>", "two|one "],
    ["one_two <alt-b> <ctrl-u> <end> <ctrl-y>", "twoone |"],
    ["ab <ctrl-t>", "ba|"],
    ["ab <alt-return> cdef <up> x", "abx|\ncdef"],
    ["abc <alt-return> d <up> <left> <down> x", "abc\nx|d"],
    ['"""a <return> b', '"""a\nb|'],
    ["<left> <backspace> <up> <down> <ctrl-y> a <ctrl-d>", "a|"],
    ["/he <tab>", "/help|"],
    ["/sa <tab>", "/save |"],
    ["/think_h <tab>", "/think hide|"],
    ["/zz <tab> x", "/zzx|"],
    ["mouse <f5> <undefined> <constructor>", "mouse|"],
  ];
  for (const [keys, text] of cases) assertEquals(edited(keys), text, keys);
});

Deno.test("arrows walk through the history and back to what was typed", () => {
  const history = ["first", "second\nline"];
  assertEquals(edited("new <up>", history), "second\nline|");
  assertEquals(edited("new <up> <up> <up>", history), "first|");
  assertEquals(edited("new <up> <up> <up> <up> <down> <down> x", history), "newx|");
});

Deno.test("what a key asks of the terminal", () => {
  const editor = new Editor({ history: [], isOpen, complete: (text) => complete(COMMANDS, text) });
  assertEquals(editor.press({ name: "ctrl-d" }), "end");
  editor.press({ text: "/s", pasted: false });
  assertEquals(editor.press({ name: "tab" }), { list: ["system ", "set ", "save ", "stats "] });
  assertEquals(editor.press({ name: "ctrl-c" }), "interrupt");
  assertEquals(editor.press({ name: "return" }), "send");
});

Deno.test("a text lies in rows that are no wider than the terminal", () => {
  const prompt = { first: "> ", others: "  " };
  assertEquals(layout(prompt, "abcdef", 6, 5), { rows: ["> abc", "def"], row: 1, column: 3 });
  assertEquals(layout(prompt, "abc", 3, 5), { rows: ["> abc", ""], row: 1, column: 0 });
  assertEquals(layout(prompt, "abc", 2, 5), { rows: ["> abc"], row: 0, column: 4 });
  assertEquals(layout(prompt, "abc\nd", 3, 5), { rows: ["> abc", "", "  d"], row: 1, column: 0 });
  assertEquals(layout(prompt, "a\nb", 2, 5), { rows: ["> a", "  b"], row: 1, column: 2 });
  assertEquals(layout(prompt, "你好吗", 2, 7), { rows: ["> 你好", "吗"], row: 1, column: 0 });
  assertEquals(layout(prompt, "\tx", 1, 80), { rows: [">     x"], row: 0, column: 6 });
  const narrow = layout(prompt, "你a", 2, 1); // narrower than one character: it goes on
  assertEquals(narrow.rows.join("").replaceAll(/[> ]/g, ""), "你a");
});

Deno.test("characters are as wide as terminals draw them", () => {
  const widths: Record<string, number> = {
    a: 1,
    é: 1,
    "e\u0301": 1,
    你: 2,
    한: 2,
    Ａ: 2,
    ｱ: 1,
    "👍🏽": 2,
    "👨‍👩‍👧": 2,
    "🇩🇪": 2,
    "❤️": 2,
  };
  for (const [text, columns] of Object.entries(widths)) {
    assertEquals([width(text), graphemes(text).length], [columns, 1], text);
  }
});

Deno.test("no control character is obeyed or sent", () => {
  assertEquals(harmless("a\x1b[2Jb\r\n\tc\x07\x7f\x9b1m"), "a␛[2Jb\n\tc␇␡\ufffd1m");
  assertEquals(typed("a\x1b[31mb\r\nc\rd\te\x1b]0;title\x07f\x00\x9b2Jg\x1b"), "ab\nc\nd\tefg");
});

/** An answer on a terminal; on a pipe if `terminal` is false. */
function shownOf(
  parts: readonly (readonly [reasoning: string, text: string])[],
  hide: boolean,
  terminal = true,
): string {
  const { isTerminal, writeSync } = Deno.stdout;
  using _options = withOptions({ env: { NO_COLOR: "", TERM: "" } });
  let written = "";
  try {
    Deno.stdout.isTerminal = () => terminal;
    Deno.stdout.writeSync = (bytes) => {
      written += new TextDecoder().decode(bytes);
      return bytes.length;
    };
    const view = new AnswerView(hide);
    for (const [reasoning, text] of parts) view.show({ reasoning, text, raw: `{${reasoning}${text}}` });
    view.end();
  } finally {
    Object.assign(Deno.stdout, { isTerminal, writeSync });
  }
  return written.replaceAll("\x1b", "ESC");
}

Deno.test("an answer cannot drive the terminal, and its thoughts are dimmed or hidden", () => {
  const answer = [["a\x1b[2J", ""], ["b", ""], ["", "c\x1b]0;x\x07"], ["", "\x9bd\r\n"]] as const;
  assertEquals(shownOf(answer, false), "ESC[2ma␛[2JbESC[0m\n\nc␛]0;x␇\ufffdd\n\n");
  assertEquals(shownOf(answer, true), "c␛]0;x␇\ufffdd\n\n");
  assertEquals(shownOf(answer, false, false), "{aESC[2J}{b}{cESC]0;x\x07}{\x9bd\r\n}\n");
});

Deno.test("a line is a message, a command or nothing", () => {
  const message = (text: string) => ({ kind: "message", text });
  const commandOf = (name: string, argument = "") => ({ kind: "command", name, argument });
  const cases: readonly (readonly [string, unknown])[] = [
    ["hi ", message("hi ")],
    ["", { kind: "nothing" }],
    [" \n", { kind: "nothing" }],
    ["/help", commandOf("help")],
    [" /system  a\nb ", commandOf("system", "a\nb")],
    ["//x", message("/x")],
    ["/", commandOf("")],
    ['"""/x"""', message("/x")],
    ['"""\na\n\n b\n"""', message("a\n\n b")],
    ['"""a\nb"""  ', message("a\nb")],
    ['"""\n"""', { kind: "nothing" }],
  ];
  for (const [line, entry] of cases) assertEquals<unknown>(readEntry(line), entry, JSON.stringify(line));
  assertEquals(['"""', '"""a', '"""a"', '"""a"""', '"""\n"""', 'a """'].map(isOpen), [
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});

Deno.test("a conversation is kept whole, and a file that is none is refused", () => {
  const folder = Deno.makeTempDirSync();
  const path = `${folder}/c.json`;
  const saved = {
    model: "m",
    system: undefined,
    options: { temp: 0.5, stop: ["a"], seed: undefined, enableThinking: false },
    messages: [
      { role: "user", content: 'a\n"b"' },
      { role: "assistant", content: "你好", reasoning_content: "hm" },
    ] satisfies mx.lm.ChatMessage[],
  };
  save(path, saved);
  assertEquals(load(path), { ...saved, options: { temp: 0.5, stop: ["a"], enableThinking: false } });
  assertEquals(Array.from(Deno.readDirSync(folder), (entry) => entry.name), ["c.json"]);
  const good = JSON.parse(Deno.readTextFileSync(path));
  const cases: readonly (readonly [unknown, string])[] = [
    ["{", "is no JSON: /load reads what /save wrote"],
    [[], "is no conversation: /load reads what /save wrote"],
    [{ ...good, version: 2 }, "has version 2, expected 1"],
    [{ ...good, model: 1 }, "has the model 1, expected a name"],
    [{ ...good, system: {} }, "has the system message {}, expected a text"],
    [{ ...good, options: { tmep: 1 } }, 'has the option "tmep": known are'],
    [{ ...good, options: { temp: "hot\x1b" } }, 'has temp "hot\\u001b", expected a number'],
    [{ ...good, options: { stop: "x" } }, 'has stop "x", expected a list of texts'],
    [{ ...good, messages: {} }, "has the messages {}, expected a list"],
    [
      { ...good, messages: [{ role: "system", content: "x" }] },
      "has a messages[0] that is of no user, assistant or tool",
    ],
    [{ ...good, messages: [{ role: "user" }] }, "has a messages[0] without a text"],
  ];
  for (const [value, message] of cases) {
    Deno.writeTextFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
    assertThrows(() => load(path), Error, `${path} ${message}`);
  }
  assertThrows(() => load(`${folder}/none`), Error, `${folder}/none does not exist`);
  assertThrows(() => save(`${folder}/none/c.json`, saved), Error, "cannot be written");
  Deno.removeSync(folder, { recursive: true });
});

Deno.test("the history is kept for its owner only, has a limit and is never in the way", () => {
  const folder = Deno.makeTempDirSync();
  const path = `${folder}/new/history`;
  const history = new History(path);
  for (const line of ["one", "two\nlines", "two\nlines", " ", "x".repeat(30_000)]) history.add(line);
  assertEquals(new History(path).lines, ["one", "two\nlines"]);
  if (Deno.build.os !== "windows") assertEquals(Deno.statSync(path).mode! & 0o777, 0o600);
  Deno.writeTextFileSync(path, `{"damaged"\n5\n${Array.from({ length: 2500 }, (_, i) => `"${i}"\n`).join("")}"cut`);
  const { lines } = new History(path);
  assertEquals([lines.length, lines[0], lines.at(-1)], [1000, "1500", "2499"]);
  assertEquals(Deno.readTextFileSync(path).split("\n").length, 1001);
  if (Deno.build.os !== "windows") assertEquals(Deno.statSync(path).mode! & 0o777, 0o600);
  const none = new History(folder); // a folder can neither be read nor written
  none.add("kept in memory");
  assertEquals(none.lines, ["kept in memory"]);
  Deno.removeSync(folder, { recursive: true });
});

Deno.test("Tab completes files and folders", () => {
  const folder = Deno.makeTempDirSync();
  for (const name of ["chat one.json", "chat two.json", ".hidden"]) Deno.writeTextFileSync(`${folder}/${name}`, "");
  Deno.mkdirSync(`${folder}/models`);
  const of = (text: string) => complete(COMMANDS, text).candidates.map((path) => path.replace(folder, ""));
  assertEquals(of(`/load ${folder}/c`), ["/chat one.json", "/chat two.json"]);
  assertEquals(of(`/load ${folder}/`), ["/chat one.json", "/chat two.json", "/models/"]);
  assertEquals(of(`/model ${folder}/`), ["/models/"]);
  assertEquals([of("/load /nowhere/x"), of("hello"), of("//he"), of("/clear x")], [[], [], [], []]);
  Deno.removeSync(folder, { recursive: true });
});

Deno.test("a model that was exchanged leaves nothing on the device", async () => {
  const { signal } = new AbortController();
  const open = (name: string) => loadModel(name, { place: { device: "wasm" }, signal });
  let current = await open("tiny-qwen3");
  const say = async () => {
    const { model, tokenizer, cache } = current;
    const messages = [{ role: "user", content: "Hi" }] as const;
    return await mx.lm.generate(model, tokenizer, messages, { maxTokens: 2, cache, cachePrompt: true });
  };
  await say();
  freeModel(current);
  const before = mx.getActiveMemory();
  current = await open("tiny-qwen3");
  await say();
  const one = mx.getActiveMemory();
  await exchange(current, open, "tiny-qwen3", (loaded) => current = loaded);
  await say();
  assertEquals(mx.getActiveMemory(), one);
  freeModel(current);
  assertEquals(mx.getActiveMemory(), before);
});

Deno.test("another model takes the place of the one before, which stays where that fails", async () => {
  const held: string[] = [];
  const notes: string[] = [];
  const fake = (name: string): LoadedModel => {
    held.push(name);
    const model = { [Symbol.dispose]: () => held.splice(held.indexOf(name), 1) };
    return { name, model, cache: { [Symbol.dispose]() {} } } as unknown as LoadedModel;
  };
  let current = fake("a");
  const go = async (name: string, loadable: (name: string) => void) => {
    const attempt = (asked: string) => {
      notes.push(asked);
      loadable(asked);
      return Promise.resolve(fake(asked));
    };
    await exchange(current, attempt, name, (loaded) => current = loaded).catch((error) => notes.push(error.message));
    return [current.name, [...held], notes.splice(0)];
  };
  assertEquals(await go("b", () => {}), ["b", ["b"], ["b"]]);
  const missing = () => {
    throw new LlmError("config", "no such model");
  };
  assertEquals(await go("c", missing), ["b", ["b"], ["c", "no such model"]]);
  const alone = () => {
    if (held.length > 0) throw new LlmError("memory", "no room");
  };
  assertEquals(await go("c", alone), ["c", ["c"], ["c", "c"]]);
  const small = (name: string) => {
    if (name === "huge") throw new LlmError("memory", "no room");
  };
  assertEquals(await go("huge", small), ["c", ["c"], ["huge", "huge", "c", "no room"]]);
});
