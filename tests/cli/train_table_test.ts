/** `vkmx train` and `vkmx fuse` row by row: what is refused, and a short training that is gone on with, fused and used. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { notesOf, readSettings } from "../../src/cli/training.ts";
import "../support/devices/devices.ts"; // opens the Vulkan library outside of any test
import { checkRows, type CommandLineRow, testTable } from "../support/processes/table.ts";

const DATA = new URL("../../examples/data", import.meta.url).pathname;
const EMPTY = await Deno.makeTempDir();
const WRONG = await Deno.makeTempDir();
await Deno.writeTextFile(`${WRONG}/train.jsonl`, '{"text": "A text."}\n{"prompt": "Hi"}\n');
const NO_JSON = await Deno.makeTempDir();
await Deno.writeTextFile(`${NO_JSON}/train.jsonl`, "Hi\n");
Deno.test.afterAll(() => {
  for (const folder of [EMPTY, WRONG, NO_JSON]) Deno.removeSync(folder, { recursive: true });
});

const usage = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 2,
  stderr: `error: ${message}\n`,
});
const failed = (message: string, ...args: string[]): CommandLineRow => ({
  args,
  code: 1,
  stderr: `error: ${message}\n`,
});
const train = (...args: string[]): string[] => ["train", "--data", DATA, ...args];

testTable("train and fuse that are refused", [
  { args: ["train", "--help"], stdout: "usage: vkmx train [flags]\n{lines}\nexamples:\n{lines}" },
  { args: ["fuse", "--help"], stdout: "usage: vkmx fuse [flags]\n{lines}" },
  usage('Unknown command "lora": did you mean train? (vkmx help lists all)', "lora"),
  usage(
    'Expected a folder with train.jsonl: --data DIR. Its lines are such as {"prompt": "Hi", "completion": "Hello"}',
    "train",
  ),
  usage('--fine-tune-type is "lra": did you mean lora?', ...train("--fine-tune-type", "lra")),
  usage('--optimizer is "none", expected adam, adamw, muon, sgd or adafactor', ...train("--optimizer", "none")),
  usage("--rank is for lora and dora", ...train("--fine-tune-type", "full", "--rank", "4")),
  usage('--iters is "-1", expected a whole number of at least 0', ...train("--iters=-1")),
  usage('--dropout is "1", expected a number from 0 to 0.999', ...train("--dropout", "1")),
  usage("Unknown flag --lr: did you mean --learning-rate? (--help lists all)", ...train("--lr", "1")),
  usage('Expected flags only, found "more" (--help lists all)', ...train("more")),
  failed("nodir does not exist", "train", "--data", "nodir"),
  failed(`${EMPTY} has no train.jsonl, valid.jsonl or test.jsonl`, "train", "--data", EMPTY),
  failed(`${WRONG}/train.jsonl: line 2: expected a text in "text": found undefined`, "train", "--data", WRONG),
  failed(`${NO_JSON}/train.jsonl: line 1 is not JSON: "Hi"`, "train", "--data", NO_JSON),
  failed("9 layers were asked for: the model has 8", ...train("--num-layers", "9")),
  usage('--num-layers is "-2", expected a whole number of at least -1', ...train("--num-layers", "-2")),
  usage('--learning-rate is "-1e-3", expected a number from 0 to 1000', ...train("--learning-rate", "-1e-3")),
  failed("adapters/adapter_config.json does not exist", "fuse"),
  failed("adapters/adapter_config.json does not exist", "generate", "--adapter-path", "adapters", "Hi"),
]);

Deno.test("a training without flags has the defaults of mlx-lm", () => {
  const values = { data: DATA };
  const settings = readSettings(values);
  const { model: _model, train: _train, ...notes } = notesOf(values, settings);
  // CONFIG_DEFAULTS of mlx_lm/lora.py
  assertEquals(notes, {
    adapter_path: "adapters",
    batch_size: 4,
    data: DATA,
    grad_accumulation_steps: 1,
    grad_checkpoint: false,
    iters: 1000,
    learning_rate: 1e-5,
    mask_prompt: false,
    max_seq_length: 2048,
    optimizer: "adam",
    resume_adapter_file: null,
    save_every: 100,
    seed: 0,
    steps_per_eval: 200,
    steps_per_report: 10,
    val_batches: 25,
  });
  const { fineTuneType, loraParameters } = settings.adapter;
  assertEquals([fineTuneType, loraParameters], ["lora", { rank: 8, scale: 20, dropout: 0 }]);
});

/** Shown where no model was fine-tuned before. */
const FEW = [
  "--num-layers",
  "2",
  "--batch-size",
  "2",
  "--rank",
  "4",
  "--learning-rate",
  "1e-4",
  "--steps-per-report",
  "2",
];

Deno.test("a training that cannot be saved leaves the adapters", async () => {
  const cwd = await Deno.makeTempDir();
  try {
    Deno.mkdirSync(`${cwd}/adapters`);
    Deno.writeTextFileSync(`${cwd}/adapters/adapters.safetensors`, "before");
    const name = "model.layers.7.self_attn.o_proj.lora_b";
    mx.saveSafetensors(`${cwd}/nan.safetensors`, { [name]: mx.full([4, 256], NaN) });
    const masked = [
      "--num-layers",
      "-1",
      "--val-batches",
      "-1",
      "--batch-size",
      "1",
      "--mask-prompt",
      "--iters",
      "400",
    ];
    const trained = "Trained are {number} M parameters (lora)\n";
    await checkRows([
      {
        cwd,
        args: train(...masked, "--max-seq-length", "8"),
        code: 1,
        stderr: `[{number} examples are cut off at 8 tokens: --max-seq-length sets it]\n${trained}{lines}` +
          "error: Found no token that the loss counts: every prompt reaches the 8 tokens of maxSeqLength\n",
      },
      {
        cwd,
        args: train(...FEW, "--iters", "4", "--resume", "nan.safetensors"),
        code: 1,
        stderr: `${trained}error: The validation loss is NaN at iteration 0: the training diverged, ` +
          "files that were saved before stay. Lower the learning rate, or check the data\n",
      },
    ]);
    assertEquals(Array.from(Deno.readDirSync(`${cwd}/adapters`), ({ name }) => name), ["adapters.safetensors"]);
    assertEquals(Deno.readTextFileSync(`${cwd}/adapters/adapters.safetensors`), "before");
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
});

Deno.test("a quantized model is trained in full where it has floats", async () => {
  const cwd = await Deno.makeTempDir();
  try {
    await checkRows([{
      cwd,
      args: train(
        "--fine-tune-type",
        "full",
        "--num-layers",
        "-1",
        "--iters",
        "1",
        "--batch-size",
        "1",
        "--val-batches",
        "1",
      ),
      stdout: "adapters: 1 steps, {number} tokens\n",
      stderr: "Trained are 0.006 M parameters (full)\n" + // 8 blocks with two norms of 256 and two of 128 floats
        "[quantized matrices stay as they are: vkmx convert --dequantize makes a model that is trained in full]\n{lines}",
    }]);
    const trained = Object.keys(mx.loadSafetensors(`${cwd}/adapters/adapters.safetensors`));
    assert(trained.length === 32 && trained.every((name) => name.endsWith("norm.weight")), trained.join());
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
});

Deno.test("a training is reported, saved, gone on with, fused and used", async () => {
  const cwd = await Deno.makeTempDir();
  try {
    const step = (at: number, of: number) =>
      `Step ${at}/${of}: loss {number}, {number} tokens/s, {number} MB${at < of ? ", {text} left" : ""}\n`;
    const validated = (at: number, of: number) => `Step ${at}/${of}: validation loss {number}, took {number} s\n`;
    const checkpoint = "adapters/checkpoint.safetensors";
    const rows: CommandLineRow[] = [
      {
        cwd,
        args: train(...FEW, "--iters", "4", "--val-batches", "1", "--mask-prompt"),
        stdout: "adapters: 4 steps, {number} tokens\n",
        stderr: "Trained are 0.045 M parameters (lora)\n" + validated(0, 4) + step(2, 4) + validated(3, 4) + step(4, 4),
      },
      {
        cwd,
        args: train(
          ...FEW,
          "--iters",
          "6",
          "--val-batches",
          "1",
          "--mask-prompt",
          "--resume",
          checkpoint,
          "--json",
          "--test",
        ),
        stdout:
          '{"steps":6,"trained_tokens":{number},"skipped_steps":0,"train_loss":{number},"val_loss":{number},"test_loss":{number},' +
          '"losses":[[2,{number}],[4,{number}],[6,{number}]],"val_losses":[[0,{number}],[3,{number}],[5,{number}]],' +
          '"adapter_path":"adapters","seconds":{number},"peak_memory_bytes":{number},"device":"{device}","model":"tiny-qwen3"}\n',
        stderr: "Trained are 0.045 M parameters (lora)\n" + validated(5, 6) + step(6, 6),
      },
      {
        cwd,
        args: train(...FEW, "--iters", "8", "--batch-size", "3", "--resume", checkpoint),
        code: 1,
        stderr: "Trained are 0.045 M parameters (lora)\n" +
          `error: ${checkpoint} was made with batchSize "2", and this training has "3"\n`,
      },
      { cwd, args: ["fuse"], stdout: "fused_model: {number} MB, 14 layers fused\n" },
      { cwd, args: ["fuse"], code: 1, stderr: "error: fused_model exists already: remove it or choose another name\n" },
      {
        cwd,
        args: ["chat", "--adapter-path", "adapters", "-m", "1", "--quiet"],
        stdin: "/model\n/model tiny-qwen3\n",
        stderr: "tiny-qwen3: {text}, adapters of adapters, context {text}\n".repeat(2),
      },
      {
        cwd,
        args: ["generate", "--adapter-path", "adapters", "-m", "3", "--verbose", "false", "--temp", "0", "Once"],
        stdout: "{text}\n",
        stderr: "{text}\n",
      },
    ];
    for (const row of rows) await checkRows([row]); // each needs what the one before wrote
    const svg = await Deno.readTextFile(`${cwd}/adapters/loss.svg`);
    assert(svg.startsWith("<svg") && svg.includes("validation") && svg.includes("training"));
    const index = JSON.parse(await Deno.readTextFile(`${cwd}/fused_model/model.safetensors.index.json`));
    assertEquals(index.metadata.total_parameters, 8_919_296); // as mlx-lm counts them, not the words of the codes
    const config = JSON.parse(await Deno.readTextFile(`${cwd}/adapters/adapter_config.json`));
    assertEquals(config.lora_parameters, { rank: 4, scale: 20, dropout: 0 });
    assertEquals([config.fine_tune_type, config.num_layers, config.mask_prompt], ["lora", 2, true]);
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
});
