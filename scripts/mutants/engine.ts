/** Mistakes in the engine, which generates for many requests at once: src/llm/engine. */

import type { Mutant } from "./mutant.ts";

const SCHEDULER_TESTS = ["tests/llm/engine/scheduler_test.ts", "tests/llm/engine/traces_test.ts"] as const;
const TREE_TESTS = ["tests/llm/engine/prefix_tree_test.ts", "tests/llm/engine/traces_test.ts"] as const;
const ENGINE_TESTS = ["tests/llm/engine/engine_test.ts", "tests/llm/engine/engine_life_test.ts"] as const;

export const ENGINE = [
  {
    name: "a decode step has many tokens although a prompt waits",
    file: "src/llm/engine/scheduler.ts",
    find: "let steps = this.#hasPrompt() ? 1 : longest;",
    replace: "let steps = longest;",
    tests: SCHEDULER_TESTS,
  },
  {
    name: "requests of equal rank go in the reverse order of their arrival",
    file: "src/llm/engine/sequence.ts",
    find: "(rank === sequence.rank && arrival > sequence.arrival)",
    replace: "(rank === sequence.rank && arrival < sequence.arrival)",
    tests: SCHEDULER_TESTS,
  },
  {
    name: "a page that a sequence uses is evicted",
    file: "src/llm/engine/prefix_tree.ts",
    find: "if (this.#pool.references(node.page) > 1) continue;",
    replace: "if (this.#pool.references(node.page) > 2) continue;",
    tests: TREE_TESTS,
  },
  {
    name: "a beginning is looked for in one neighbour of its place only",
    file: "src/llm/engine/prefix_tree.ts",
    find: "const [before, after] = [low - 1, low].map(",
    replace: "const [before, after] = [low, low].map(",
    tests: TREE_TESTS,
  },
  {
    name: "further pages of a row take the place of its first ones",
    file: "src/llm/engine/rows.ts",
    find: "row * this.sizes.columns + known);",
    replace: "row * this.sizes.columns);",
    tests: ENGINE_TESTS,
  },
  {
    name: "the penalties of a row look at one token more than its context has",
    file: "src/llm/engine/choice.ts",
    find: "mx.less(ages, context)",
    replace: "mx.lessEqual(ages, context)",
    tests: ["tests/llm/engine/choice_test.ts", "tests/llm/engine/engine_test.ts"],
  },
] as const satisfies readonly Mutant[];
