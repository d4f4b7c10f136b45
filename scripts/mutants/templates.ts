/** Mistakes in chat templates: src/llm/jinja and src/llm/chat/template.ts. */

import type { Mutant } from "./mutant.ts";

const TESTS = ["tests/llm/text/jinja_test.ts", "tests/llm/text/chat_template_test.ts"] as const;

export const TEMPLATES = [
  {
    name: "tojson with an indent leaves spaces at the ends of lines",
    file: "src/llm/jinja/filters.ts",
    find: 'Str.user(indent === null ? ", " : ",")',
    replace: 'Str.user(", ")',
    tests: TESTS,
  },
  {
    name: "slice fills one part too few",
    file: "src/llm/jinja/list_filters.ts",
    find: "fill !== null && i >= longer",
    replace: "fill !== null && i > longer",
    tests: TESTS,
  },
  {
    name: "indent puts spaces before blank lines",
    file: "src/llm/jinja/text_filters.ts",
    find: "i > 0 && (truthy(blank) || line.length > 0)",
    replace: "i > 0",
    tests: TESTS,
  },
  {
    name: "a slice backwards from beyond the end begins after the last item",
    file: "src/llm/jinja/access.ts",
    find: "Math.min(index < 0 ? index + length : index, length + least)",
    replace: "Math.min(index < 0 ? index + length : index, length)",
    tests: TESTS,
  },
  {
    name: "texts with characters beyond the basic plane are sorted by UTF-16",
    file: "src/llm/jinja/compare.ts",
    find: "return isSurrogate(a) ? 1 : -1;",
    replace: "return less ? -1 : 1;",
    tests: TESTS,
  },
  {
    name: "what a user says may hold control tokens",
    file: "src/llm/chat/template.ts",
    find: 'name === "role" ? Str.template',
    replace: 'typeof value === "string" ? Str.template',
    tests: ["tests/llm/text/chat_template_test.ts", "tests/llm/text/jinja_test.ts", "tests/llm/text/tokenizer_test.ts"],
  },
] as const satisfies readonly Mutant[];
