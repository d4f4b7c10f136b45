/**
 * `vkmx quantize`: the short name of `vkmx convert --quantize`.
 *
 * @module
 */

import { CONVERSION_FLAGS, MODE_HELP, quantization, runConversion } from "../conversion.ts";
import type { Flags } from "../flags.ts";
import { type Command, command } from "../program.ts";

const FLAGS = {
  "bits": { value: "N", help: "bits of a weight: 1, 2, 3, 4, 5, 6 or 8 (4)", aliases: ["q-bits"] },
  "group-size": { value: "N", help: "weights that share a scale: 32, 64 or 128 (64)", aliases: ["q-group-size"] },
  "mode": { value: "NAME", help: MODE_HELP, aliases: ["q-mode"] },
  ...CONVERSION_FLAGS,
} as const satisfies Flags;

const quantize: Command = command(
  {
    name: "vkmx quantize",
    operand: "MODEL [OUT]",
    about:
      "Writes a model, a folder or a name of the Hugging Face Hub, quantized to a folder that does not exist (mlx_model).",
    flags: FLAGS,
    examples: ["Qwen/Qwen3-0.6B qwen3-4bit", "Qwen/Qwen3-0.6B qwen3-6bit --bits 6 --group-size 32"],
  },
  async (values, operands) => {
    const { bits, "group-size": groupSize, mode } = values;
    const names = { bits: "--bits", groupSize: "--group-size", mode: "--mode" };
    const options = quantization(values, { bits, groupSize, mode }, names);
    return await runConversion("Quantizing", values, operands, options);
  },
);

export default quantize;
