/** An answer on a terminal: words in rows and Markdown in styles, however the text is cut into pieces. */

import { assert, assertEquals } from "@std/assert";
import { AnswerText } from "../../src/cli/chat/answer_text.ts";
import { width } from "../../src/cli/chat/width.ts";

/** The text with styles as tags: <b>, <i>, <c> for code, <d> for dimmed. */
function shown(text: string, piece: number, { columns = 80, marks = true, style = "" } = {}): string {
  const view = new AnswerText({ columns: () => columns, marks, style });
  let out = "";
  const chars = [...text];
  for (let at = 0; at < chars.length; at += piece) out += view.push(chars.slice(at, at + piece).join(""));
  out += view.end();
  const names: Readonly<Record<string, string>> = {
    "1": "b",
    "3": "i",
    "36": "c",
    "2": "d",
    "1;3": "bi",
    "1;36": "bc",
  };
  // deno-lint-ignore no-control-regex
  const styled = /\x1b\[([\d;]+)m([^\x1b]*)\x1b\[0m/g;
  return out
    .replaceAll(styled, (_, style, inner) => `<${names[style]}>${inner}</${names[style]}>`)
    .replaceAll(/<\/(\w+)>( ?)<\1>/g, "$2");
}

/** The same for pieces of one character, of a few, and as a whole. */
function shownAll(text: string, options = {}): string {
  const whole = shown(text, 100_000, options);
  for (const piece of [1, 2, 3, 7]) assertEquals(shown(text, piece, options), whole, `in pieces of ${piece}: ${text}`);
  return whole;
}

Deno.test("Markdown is shown as what it means", () => {
  const cases: readonly (readonly [text: string, expected: string])[] = [
    ["# A title\ntext", "<b>A title</b>\ntext"],
    ["a **bold word**, *one* and ***both***.", "a <b>bold word</b>, <i>one</i> and <bi>both</bi>."],
    ["call `mx.add(a, b)` twice, or ``a`b``", "call <c>mx.add(a, b)</c> twice, or <c>a`b</c>"],
    ["**`code` in bold**", "<bc>code</bc> <b>in bold</b>"],
    ["- one\n  - two\n* three\n", "• one\n  • two\n• three\n"],
    ["1. one\n2) two", "1. one\n2) two"],
    ["> quoted", "<d>│ </d>quoted"],
    [
      "```ts\nlet **a** = `b`;\n  # c\n```\nafter *x*",
      "<d>```ts</d>\n<c>let **a** = `b`;</c>\n<c>  # c</c>\n<d>```</d>\nafter <i>x</i>",
    ],
    ["````\n```\n````", "<d>````</d>\n<c>```</c>\n<d>````</d>"],
    ["| a | b |\n|---|---|\n| 1 | **2** |", "| a | b |\n|---|---|\n| 1 | **2** |"],
    ["---\nx", "<d>---</d>\nx"],
  ];
  for (const [text, expected] of cases) assertEquals(shownAll(text), expected);
});

Deno.test("what is no Markdown stays as it was written", () => {
  for (
    const text of [
      "2*3*4 = 24 and 2 ** 3",
      "a * b * c",
      "f(**kwargs) and *args",
      "an open **bold that ends nowhere\nnext line",
      "an open ` tick",
      "snake_case_name and __init__",
      "#hashtag, #1",
      "-5 degrees, ~5 items",
      "3.14 is pi\n2024 was a year",
      "C:\\dir\\*.txt",
      "a **** b",
      "  indented\n\n\n  twice",
      "spaces   within   a line",
      "\\(x^2\\) $a*b$",
      "",
      "\n",
    ]
  ) assertEquals(shownAll(text), text);
});

Deno.test("words are wrapped, below the text of a list", () => {
  const options = { columns: 12 };
  assertEquals(shownAll("one two three four", options), "one two\nthree four");
  assertEquals(shownAll("- one two three four", options), "• one two\n  three four");
  assertEquals(shownAll("10. one two three", options), "10. one two\n    three");
  assertEquals(shownAll("exactly 12 c and", options), "exactly 12 c\nand");
  assertEquals(shownAll("a **bold phrase**, here", options), "a <b>bold</b>\n<b>phrase</b>, here");
  assertEquals(shownAll("a-word-wider-than-the-row it", options), "a-word-wider-than-the-row it");
  assertEquals(shownAll("字字字字字字字字", options), "字字字字字字\n字字");
  assertEquals(shownAll("one two three", { columns: 7, marks: false, style: "2" }), "<d>one two</d>\n<d>three</d>");
  assertEquals(shownAll("```\none two three four\n```", options), "<d>```</d>\n<c>one two three four</c>\n<d>```</d>");
});

Deno.test("no row of any text is too wide, and no character is lost", () => {
  const words = ["a", "bb", "ccc,", "你好", "👍🏽", "**x", "y**", "`z`", "-", "1.", "*", "long-word"];
  let state = 1;
  const draw = (most: number): number => (state = state * 48271 % 2147483647) % most;
  for (let round = 0; round < 200; round++) {
    const text = Array.from({ length: 30 }, () => words[draw(words.length)] + (draw(9) === 0 ? "\n" : " ")).join("");
    const out = shownAll(text, { columns: 16 });
    const plain = out.replaceAll(/<\/?(?:b|i|c|d|bi|bc)>/g, "");
    for (const row of plain.split("\n")) assert(width(row.trimEnd()) <= 16, JSON.stringify([text, row]));
    const letters = (of: string): string => of.replaceAll(/[\s*`•-]/g, "");
    assertEquals(letters(plain), letters(text));
  }
});
