/** Documents, comments and messages keep the rules of CONTRIBUTING.md, "Words"; the check itself finds what is planted. */

import { assert, assertEquals } from "@std/assert";
import { rules, violationsIn } from "../scripts/prose.ts";
import { PLACES, proseFiles } from "../scripts/prose/files.ts";
import { bannedWords, MAX_WORDS, rulesOf } from "../scripts/prose/rules.ts";
import { ROOT } from "../scripts/tools.ts";

/** A sentence of so many words. */
const long = (words: number): string => `${"many ".repeat(words - 1)}words`;

/** The lines of the violations in a text. */
const linesOf = (path: string, text: string): string[] =>
  violationsIn(path, text, rules()).map(({ line, reason }) => `${line} ${reason.split(" ")[0]}`);

Deno.test("every document, comment and message keeps the rules of CONTRIBUTING.md", () => {
  const check = rules();
  const files = PLACES.flatMap(proseFiles);
  const found = files.flatMap((path) => violationsIn(path, Deno.readTextFileSync(ROOT + path), check));
  assertEquals(found.map(({ path, line, reason, sentence }) => `${path}:${line}: ${reason}: ${sentence}`), []);
  assert(files.length > PLACES.length);
});

Deno.test("CONTRIBUTING.md says how long a sentence may be and lists words", () => {
  const text = Deno.readTextFileSync(`${ROOT}CONTRIBUTING.md`);
  assert(text.replaceAll(/\s+/g, " ").includes(`at most ${MAX_WORDS} words`));
  const banned = bannedWords(text);
  for (const phrase of ["behind", "in front of", "unless given", "whoever", "foretells", "pace", "by rows"]) {
    assert(banned.some((one) => one.phrase === phrase && one.instead !== ""), phrase);
  }
});

Deno.test("a sentence of 25 words passes and one of 26 does not", () => {
  assertEquals(linesOf("a.md", `${long(25)}.`), []);
  assertEquals(linesOf("a.md", `${long(26)}.`), ["1 26"]);
  assertEquals(linesOf("a.md", `One.\n\nTwo is here. ${long(20)}\n${long(7)}.`), ["3 27"]);
  assertEquals(linesOf("a.md", `${long(24)} \`a code span of many words\`.`), []);
  assertEquals(linesOf("a.md", `${long(24)} [linked text](https://example.com).`), ["1 26"]);
  assertEquals(linesOf("a.md", `${long(13)}, e.g. ${long(13)}.`), ["1 27"]);
});

Deno.test("items, cells and headings are texts of their own; code, quotes and pictures are none", () => {
  assertEquals(linesOf("a.md", `# ${long(20)}\n${long(20)}`), []);
  assertEquals(linesOf("a.md", `- ${long(20)}\n- ${long(26)}\n  ${long(2)}`), ["2 28"]);
  assertEquals(linesOf("a.md", `| ${long(20)} | ${long(20)} |\n| --- | --- |\n| a \\| b | ${long(26)} |`), ["3 26"]);
  assertEquals(
    linesOf("a.md", `\`\`\`sh\n${long(40)}\n\`\`\`\n\n    ${long(40)}\n\n> ${long(40)}\n\n![${long(40)}](x.svg)`),
    [],
  );
});

Deno.test("words of the table are found as whole words, also across lines, and not in code or where they are allowed", () => {
  assertEquals(linesOf("a.md", "Norms come behind it."), ['1 "behind":']);
  assertEquals(linesOf("a.md", "Norms come in front\nof it."), ['1 "in']);
  assertEquals(linesOf("a.md", "Whoever reads, space, `behind` and behind a firewall."), ['1 "whoever":']);
  const check = rulesOf(
    "## Words\n\n| not | but | except in |\n| --- | --- | --- |\n| foo, bar baz | qux | bar baz! |\n\n## Next\n",
  );
  assertEquals(check({ line: 1, words: 3, text: "food bar bazaar." }), []);
  assertEquals(check({ line: 1, words: 3, text: "Foo and bar  baz." }), ['"foo": write qux', '"bar baz": write qux']);
});

Deno.test("comments are read in every language, and strings that are messages", () => {
  const code = [
    'const address = "http://example.com"; // behind',
    "/** It lies behind",
    " * the other.",
    " *",
    " * ```ts",
    " * behind();",
    " * ```",
    " * @param x behind it",
    " */",
    'const pattern = /[/*]"behind/;',
    'throw new Error("the values that stand behind it are wrong");',
    'throw new Error(`the ${f("x", `y`)} stands ` +',
    '  "behind all of the others");',
    'const code = "behind"; // deno-lint-ignore behind',
    "// One line and",
    "// behind it another.",
  ].join("\n");
  const expected = [1, 2, 8, 11, 12, 15].map((line) => `${line} "behind":`);
  assertEquals(linesOf("src/a.ts", code), expected);
  assertEquals(linesOf("tests/a.ts", code), expected.filter((line) => !/^1[12] /.test(line)));
  assertEquals(linesOf("shaders/a.comp", "/* One.\n   Behind it. */\nint x; // by rows\n"), ['2 "behind":', '3 "by']);
  assertEquals(linesOf("runtime-c/a.c", 'fail("%u words stand behind the last one"); /* pace */'), [
    '1 "pace":',
    '1 "behind":',
  ]);
  const list = `const words =\n  "${long(30)}"\n    .split(" ");`;
  assertEquals(linesOf("src/a.ts", list), []);
  assertEquals(linesOf("src/a.ts", list.replace(".split", ".slice")), ["2 30"]);
  assertEquals(linesOf("runtime-c/a.zig", "//! Behind it.\nconst a = 1; /// pace"), ['1 "behind":', '2 "pace":']);
});
