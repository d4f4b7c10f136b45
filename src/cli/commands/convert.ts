/**
 * `vkmx convert`: a model in another form, as `mlx_lm.convert` writes it.
 *
 * @module
 */

import { CONVERSION_FLAGS, MODE_HELP, quantization, runConversion } from "../conversion.ts";
import type { lm } from "../../../mod.ts";
import { checkOneOf, type Flags, UsageError } from "../flags.ts";
import { type Command, command } from "../program.ts";

const GGUF_TYPES = [
  "F32",
  "F16",
  "BF16",
  "Q8_0",
  "Q6_K",
  "Q4_K_M",
  "Q4_K",
  "Q4_0",
] as const satisfies readonly lm.ConvertOptions["gguf"][];

const FLAGS = {
  "quantize": { help: "quantize the model", short: "q" },
  "q-bits": { value: "N", help: "bits of a weight: 1, 2, 3, 4, 5, 6 or 8 (4)", aliases: ["bits"] },
  "q-group-size": { value: "N", help: "weights that share a scale: 32, 64 or 128 (64)", aliases: ["group-size"] },
  "q-mode": { value: "NAME", help: MODE_HELP },
  "gguf": { value: "TYPE", help: `write GGUF with matrices of a type: ${GGUF_TYPES.join(", ")}` },
  "dequantize": { help: "make a quantized model dense", short: "d" },
  ...CONVERSION_FLAGS,
  "trust-remote-code": { help: "refused: no program of a model is ever run" },
  "upload-repo": { value: "NAME", help: "refused: hf upload does it" },
} as const satisfies Flags;

const convert: Command = command(
  {
    name: "vkmx convert",
    operand: "MODEL [OUT]",
    about:
      "Writes a model, a folder or a name of the Hugging Face Hub, in another form to a folder that does not exist\n" +
      "(mlx_model): quantized, dense, or with another dtype. The files are those of mlx_lm.convert. A GGUF file\n" +
      "becomes a folder with its codes, or a dense one, and --gguf writes one into the folder.",
    flags: FLAGS,
    examples: [
      "Qwen/Qwen3-0.6B qwen3-4bit -q",
      "Qwen/Qwen3-0.6B qwen3-mixed -q --quant-predicate mixed_3_6",
      "qwen3-4bit qwen3-dense --dequantize --dtype float16",
      "model-Q4_K_M.gguf model-4bit",
      "Qwen/Qwen3-0.6B qwen3-gguf --gguf Q8_0",
    ],
  },
  async (values, operands) => {
    if (values["trust-remote-code"]) {
      throw new UsageError("--trust-remote-code is refused: no program of a model is ever run, leave it out");
    }
    if (values["upload-repo"] !== undefined) {
      throw new UsageError("--upload-repo is refused: upload the output with hf upload");
    }
    const { quantize, dequantize, "q-bits": bits, "q-group-size": groupSize, "q-mode": mode } = values;
    if (quantize && dequantize) throw new UsageError("--quantize and --dequantize exclude each other");
    const idle = (["q-bits", "q-group-size", "q-mode", "quant-predicate"] as const).find((name) => values[name]);
    if (!quantize && idle !== undefined) throw new UsageError(`--${idle} needs --quantize`);
    if (values.gguf !== undefined) {
      const gguf = checkOneOf("--gguf", values.gguf.toUpperCase(), GGUF_TYPES);
      if (quantize || dequantize) throw new UsageError("--gguf says the type: leave --quantize and --dequantize out");
      return await runConversion("Converting", values, operands, { gguf });
    }
    const options = quantize
      ? quantization(values, { bits, groupSize, mode }, {
        bits: "--q-bits",
        groupSize: "--q-group-size",
        mode: "--q-mode",
      })
      : { dequantize };
    return await runConversion("Converting", values, operands, options);
  },
);

export default convert;
