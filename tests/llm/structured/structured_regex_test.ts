/**
 * Regular expressions of `responseFormat` match what JavaScript's RegExp with the u flag matches, over all planes of
 * Unicode. They are tested as a whole text, as a pattern of a schema, and as a class of a grammar.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { randomFrom, statesOf, takes } from "../../support/oracles/grammars.ts";

const CASES = Number(Deno.env.get("VKMX_CASES") ?? 40) * 10;

/** Characters at the borders of classes, of UTF-8's lengths and of planes, and what JSON escapes. */
const BORDERS = [
  ...[
    "\0",
    "\n",
    "\r",
    "\x1f",
    " ",
    '"',
    "\\",
    "-",
    "^",
    "]",
    "/",
    "0",
    "9",
    "A",
    "Z",
    "_",
    "a",
    "z",
    "\x7f",
    "\x80",
    "\xa0",
  ],
  ...["é", "ÿ", "\u07ff", "\u0800", "\u2028", "а", "я", "ё", "汉", "\ud7ff", "\ue000", "\ufeff", "\uffff", "\u{10000}"],
  ...["😀", "😁", "\u{1ffff}", "\u{20000}", "\u{e0001}", "\u{fffff}", "\u{100000}", "\u{10ffff}"],
];

/** Random expressions and texts. */
class Drawer {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = randomFrom(seed);
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)];
  }

  /** A code point of any plane, mostly one at a border. */
  char(): string {
    if (this.#random() < 0.7) return this.pick(BORDERS);
    const point = Math.floor(this.#random() * 0x110000);
    return point >= 0xd800 && point < 0xe000 ? "x" : String.fromCodePoint(point);
  }

  #escaped(char: string): string {
    const point = char.codePointAt(0)!;
    if (/[\^$\\.*+?()[\]{}|/-]/.test(char)) return /-/.test(char) ? "\\x2d" : `\\${char}`;
    const forms = [char, `\\u{${point.toString(16)}}`];
    if (point < 0x100) forms.push(`\\x${point.toString(16).padStart(2, "0")}`);
    if (char.length === 2) {
      forms.push([0, 1].map((i) => `\\u${char.charCodeAt(i).toString(16)}`).join(""));
    }
    return this.pick(forms);
  }

  class(): string {
    const members = Array.from({ length: 1 + Math.floor(this.#random() * 4) }, () => {
      if (this.#random() < 0.25) return this.pick(["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\-", "\\b", "\\]", "^"]);
      const ends = [this.char(), this.char()].sort((a, b) => a.codePointAt(0)! - b.codePointAt(0)!);
      return this.#random() < 0.5 ? this.#escaped(ends[0]) : ends.map((end) => this.#escaped(end)).join("-");
    });
    const negated = this.#random() < 0.4;
    if (!negated && members[0] === "^") members[0] = "\\^";
    return `[${negated ? "^" : ""}${members.join("")}]`;
  }

  #atom(depth: number): string {
    const kind = this.#random();
    if (kind < 0.3) return this.#escaped(this.char());
    if (kind < 0.6) return this.class();
    if (kind < 0.7) return this.pick([".", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\n", "\\cJ", "\\0"]);
    if (kind < 0.75 || depth === 0) return this.pick(["\\^", "\\.", "[^]", "\\/"]);
    return `(${this.pick(["", "?:", "?<name>"])}${this.expression(depth - 1)})`;
  }

  expression(depth: number): string {
    const branch = (): string => {
      const parts = Array.from({ length: Math.floor(this.#random() * 4) }, () => {
        if (this.#random() < 0.1) return this.pick(["^", "$"]);
        return this.#atom(depth) + this.pick(["", "", "", "*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?", "{2,}"]);
      });
      return parts.join("");
    };
    return Array.from({ length: this.#random() < 0.3 ? 2 : 1 }, branch).join("|");
  }

  text(): string {
    return Array.from({ length: Math.floor(this.#random() * 5) }, () => this.char()).join("");
  }
}

/** The expression, where RegExp takes it: names of groups may stand twice. */
function compiled(source: string): RegExp | undefined {
  try {
    return new RegExp(source, "u");
  } catch {
    return undefined;
  }
}

Deno.test("random expressions match what RegExp matches, whole and in JSON", () => {
  const draw = new Drawer(1);
  let [matched, refused] = [0, 0];
  for (let i = 0; i < CASES; i++) {
    const source = draw.expression(2);
    // V8 15 finds no surrogate pair where a class of some planes is searched for, so the search is written out.
    const [whole, part] = [compiled(`^(?:${source})$`), compiled(`^[^]*(?:${source})[^]*$`)];
    if (!whole || !part || source === "") continue;
    const schema = JSON.stringify({ type: "string", pattern: source });
    const text = statesOf({ kind: "regex", text: source });
    const strict = statesOf({ kind: "json", text: schema, strict: true });
    const free = statesOf({ kind: "json", text: schema, strict: false });
    for (let j = 0; j < 20; j++) {
      const sample = draw.text();
      const expected = whole.test(sample);
      const note = `/${source}/ and ${JSON.stringify(sample)}`;
      assertEquals(takes(text, sample), expected, note);
      assertEquals(takes(strict, JSON.stringify(sample)), expected, `${note} in JSON`);
      assertEquals(takes(free, JSON.stringify(sample)), part.test(sample), `a part of ${note} in JSON`);
      if (expected) matched++;
      else refused++;
    }
  }
  assert(matched > CASES && refused > CASES, `${matched} matched, ${refused} did not`);
});

Deno.test("classes hold the code points that RegExp's do, in all planes", () => {
  const draw = new Drawer(2);
  const classes = [
    ...["[а-я]", "[a-zé]", "[\\^]", "[^\\^]", ".", "\\w", "\\W", "\\s", "\\S", "[\\u{1f600}-\\u{1f64f}]", "[^\\n\\r]"],
    ...["\\p{L}", "\\P{Script=Cyrillic}", "[\\p{Lu}\\d-]", ...Array.from({ length: CASES / 40 }, () => draw.class())],
  ];
  // Every code point near a border, and some of each block of 64 elsewhere.
  const points = new Set(BORDERS.flatMap((char) => [-1, 0, 1].map((step) => char.codePointAt(0)! + step)));
  for (let point = 0; point < 0x110000; point += point < 0x3000 ? 1 : 61) points.add(point);
  const chars = [...points].filter((point) => point >= 0 && point < 0x110000 && (point < 0xd800 || point > 0xdfff))
    .map((point) => String.fromCodePoint(point));
  for (const source of classes) {
    const states = statesOf({ kind: "regex", text: source });
    const expected = new RegExp(`^${source}$`, "u");
    const wrong = chars.find((char) => takes(states, char) !== expected.test(char));
    assertEquals(wrong?.codePointAt(0)?.toString(16), undefined, source);
  }
});

Deno.test("bytes that are no UTF-8 match nothing", () => {
  const states = statesOf({ kind: "regex", text: "[^]*" });
  const wrong = [[0x80], [0xc0, 0x80], [0xc3], [0xe0, 0x80, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [
    0xff,
  ]];
  for (const bytes of wrong) {
    let state = states.start();
    for (const byte of bytes) state = states.step(state, states.classes[byte]);
    assert(!state.ends, String(bytes));
  }
});

Deno.test("what no automaton holds, and what is wrong, is refused with a reason", () => {
  const refused: readonly (readonly [string, RegExp])[] = [
    ["a(?=b)", /lookahead/],
    ["(?<!a)b", /lookbehind/],
    ["(a)\\1", /reference/],
    ["\\bword", /\\b/],
    ["(a", /parenthesis/],
    ["a)", /parenthesis/],
    ["*", /nothing to repeat/],
    ["[a", /without "]"/],
    ["[z-a]", /out of order/],
    ["[\\d-z]", /range of a class/],
    ["a{3,2}", /out of order/],
    ["a{", /count/],
    ["\\q", /no meaning/],
    ["\\p{Nothing}", /not known/],
    ["a{999999}", /at most/],
    ["(".repeat(300) + ")".repeat(300), /levels/],
  ];
  for (const [source, why] of refused) {
    assert(why.test(assertThrows(() => statesOf({ kind: "regex", text: source }), Error).message), source);
  }
});
