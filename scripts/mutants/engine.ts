/** Mistakes in the engine, which generates for many requests at once: src/llm/engine. */

import type { Mutant } from "./mutant.ts";

const SCHEDULER_TESTS = ["tests/llm/engine/scheduler_test.ts", "tests/llm/engine/traces_test.ts"] as const;
const TREE_TESTS = ["tests/llm/engine/prefix_tree_test.ts", "tests/llm/engine/traces_test.ts"] as const;
const WINDOW_TESTS = ["tests/llm/engine/prefix_windows_test.ts", "tests/llm/engine/traces_test.ts"] as const;
const STATE_TESTS = ["tests/llm/kv/states_test.ts"] as const;
const PROMPT_TESTS = ["tests/llm/engine/prompts_together_test.ts"] as const;
const ENGINE_TESTS = ["tests/llm/engine/engine_test.ts", "tests/llm/engine/engine_life_test.ts"] as const;

export const ENGINE = [
  {
    name: "a decode step has many tokens although a prompt waits",
    file: "src/llm/engine/scheduler.ts",
    find: "let steps = this.#hasPrompt() || isHeld ? 1 : longest;",
    replace: "let steps = isHeld ? 1 : longest;",
    tests: SCHEDULER_TESTS,
  },
  {
    name: "a row that counts one token advances its recurrent state by several",
    file: "src/llm/engine/scheduler.ts",
    find: "const isHeld = this.#pages.hasStates &&",
    replace: "const isHeld = !this.#pages.hasStates &&",
    tests: SCHEDULER_TESTS,
  },
  {
    name: "a match goes on after the last page whose states were kept",
    file: "src/llm/engine/pages/prefix_tree.ts",
    find: "while (count > 0 && path[count - 1].slot === undefined) {",
    replace: "while (count > 0 && path[count - 1].slot === 0) {",
    tests: TREE_TESTS,
  },
  {
    name: "a sequence begins with the state that its slot had",
    file: "src/llm/kv/paged.ts",
    find: "mx.greater(this.#position, 0)",
    replace: "mx.greaterEqual(this.#position, 0)",
    tests: STATE_TESTS,
  },
  {
    name: "a cache goes back to zeros instead of a copy of its state",
    file: "src/llm/kv/states.ts",
    find: "if (at > position) this.#drop(at);",
    replace: "if (at >= position) this.#drop(at);",
    tests: STATE_TESTS,
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
    file: "src/llm/engine/pages/prefix_tree.ts",
    find: "return this.#pages.references(page) === 1;",
    replace: "return this.#pages.references(page) <= 2;",
    tests: TREE_TESTS,
  },
  {
    name: "a beginning is looked for in one neighbour of its place only",
    file: "src/llm/engine/pages/prefix_node.ts",
    find: "const [before, after] = [low - 1, low].map(",
    replace: "const [before, after] = [low, low].map(",
    tests: TREE_TESTS,
  },
  {
    name: "further pages of a row take the place of its first ones",
    file: "src/llm/engine/steps/rows.ts",
    find: "row * this.sizes.columns + known);",
    replace: "row * this.sizes.columns);",
    tests: ENGINE_TESTS,
  },
  {
    name: "a sequence gives back the first page of its window",
    file: "src/llm/kv/page_groups.ts",
    find: "Math.floor((position - window + 1) / pageSize)",
    replace: "Math.ceil((position - window + 1) / pageSize)",
    tests: WINDOW_TESTS,
  },
  {
    name: "a sequence gives back pages that a step on its way sees",
    file: "src/llm/engine/pages/sequence_pages.ts",
    find: "firstPageSeen(this.#groups.window, committed, this.#pageSize), windows.length)",
    replace: "firstPageSeen(this.#groups.window, sequence.computed, this.#pageSize), windows.length)",
    tests: WINDOW_TESTS,
  },
  {
    name: "a sequence goes on where pages of the last window are gone",
    file: "src/llm/engine/pages/page_windows.ts",
    find: "run = window === undefined ? 0 : run + 1;",
    replace: "run++;",
    tests: WINDOW_TESTS,
  },
  {
    name: "a page of a window is copied in the step that fills it",
    file: "src/llm/engine/scheduler.ts",
    find: " || parts.writes(match.partial.window));",
    replace: ");",
    tests: WINDOW_TESTS,
  },
  {
    name: "layers that share a slot have the same memory",
    file: "src/llm/kv/page_groups.ts",
    find: "return units[unit] * ratio + part;",
    replace: "return units[unit] * ratio;",
    tests: ["tests/llm/kv/page_groups_test.ts"],
  },
  {
    name: "the penalties of a row look at one token more than its context has",
    file: "src/llm/engine/steps/choice.ts",
    find: "mx.less(ages, context)",
    replace: "mx.lessEqual(ages, context)",
    tests: ["tests/llm/engine/choice_test.ts", "tests/llm/engine/engine_test.ts"],
  },
  {
    name: "a part of a page is copied in the step that fills it",
    file: "src/llm/engine/scheduler.ts",
    find: "if (isCopiedLate || this",
    replace: "if (this",
    tests: SCHEDULER_TESTS,
  },
  {
    name: "a sequence whose step failed goes on with the states that it replaced",
    file: "src/llm/engine/scheduler.ts",
    find: 'if (sequence.status === "running") this.#preempt(sequence);\n      else this.#release(sequence);',
    replace:
      'if (sequence.status === "running") sequence.computed = sequence.committed;\n      else this.#release(sequence);',
    tests: SCHEDULER_TESTS,
  },
  {
    name: "all tiles of a part have the position of the first one",
    file: "src/llm/engine/forward_batch.ts",
    find: "batch.positions[tile] = from + j * size;",
    replace: "batch.positions[tile] = from;",
    tests: PROMPT_TESTS,
  },
  {
    name: "a pass over tiles sees positions up to the length of all tiles",
    file: "src/llm/kv/paged.ts",
    find: "mx.add(this.#position, this.tile ?? count)",
    replace: "mx.add(this.#position, count)",
    tests: PROMPT_TESTS,
  },
] as const satisfies readonly Mutant[];
