/** `vkmx train` and `vkmx fuse` row by row: what is refused, and a short training that is gone on with, fused and used. */

import { assert, assertEquals } from "@std/assert";
import { checkRows, type Row, testTable } from "../support/table.ts";

const DATA = new URL("../../examples/data", import.meta.url).pathname;
const EMPTY = await Deno.makeTempDir();
const WRONG = await Deno.makeTempDir();
await Deno.writeTextFile(`${WRONG}/train.jsonl`, '{"text": "A text."}\n{"prompt": "Hi"}\n');
const NO_JSON = await Deno.makeTempDir();
await Deno.writeTextFile(`${NO_JSON}/train.jsonl`, "Hi\n");
Deno.test.afterAll(() => {
  for (const folder of [EMPTY, WRONG, NO_JSON]) Deno.removeSync(folder, { recursive: true });
});

const usage = (message: string, ...args: string[]): Row => ({ args, code: 2, stderr: `error: ${message}\n` });
const failed = (message: string, ...args: string[]): Row => ({ args, code: 1, stderr: `error: ${message}\n` });
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
  failed(`${EMPTY} has no train.jsonl, valid.jsonl or test.jsonl`, "train", "--data", EMPTY),
  failed(`${WRONG}/train.jsonl: line 2: expected a text in "text": found undefined`, "train", "--data", WRONG),
  failed(`${NO_JSON}/train.jsonl: line 1 is not JSON: "Hi"`, "train", "--data", NO_JSON),
  failed("9 layers were asked for: the model has 8", ...train("--num-layers", "9")),
  failed("adapters/adapter_config.json does not exist", "fuse"),
  failed("adapters/adapter_config.json does not exist", "generate", "--adapter-path", "adapters", "Hi"),
]);

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

Deno.test("a training is reported, saved, gone on with, fused and used", async () => {
  const cwd = await Deno.makeTempDir();
  try {
    const step = (at: number, of: number) =>
      `Step ${at}/${of}: loss {number}, {number} tokens/s, {number} MB${at < of ? ", {text} left" : ""}\n`;
    const validated = (at: number, of: number) => `Step ${at}/${of}: validation loss {number}, took {number} s\n`;
    const checkpoint = "adapters/checkpoint.safetensors";
    const rows: Row[] = [
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
        stdout: '{"steps":6,"trained_tokens":{number},"train_loss":{number},"val_loss":{number},"test_loss":{number},' +
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
        args: ["generate", "--adapter-path", "adapters", "-m", "3", "--verbose", "false", "--temp", "0", "Once"],
        stdout: "{text}\n",
        stderr: "{text}\n",
      },
    ];
    for (const row of rows) await checkRows([row]); // each needs what the one before wrote
    const svg = await Deno.readTextFile(`${cwd}/adapters/loss.svg`);
    assert(svg.startsWith("<svg") && svg.includes("validation") && svg.includes("training"));
    const config = JSON.parse(await Deno.readTextFile(`${cwd}/adapters/adapter_config.json`));
    assertEquals(config.lora_parameters, { rank: 4, scale: 20, dropout: 0 });
    assertEquals([config.fine_tune_type, config.num_layers, config.mask_prompt], ["lora", 2, true]);
  } finally {
    await Deno.remove(cwd, { recursive: true });
  }
});
