/**
 * `vkmx convert` and `vkmx quantize` row by row: help, wrong usage, what they write and what is said of what cannot be converted.
 */

import { assertEquals } from "@std/assert";
import { ROOT } from "../../scripts/tools.ts";
import { writeModel } from "../../scripts/synthetic/synthetic.ts";
import { editConfig, inFolder, listed, SMALLEST, writeZeros } from "../support/models/conversions.ts";
import { type CommandLineRow, testTable } from "../support/processes/table.ts";

const FOLDER = await Deno.makeTempDir();
const DENSE = `${FOLDER}/dense`;
const QUANTIZED = `${FOLDER}/quantized`;
const OTHER = `${FOLDER}/other`;
await writeModel(DENSE, SMALLEST, { bits: 16 });
await writeModel(QUANTIZED, SMALLEST, { bits: 4, groupSize: 64 });
await writeModel(OTHER, SMALLEST, { bits: 16 });
editConfig(OTHER, { model_type: "mystery" });

Deno.test.afterAll(() => Deno.removeSync(FOLDER, { recursive: true }));

const usage = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 2,
  stderr: `error: ${message}\n`,
});
const refused = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 1,
  stderr: `error: ${message}\n`,
});
const written = (figures: string, ...args: string[]): CommandLineRow => ({ args, stdout: `${figures}\n` });

testTable("help and wrong usage of convert and quantize", [
  { args: ["convert", "--help"], stdout: "usage: vkmx convert [flags] MODEL [OUT]\n{lines}  -q, --quantize {lines}" },
  { args: ["help", "quantize"], stdout: "usage: vkmx quantize [flags] MODEL [OUT]\n{lines}--bits N {lines}" },
  usage("--gguf says the type: leave --quantize and --dequantize out", "convert", "a", "--gguf", "q8_0", "-q"),
  usage("Expected a model: a folder, or a name of the Hugging Face Hub such as Qwen/Qwen3-0.6B", "convert"),
  usage("Expected a model: a folder, or a name of the Hugging Face Hub such as Qwen/Qwen3-0.6B", "quantize"),
  usage('Expected a model and an output folder, found also "c"', "convert", "a", "b", "c"),
  usage('Expected a model and an output folder, found also "b"', "convert", "--hf-path", "a", "--mlx-path", "c", "b"),
  usage("The output folder is an empty text", "quantize", "a", ""),
  usage("--quantize and --dequantize exclude each other", "convert", "a", "b", "-q", "-d"),
  usage("--q-bits needs --quantize", "convert", "a", "b", "--q-bits", "4"),
  usage("--q-group-size needs --quantize", "convert", "a", "b", "--q-group-size", "64"),
  usage("--quant-predicate needs --quantize", "convert", "a", "b", "--quant-predicate", "mixed_2_6"),
  usage('--q-bits is "7", expected 1, 2, 3, 4, 5, 6 or 8', "convert", "a", "b", "-q", "--q-bits", "7"),
  usage('--bits is "four", expected 1, 2, 3, 4, 5, 6 or 8', "quantize", "a", "b", "--bits", "four"),
  usage('--group-size is "16", expected 32, 64 or 128', "quantize", "a", "b", "--group-size", "16"),
  usage(
    '--quant-predicate is "mixed_3_5": did you mean mixed_3_4?',
    "quantize",
    "a",
    "b",
    "--quant-predicate",
    "mixed_3_5",
  ),
  usage('--dtype is "bf16", expected float16, bfloat16 or float32', "convert", "a", "b", "--dtype", "bf16"),
  usage(
    '--q-mode is "int4", expected affine, mxfp4, mxfp8 or nvfp4',
    ...["convert", "a", "b", "-q", "--q-mode", "int4"],
  ),
  usage('--q-bits is "8", expected 4', "convert", "a", "b", "-q", "--q-mode", "mxfp4", "--q-bits", "8"),
  usage('--group-size is "64", expected 16', "quantize", "a", "b", "--q-mode", "nvfp4", "--group-size", "64"),
  usage(
    "--quant-predicate is for mode affine: --mode is mxfp4",
    ...["quantize", "a", "b", "--mode", "mxfp4", "--quant-predicate", "mixed_3_6"],
  ),
  usage(
    "--trust-remote-code is refused: no program of a model is ever run, leave it out",
    "convert",
    "a",
    "b",
    "--trust-remote-code",
  ),
  usage("--upload-repo is refused: upload the output with hf upload", "convert", "a", "b", "--upload-repo", "me/b"),
  usage("Unknown flag --outfile: did you mean --mlx-path? (--help lists all)", "convert", "a", "--outfile", "b"),
  usage("Unknown flag --q-bit: did you mean --q-bits? (--help lists all)", "quantize", "a", "b", "--q-bit", "4"),
]);

testTable("convert and quantize", [
  written("mlx_model: 0.2 MB, {number} bits per weight", "quantize", DENSE),
  written("out: 0.2 MB, 5.{number} bits per weight", "quantize", DENSE, "out", "--bits", "4", "--group-size", "32"),
  written("out: 0.2 MB, {number} bits per weight", "convert", "--hf-path", DENSE, "--mlx-path", "out", "-q"),
  written("out: 0.2 MB, 4.{number} bits per weight", "convert", "--model", DENSE, "out", "-q", "--q-mode", "affine"),
  written("out: 0.2 MB, 4.{number} bits per weight", "quantize", DENSE, "out", "--mode", "mxfp4"),
  written("out: 1.2 MB, 32.000 bits per weight", "convert", DENSE, "out", "--dtype", "float32", "--device", "cpu"),
  written("out: 0.6 MB, 16.000 bits per weight", "convert", QUANTIZED, "out", "--dequantize"),
  written("out: 0.1 MB, 2.{number} bits per weight", "quantize", DENSE, "out", "--quant-predicate", "mixed_2_6"),
  {
    args: ["quantize", DENSE, "a/b", "--json"],
    stdout: '{"path":"a/b","files":["README.md","config.json","generation_config.json","model.safetensors",' +
      '"model.safetensors.index.json","tokenizer.json","tokenizer_config.json"],"bytes":{number},' +
      '"parameters":{number},"bits_per_weight":{number},"seconds":{number}}\n',
  },
  refused(`${DENSE} exists already: remove it or choose another name`, "convert", DENSE, DENSE),
  refused(
    `${QUANTIZED} is quantized already, to 4 bits in groups of 64. Quantize the dense model that it was made from, or make it ` +
      "dense first, with dequantize (vkmx convert --dequantize)",
    "quantize",
    QUANTIZED,
    "out",
  ),
  refused(
    `${OTHER}/config.json: model_type "mystery" is not known: known are gemma, {text} more, see docs/models.md. To ask for it, describe {text}`,
    "convert",
    OTHER,
    "out",
  ),
  refused("The model directory nowhere does not exist, {text}", "convert", "nowhere", "out"),
  refused(
    `${DENSE} is no model of the hub and has no revision: leave that out`,
    "convert",
    DENSE,
    "out",
    "--revision",
    "main",
  ),
  usage('there is no device "tpu"; there are {text}', "convert", DENSE, "out", "--device", "tpu"),
  { args: ["convert", DENSE, "out", "--device", "list"], stdout: "{lines}wasm{lines}" },
]);

Deno.test({
  name: "Ctrl-C ends a conversion with 130, and nothing is left of it",
  ignore: Deno.build.os === "windows", // which has no such signal for other processes
  fn: () =>
    inFolder(async (folder) => {
      await writeModel(`${folder}/model`, SMALLEST, { bits: 16 });
      writeZeros(`${folder}/model`, 1);
      const args = ["run", "-A", "--no-check", "--config", `${ROOT}deno.json`, `${ROOT}src/cli/mod.ts`];
      const child = new Deno.Command(Deno.execPath(), {
        args: [...args, "quantize", "model", "out"],
        cwd: folder,
        env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
        stdout: "piped",
        stderr: "piped",
      }).spawn();
      const begun = setInterval(() => {
        if (listed(folder).length === 1) return;
        clearInterval(begun);
        child.kill("SIGINT");
      }, 20);
      const { code, stdout, stderr } = await child.output();
      clearInterval(begun);
      assertEquals([code, stdout.length, stderr.length, listed(folder)], [130, 0, 0, ["model"]]);
    }),
});
