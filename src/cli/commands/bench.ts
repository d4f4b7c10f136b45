/**
 * `vkmx bench`: how fast each device runs a model.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { bench as measureAll, BENCH_FLAGS } from "../bench/bench.ts";
import { type Command, command } from "../program.ts";

const PROGRAM = {
  name: "vkmx bench",
  about: `Measures how fast each device reads prompts and generates, in tokens per second: the median of several runs
and their standard deviation. A prompt's time is that to the first token.`,
  flags: BENCH_FLAGS,
  examples: ["", "--model Qwen/Qwen3-0.6B-MLX-4bit --prompt 128,512 --tokens 128 --runs 5"],
};

const bench: Command = command(PROGRAM, (values) => measureAll(values, values.model ?? mx.lm.EMBEDDED_MODEL));

export default bench;
