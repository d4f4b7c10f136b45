/** Mistakes in how graphs become dispatches: src/schedule. */

import type { Mutant } from "./mutant.ts";

export const LOWERING = [
  {
    name: "values whose lifetimes touch share a block of an arena",
    file: "src/schedule/plan/arena.ts",
    find: "low === spans.length || spans[low].first > last ? low : -1",
    replace: "low === spans.length || spans[low].first >= last ? low : -1",
    tests: ["tests/ops/compile/arena_test.ts", "tests/ops/compile/random_programs_test.ts"],
  },
  {
    name: "a stored array is overwritten although the program still holds what reads it",
    file: "src/schedule/plan/donation.ts",
    find: 'return leaf.op === "stored" && storage.refs === 1 && this.#goes(leaf);',
    replace: 'return leaf.op === "stored" && storage.refs === 1;',
    tests: [
      "tests/ops/tensor/in_place_test.ts",
      "tests/ops/tensor/array_test.ts",
      "tests/ops/compile/random_programs_test.ts",
    ],
  },
  {
    name: "a row moves through a reduction along the axis of the result, not of the input",
    file: "src/schedule/plan/row_pruning.ts",
    find: "return [shape.map((_, i) => i).filter((i) => !axes.includes(i))[axis]];",
    replace: "return [axis];",
    tests: ["tests/ops/compile/row_pruning_test.ts", "tests/llm/prefill/prefill_tail_test.ts"],
  },
  {
    name: "the score of the expert of all rows does not count in the sum of experts",
    file: "src/schedule/decoder/emit_prefill.ts",
    find: "score: shared.score && this.#plain(shared.score),",
    replace: "score: undefined,",
    tests: ["tests/llm/prefill/expert_prefill_test.ts"],
  },
  {
    name: "experts whose sum something else reads are taken with the residual",
    file: "src/schedule/decoder/match/prompt_experts.ts",
    find: "const sum = walk.shownOnce(node);\n  const isMixture",
    replace: "const sum = walk.peek(node);\n  const isMixture",
    tests: ["tests/llm/models/expert_patterns_test.ts"],
  },
  {
    name: "rows that an op of one dtype reads become float16",
    file: "src/schedule/decoder/match/prompt_experts.ts",
    find: "const dtype = takesFloats(walk, normed) ? float16 : normed.dtype;",
    replace: "const dtype = float16;",
    tests: ["tests/llm/models/expert_patterns_test.ts"],
  },
  {
    name: "rows are written in place although what read them may come later",
    file: "src/schedule/pending_graph.ts",
    find: "return others !== undefined && this.#dependsOnAll(writer, others);",
    replace: "return others !== undefined;",
    tests: ["tests/ops/compile/random_writes_test.ts"],
  },
  {
    name: "one dispatch is tried for a decoder with one recurrent layer, whose words look the same for each token",
    file: "src/schedule/decoder/emit_hybrid.ts",
    find: "return sameSlot && layers.length > 1 && recurrent?.layers.length !== 1;",
    replace: "return sameSlot && layers.length > 1;",
    tests: ["tests/llm/decode/recurrent_decode_test.ts"],
  },
  {
    name: "a dispatch is moved before one that reads what it writes",
    file: "src/schedule/plan/dispatch_order.ts",
    find: "for (const slot of writes) if (this.#writes.has(slot) || this.#reads.has(slot)) return true;",
    replace: "for (const slot of writes) if (this.#writes.has(slot)) return true;",
    tests: ["tests/ops/compile/dispatch_order_test.ts", "tests/ops/compile/in_place_states_test.ts"],
  },
  {
    name: "a batch of single rows is multiplied with the stride of rows, not of the batch",
    file: "src/schedule/ops/matmul/matmul.ts",
    find: "rowStride: m === 1 ? batch.strides[0][0] : rowStride,",
    replace: "rowStride,",
    tests: [
      "tests/ops/tensor/array_test.ts",
      "tests/ops/quantized/half_products_test.ts",
      "tests/kernels/matmul_test.ts",
      "tests/ops/ops_test.ts",
    ],
  },
  {
    name: "a chain that is taken over second reads the steps of the first",
    file: "src/schedule/ops/elementwise_chain.ts",
    find: '{ kind: "step", index: base + o.index }',
    replace: '{ kind: "step", index: o.index }',
    tests: [
      "tests/ops/tensor/array_test.ts",
      "tests/ops/compile/random_programs_test.ts",
      "tests/kernels/elementwise_test.ts",
    ],
  },
  {
    name: "a convolution for a transform of a size with a large prime is too short",
    file: "src/schedule/ops/fft.ts",
    find: "while (padded < 2 * size - 1) padded *= 2;",
    // With - 2 the first and the last element of the filter fall together, and they are equal.
    replace: "while (padded < 2 * size - 4) padded *= 2;",
    tests: ["tests/ops/signal/stft_test.ts", "tests/ops/signal/fft_test.ts"],
  },
  {
    name: "rows after the first 64 are sampled from the wrong logits",
    file: "src/schedule/ops/sampling.ts",
    find: "offset: v.offset + first * v.strides[0],",
    replace: "offset: v.offset + first,",
    tests: ["tests/kernels/sampling_test.ts", "tests/llm/generation/sampler_test.ts"],
  },
] as const satisfies readonly Mutant[];
