/**
 * `vkmx train`: fine-tunes a language model on a folder of examples, as `mlx_lm.lora` does.
 *
 * @module
 */

import { join } from "node:path";
import { makeFolder } from "../../../ffi/store.ts";
import * as mx from "../../../mod.ts";
import { useDevice } from "../device.ts";
import { UsageError } from "../flags.ts";
import { loadOptions, onInterrupt } from "../loading.ts";
import { mute, note, print, printJson } from "../output.ts";
import { type Command, command } from "../program.ts";
import { Progress } from "../progress.ts";
import { STEPS } from "../../notebook/figures.ts";
import { weightBytesOf } from "../model_flags.ts";
import { makeOptimizer, notesOf, plotLosses, readSettings, TRAIN_FLAGS, TrainingReport } from "../training.ts";

/** Default number of trained layers; a smaller model trains all of its layers. */
const NUM_LAYERS = 16;

const { tuner } = mx.lm;

const train: Command = command(
  {
    name: "vkmx train",
    about:
      `Fine-tunes a model on a folder of examples. Lines of train.jsonl have "prompt" and "completion", "messages", or "text".
Adapters, a checkpoint to go on from and a plot of the losses go to --adapter-path; vkmx generate takes it too.
Ctrl-C ends it after a step and saves. After vkmx launch -n N -- the processes share each batch.`,
    flags: TRAIN_FLAGS,
    examples: [
      "--data examples/data --iters 100 --learning-rate 1e-3",
      "--model Qwen/Qwen3-0.6B-MLX-4bit --data DIR --num-layers 8 --batch-size 2 --test",
      "--data DIR --iters 2000 --resume adapters/checkpoint.safetensors",
    ],
  },
  async (values) => {
    const { json, test = false, "test-batches": testBatches = 500, "resume-adapter-file": resume } = values;
    if (values.device === "list") await useDevice(values.device, { json });
    const settings = readSettings(values);
    const { folder, args, adapter } = settings;
    await useDevice(values.device, { json });
    const group = mx.distributed.init();
    const isFirst = group.rank() === 0;
    if (!isFirst) mute();
    if (args.batchSize % group.size() !== 0) {
      throw new UsageError(`--batch-size must be a multiple of the ${group.size()} processes: found ${args.batchSize}`);
    }
    const signal = onInterrupt();
    const start = performance.now();
    const loaded = await mx.lm.load(values.model ?? mx.lm.EMBEDDED_MODEL, {
      ...loadOptions(
        { ...(values.device !== undefined && { device: values.device }), ...weightBytesOf(values) },
        signal,
      ),
      dtype: mx.float32, // small gradients need its digits
    });
    using model = loaded.model;
    mx.setDefaultDevice(loaded.device);
    const sets = tuner.loadDatasets(settings.data, loaded.tokenizer, { maskPrompt: values["mask-prompt"] ?? false });
    if (sets.train.length === 0) throw new UsageError(`${settings.data} has no examples in train.jsonl`);
    if (test && sets.test.length === 0) throw new UsageError(`--test needs a test.jsonl in ${settings.data}`);
    const long = sets.train.filter(({ tokens }) => tokens.length > args.maxSeqLength).length;
    if (long > 0) note(`[${long} examples are cut off at ${args.maxSeqLength} tokens: --max-seq-length sets it]\n`);
    if (sets.valid.length === 0) note("[no valid.jsonl: training goes on without validation]\n");

    mx.random.seed(args.seed);
    const layers = tuner.blocksOf(model).length;
    const config = { ...adapter, numLayers: adapter.numLayers ?? Math.min(NUM_LAYERS, layers) };
    tuner.prepareModel(model, config);
    const exact = resume !== undefined && tuner.isCheckpoint(resume);
    if (resume !== undefined && !exact) tuner.loadAdapterWeights(model, resume, config.fineTuneType);
    tellTrained(model, config);
    if (isFirst) makeFolder(folder);

    const noteConfig = () => tuner.saveAdapterConfig(model, folder, config, notesOf(values, settings));
    const report = new TrainingReport(args.iters, noteConfig);
    const trained = await tuner.train(model, makeOptimizer(settings), sets.train, {
      valDataset: sets.valid,
      args: { ...args, adapterFile: join(folder, "adapters.safetensors") },
      callback: report,
      ...(exact && { resume }),
      signal,
    }).finally(() => report.clear());
    if (isFirst) plotLosses(folder, trained);
    if (trained.skipped > 0) note(`[${trained.skipped} steps had no token to train on: raise --max-seq-length]\n`);
    const aborted = signal.aborted;
    if (aborted) note(`[ended by Ctrl-C: --resume ${join(folder, "checkpoint.safetensors")} goes on]\n`);

    const testing = new Progress("Testing", { unit: STEPS, delay: 1000 });
    const testLoss = test && !aborted
      ? await tuner.evaluate(model, sets.test, args.batchSize, {
        numBatches: testBatches,
        maxSeqLength: args.maxSeqLength,
        onProgress: (done, total) => testing.update(done, total),
        signal,
      }).finally(() => testing.clear())
      : undefined;
    if (json) {
      printJson({
        steps: trained.iteration,
        trained_tokens: trained.trainedTokens,
        skipped_steps: trained.skipped,
        train_loss: trained.train.at(-1)?.[1] ?? null,
        val_loss: trained.valid.at(-1)?.[1] ?? null,
        test_loss: testLoss ?? null,
        losses: trained.train,
        val_losses: trained.valid,
        adapter_path: folder,
        seconds: (performance.now() - start) / 1000,
        peak_memory_bytes: mx.getPeakMemory(),
        device: loaded.device,
        model: values.model ?? "tiny-qwen3",
      });
    } else {
      print(`${folder}: ${trained.iteration} steps, ${trained.trainedTokens} tokens\n`);
      if (testLoss !== undefined) {
        print(`Test loss ${testLoss.toFixed(4)}, perplexity ${Math.exp(testLoss).toFixed(3)}\n`);
      }
    }
    return aborted ? 130 : 0;
  },
);

/** Says how many parameters are trained, and where fewer are than "full" sounds like. */
function tellTrained(model: mx.lm.LanguageModel, { fineTuneType }: mx.lm.tuner.AdapterConfig): void {
  const sizeOf = (tree: unknown): number =>
    mx.utils.treeFlatten(tree).reduce((sum, [, x]) => sum + (x as mx.Tensor).size, 0);
  const count = sizeOf(model.trainableParameters());
  note(`Trained are ${(count / 1e6).toFixed(3)} M parameters (${fineTuneType})\n`);
  const quantized = model.modules().some((module) => "scales" in module);
  if (fineTuneType === "full" && quantized) {
    note("[quantized matrices stay as they are: vkmx convert --dequantize makes a model that is trained in full]\n");
  }
}

export default train;
