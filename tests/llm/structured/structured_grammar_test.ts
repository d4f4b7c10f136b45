/**
 * Grammars in EBNF. Random grammars take the texts that a table of all spans derives, whatever rules call each other.
 * The notation means what docs/structured-output.md says, and bounds of code are kept.
 */

import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { masksOf, randomFrom, statesOf, takes, tokensOf } from "../../support/oracles/grammars.ts";

const CASES = Number(Deno.env.get("VKMX_CASES") ?? 40) * 5;
const LETTERS = ["a", "b"];
const MAX_TEXT = 5;

/** Alternatives of rules by index; a number calls a rule, a text is itself. */
type Grammar = readonly (readonly (readonly (number | string)[])[])[];

function randomGrammar(random: () => number): Grammar {
  const count = 1 + Math.floor(random() * 4);
  const symbol = (): number | string =>
    random() < 0.5 ? Math.floor(random() * count) : LETTERS[Math.floor(random() * LETTERS.length)];
  return Array.from(
    { length: count },
    () =>
      Array.from(
        { length: 1 + Math.floor(random() * 3) },
        () => Array.from({ length: Math.floor(random() * 4) }, symbol),
      ),
  );
}

function written(grammar: Grammar): string {
  const name = (rule: number): string => rule === 0 ? "root" : `r${rule}`;
  const part = (symbol: number | string): string => typeof symbol === "number" ? name(symbol) : `"${symbol}"`;
  return grammar.map((alternatives, rule) =>
    `${name(rule)} ::= ${alternatives.map((parts) => parts.map(part).join(" ") || '""').join(" | ")}`
  ).join("\n");
}

/** Whether a text is derived: by which rules each span of it is, until nothing is added. */
function derives(grammar: Grammar, text: string): boolean {
  const found = new Set<string>();
  const spans = (parts: readonly (number | string)[], from: number): number[] => {
    let ends = new Set([from]);
    for (const part of parts) {
      const next = new Set<number>();
      for (const at of ends) {
        if (typeof part === "string") text[at] === part && next.add(at + 1);
        else for (let to = at; to <= text.length; to++) if (found.has(`${part} ${at} ${to}`)) next.add(to);
      }
      ends = next;
    }
    return [...ends];
  };
  for (let before = -1; before !== found.size;) {
    before = found.size;
    for (const [rule, alternatives] of grammar.entries()) {
      for (let from = 0; from <= text.length; from++) {
        for (const parts of alternatives) for (const to of spans(parts, from)) found.add(`${rule} ${from} ${to}`);
      }
    }
  }
  return found.has(`0 0 ${text.length}`);
}

/** All texts of up to some letters. */
const TEXTS = Array.from({ length: MAX_TEXT }).reduce<string[]>(
  (texts) => ["", ...texts.flatMap((text) => LETTERS.map((letter) => text + letter))],
  [""],
);

Deno.test("random grammars take what they derive, and masks allow what goes on to a text", () => {
  const random = randomFrom(6);
  let [taken, refused] = [0, 0];
  for (let i = 0; i < CASES; i++) {
    const grammar = randomGrammar(random);
    const text = written(grammar);
    const states = statesOf({ kind: "ebnf", text });
    const derived = new Set(TEXTS.filter((one) => derives(grammar, one)));
    for (const one of new Set(TEXTS)) {
      assertEquals(takes(states, one), derived.has(one), `${text}\ntakes ${JSON.stringify(one)}`);
      if (derived.has(one)) taken++;
      else refused++;
    }
    const first = tokensOf(masksOf(states).mask(states.start())).map((token) => String.fromCharCode(token));
    for (const letter of LETTERS) {
      if ([...derived].some((one) => one.startsWith(letter))) {
        assert(first.includes(letter), `${text}\nbegins with ${letter}`);
      }
      if (!states.possible) assert(!first.includes(letter), text);
    }
  }
  assert(taken > CASES && refused > CASES, `${taken} taken, ${refused} refused`);
});

Deno.test("the notation means what the document says", () => {
  const cases: readonly (readonly [grammar: string, taken: readonly string[], refused: readonly string[]])[] = [
    ['root ::= "a" b # comment\n  "c"\nb ::= "x" | "y"', ["axc", "ayc"], ["axyc", "ac"]],
    ['root ::= "\\n\\t\\"\\\\\\x41\\u00e9\\U0001F600"', ['\n\t"\\Aé😀'], ["\n"]],
    ["root ::= [^\\]\\-a-c]", ["d", "é", "😀"], ["]", "-", "b", ""]],
    ["root ::= [a-]", ["a", "-"], ["b"]],
    ["root ::= [а-яё]+", ["привет", "ё"], ["5", "?", "Я"]],
    ['root ::= ("ab" | "c"){2} "d"? "e"{2,} "f"{1,3}', ["abceef", "ccdeeefff"], ["abef", "cceeffff"]],
    ["root ::= .", ["\n", "汉"], ["", "ab"]],
    ['root ::= ( "a"\n | "b" )\n\n', ["a", "b"], ["ab"]],
    ['root ::= s\ns ::= "(" s ")" s | ""', ["", "(())()"], ["(()", ")"]],
  ];
  for (const [text, taken, refused] of cases) {
    const states = statesOf({ kind: "ebnf", text });
    for (const one of taken) assert(takes(states, one), `${text} refuses ${JSON.stringify(one)}`);
    for (const one of refused) assert(!takes(states, one), `${text} takes ${JSON.stringify(one)}`);
  }
});

Deno.test("what is wrong with a grammar is said with its line", () => {
  const cases: readonly (readonly [string, string])[] = [
    ['root ::= "a', 'line 1: expected "'],
    ['root ::= "a"\nx = "b"', "line 2"],
    ["root ::= x", '"x" is not defined'],
    ['x ::= "a"', '"root" is not defined'],
    ['root ::= "a"\nroot ::= "b"', "line 2"],
    ['root ::= ("a"', "parenthesis"],
    ["root ::= [b-a]", "out of order"],
    ['root ::= "a"{3,2}', "out of order"],
    ['root ::= "a" (= "b")', "lookahead"],
    ["root ::= TagDispatch()", "TagDispatch"],
    ['root ::= "\\q"', "no meaning"],
    ["root ::= [\\ud800]", "no character"],
    ['root ::= "a"{999999}', "at most"],
    [`root ::= ${"(".repeat(300)}`, "levels"],
  ];
  for (const [text, why] of cases) {
    assertStringIncludes(assertThrows(() => statesOf({ kind: "ebnf", text }), Error).message, why);
  }
});

Deno.test("grammars that are too large are refused, and ambiguous ones end", () => {
  assertThrows(() => statesOf({ kind: "regex", text: "(((a{1,100}){1,100}){1,100}){1,100}" }), RangeError, "too large");
  assertThrows(() => statesOf({ kind: "ebnf", text: 'root ::= (("a"{1000}){1000}){1000}' }), RangeError, "too large");
  const states = statesOf({ kind: "ebnf", text: 'root ::= s\ns ::= s s | s s s | "a" | ""' });
  assert(takes(states, "a".repeat(60)));
  assert(!takes(states, `${"a".repeat(60)}b`));
  const nested = statesOf({ kind: "json", text: "{}", strict: true });
  assert(takes(nested, "[".repeat(20_000) + "]".repeat(20_000)));
});

Deno.test("large grammars are taken: long constants and names, many alternatives and references", () => {
  const json = (schema: unknown): ReturnType<typeof statesOf> =>
    statesOf({ kind: "json", text: JSON.stringify(schema), strict: false });
  const long = "x".repeat(50_000);
  assert(takes(json({ const: long }), JSON.stringify(long)));
  const name = "n".repeat(1000);
  const named = json({ properties: { [name]: { type: "null" } }, type: "object" });
  assert(takes(named, `{"${name}": null, "${name}n": 1}`) && !takes(named, `{"${name}": 1}`));
  const chain = Array.from({ length: 1000 }, (_, i) => [`d${i}`, { $ref: `#/$defs/d${i + 1}` }]);
  const $defs = Object.fromEntries([...chain, ["d1000", { type: "null" }]]);
  assert(takes(json({ $ref: "#/$defs/d0", $defs }), "null"));
  const rules = Array.from({ length: 2000 }, (_, i) => `r${i} ::= "${i}x"`);
  const text = `root ::= ${rules.map((_, i) => `r${i}`).join(" | ")}\n${rules.join("\n")}`;
  assert(takes(statesOf({ kind: "ebnf", text }), "1999x"));
});
