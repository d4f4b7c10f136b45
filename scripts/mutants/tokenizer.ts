/** Mistakes in tokenizers: src/llm/tokenizer. */

import type { Mutant } from "./mutant.ts";

const TESTS = ["tests/llm/text/tokenizer_test.ts", "tests/llm/text/tokenizer_limits_test.ts"] as const;

export const TOKENIZER = [
  {
    name: "a token of single words is found where a letter stands on one side of it",
    file: "src/llm/tokenizer/added_tokens.ts",
    find: "isWordAt(text, start, -1) || isWordAt(text, stop, 1)",
    replace: "isWordAt(text, start, -1) && isWordAt(text, stop, 1)",
    tests: TESTS,
  },
  {
    name: "an added token is not found at the begin of a text and right after another",
    file: "src/llm/tokenizer/added_tokens.ts",
    find: "if (start < matched) continue;",
    replace: "if (start <= matched) continue;",
    tests: TESTS,
  },
  {
    name: "a merge leaves the next token with its old neighbour",
    file: "src/llm/tokenizer/bpe.ts",
    find: "    if (after < count) this.#previous[after] = at;\n",
    replace: "",
    tests: TESTS,
  },
  {
    name: "all matches in a row are merged with the text before them",
    file: "src/llm/tokenizer/pre_tokenizer.ts",
    find: "mergePieces(pieces, (matches, before) => matches && !before)",
    replace: "mergePieces(pieces, (matches) => matches)",
    tests: TESTS,
  },
  {
    name: "a stop string whose last character comes alone is not found",
    file: "src/llm/tokenizer/detokenizer.ts",
    find: "Math.min(text.length, stop.length - 1)",
    replace: "Math.min(text.length, stop.length - 2)",
    tests: ["tests/llm/text/tokenizer_test.ts", "tests/llm/generation/generate_test.ts"],
  },
  {
    name: "white space is what JavaScript takes for it",
    file: "src/llm/tokenizer/char_set.ts",
    find: 'matching("\\\\p{White_Space}")',
    replace: 'matching("\\\\s")',
    tests: TESTS,
  },
  {
    name: "tokens after a text are put before it",
    file: "src/llm/tokenizer/post_processor.ts",
    find: "sides.at(-1)!.push(...ids);",
    replace: "sides[0].push(...ids);",
    tests: TESTS,
  },
] as const satisfies readonly Mutant[];
