/**
 * Fine-tuning of language models, as mlx-lm's `tuner` does it: LoRA, DoRA and full. Available as `mx.lm.tuner`.
 *
 * @module
 */

export { type AnyEmbedding, type AnyLinear, LoRAEmbedding, LoRALinear, type LoRAOptions } from "./lora.ts";
export { DoRAEmbedding, DoRALinear } from "./dora.ts";
export { type AnySwitchLinear, LoRASwitchLinear } from "./lora_switch.ts";
export { blocksOf, fuseLayers, linearToLoraLayers, type LoRAConfig, removeLoraLayers } from "./layers.ts";
export {
  createDataset,
  type Dataset,
  type DatasetOptions,
  type Datasets,
  type Example,
  loadDatasets,
} from "./datasets.ts";
export { type Batch, iterateBatches, type IterateBatchesOptions } from "./batches.ts";
export { lossPlot } from "./loss_plot.ts";
export { defaultLoss, type Loss, type TrainableModel } from "./loss.ts";
export {
  evaluate,
  type EvaluateOptions,
  train,
  type Trained,
  type TrainingArgs,
  type TrainingCallback,
  type TrainOptions,
  type TrainReport,
  type ValReport,
} from "./trainer.ts";
export { type History, isCheckpoint } from "./checkpoint.ts";
export {
  type AdapterConfig,
  type FineTuneType,
  loadAdapters,
  loadAdapterWeights,
  prepareModel,
  readAdapterConfig,
  saveAdapterConfig,
} from "./adapters.ts";
export { fuse, type Fused, type FuseOptions } from "./fuse.ts";
