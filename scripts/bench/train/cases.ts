/**
 * Measurements of `deno task bench:train`: one row a model and the way it is trained; train/reference.py makes the same ones in MLX.
 *
 * A row makes its model, optimizer and batch, and says what a step computes. Models that are trained in float16 keep float32 parameters.
 * The loss is a function of those, cast, and is scaled, so that small gradients do not vanish.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import * as mx from "../../../mod.ts";
import { checkpointLayers } from "../../../src/llm/tuner/layers.ts";
import { SHAPES, writeModel } from "../../synthetic/synthetic.ts";

const { nn, optimizers } = mx;

/** How a row trains. */
export interface Manner {
  /** One traced function, replayed. */
  readonly compiled?: boolean;
  /** Layers are computed again for derivatives. */
  readonly checkpoint?: boolean;
}

/** A model in training: its forward pass and its step are made of these. */
export interface Setup {
  readonly model: mx.nn.Module;
  readonly optimizer: mx.optimizers.Adam;
  /** Arrays that a step is called with. */
  readonly batch: readonly mx.Tensor[];
  /** The mean loss of a batch. */
  readonly loss: (...batch: mx.Tensor[]) => mx.Tensor;
  /** Whether it computes in float16 with float32 parameters. */
  readonly half?: boolean;
}

/** A row of the table. */
export interface TrainCase {
  readonly name: string;
  /** Where it is measured. */
  readonly on: "cpu" | "gpu";
  readonly manners: readonly Manner[];
  /** Tokens, or examples, of a step. */
  readonly items: number;
  readonly unit: "tok/s" | "images/s";
  /** Floating-point operations of a step; 0 if they are not told. */
  readonly flops: number;
  /** The sizes of the reference's model; absent in rows for GPUs. */
  readonly reference?: Readonly<Record<string, unknown>>;
  /** Takes the random numbers of the default device. */
  readonly make: (manner: Manner) => Setup | Promise<Setup>;
}

const BOTH = [{ compiled: true }, {}] as const satisfies readonly Manner[];
const CHECKPOINTED = [{ compiled: true }, { compiled: true, checkpoint: true }] as const satisfies readonly Manner[];

/** Sizes of a multilayer perceptron. */
interface MlpSizes {
  readonly dims: readonly number[];
  readonly batch: number;
}

class Mlp extends nn.Module {
  readonly layers: mx.nn.Linear[];

  constructor(dims: readonly number[]) {
    super();
    this.layers = dims.slice(1).map((outputs, i) => new nn.Linear(dims[i], outputs));
  }

  override forward(x: mx.Tensor): mx.Tensor {
    return this.layers.reduce((y, layer, i) => layer.forward(i > 0 ? nn.relu(y) : y), x);
  }
}

function mlp(name: string, on: "cpu" | "gpu", { dims, batch }: MlpSizes): TrainCase {
  const weights = dims.slice(1).reduce((sum, outputs, i) => sum + outputs * dims[i], 0);
  return {
    name,
    on,
    manners: BOTH,
    items: batch,
    unit: "images/s",
    flops: 6 * weights * batch,
    reference: { kind: "mlp", dims, batch },
    make() {
      const model = new Mlp(dims);
      const x = mx.random.uniform(0, 1, [batch, dims[0]]);
      const y = mx.random.randint(0, dims[dims.length - 1], [batch]);
      const loss = (x: mx.Tensor, y: mx.Tensor): mx.Tensor =>
        nn.losses.crossEntropy(model.forward(x), y, null, -1, 0, "mean");
      return { model, optimizer: new optimizers.Adam(1e-3), batch: [x, y], loss };
    },
  };
}

/** Sizes of a language model of pre-norm transformer layers. */
interface TransformerSizes {
  readonly layers: number;
  readonly dims: number;
  readonly heads: number;
  readonly vocabulary: number;
  readonly batch: number;
  readonly length: number;
}

/** MLX's example transformer_lm. */
class LanguageModel extends nn.Module {
  readonly embedding: mx.nn.Embedding;
  readonly positions: mx.nn.SinusoidalPositionalEncoding;
  readonly transformer: mx.nn.TransformerEncoder;
  readonly output: mx.nn.Linear;

  constructor({ layers, dims, heads, vocabulary }: TransformerSizes, checkpoint: boolean) {
    super();
    this.embedding = new nn.Embedding(vocabulary, dims);
    this.positions = new nn.SinusoidalPositionalEncoding(dims);
    this.transformer = new nn.TransformerEncoder(layers, dims, heads, null, 0, nn.relu, true, checkpoint);
    this.output = new nn.Linear(dims, vocabulary);
  }

  override forward(x: mx.Tensor): mx.Tensor {
    const y = this.embedding.forward(x);
    const places = this.positions.forward(mx.arange(x.shape[1])).astype(y.dtype);
    return this.output.forward(this.transformer.forward(mx.add(y, places), "causal"));
  }
}

function transformer(
  name: string,
  on: "cpu" | "gpu",
  sizes: TransformerSizes,
  manners: readonly Manner[],
  half: boolean,
): TrainCase {
  const { layers, dims, vocabulary, batch, length } = sizes;
  const tokens = batch * length;
  const weights = 12 * layers * dims ** 2 + dims * vocabulary;
  // Queries meet half of the keys.
  const attention = 6 * layers * dims * length;
  return {
    name,
    on,
    manners,
    items: tokens,
    unit: "tok/s",
    flops: (6 * weights + attention) * tokens,
    reference: { kind: "transformer", ...sizes },
    make({ checkpoint = false }) {
      const model = new LanguageModel(sizes, checkpoint);
      const x = mx.random.randint(0, vocabulary, [batch, length]);
      const y = mx.random.randint(0, vocabulary, [batch, length]);
      const loss = (x: mx.Tensor, y: mx.Tensor): mx.Tensor => mx.mean(mx.fast.crossEntropy(model.forward(x), y));
      return { model, optimizer: new optimizers.AdamW(1e-3), batch: [x, y], loss, half };
    },
  };
}

const SMALL = { layers: 4, dims: 128, heads: 4, vocabulary: 1024, batch: 8, length: 64 } as const;
const MILLIONS_10 = { layers: 5, dims: 384, heads: 6, vocabulary: 1536, batch: 64, length: 256 } as const;
const MILLIONS_100 = { layers: 12, dims: 768, heads: 12, vocabulary: 10_240, batch: 16, length: 1024 } as const;

/** The matrices that LoRA trains: matrices of rank 8 beside all linear layers of the last blocks, as mlx-lm does by itself. */
interface LoraSizes {
  /** Blocks that are adapted. */
  readonly layers: number;
  readonly rank: number;
  readonly batch: number;
  readonly length: number;
}

/** Ids that every vocabulary has. */
const MIN_VOCABULARY = 1000;

/** A model directory, and what ends it. */
type Directory = () => Promise<{ readonly path: string; remove(): Promise<void> }>;

const EMBEDDED: Directory = () =>
  Promise.resolve({ path: fileURLToPath(mx.lm.EMBEDDED_MODEL), remove: () => Promise.resolve() });

/** Random weights in 4 bits, written for this run. */
function synthetic(shape: keyof typeof SHAPES): Directory {
  return async () => {
    const folder = await Deno.makeTempDir();
    await writeModel(`${folder}/model`, SHAPES[shape], { bits: 4, groupSize: 64 });
    return { path: `${folder}/model`, remove: () => Deno.remove(folder, { recursive: true }) };
  };
}

function lora(
  name: string,
  on: "cpu" | "gpu",
  directory: Directory,
  sizes: LoraSizes,
  manners: readonly Manner[],
  flops: number,
): TrainCase {
  const { layers, rank, batch, length } = sizes;
  const half = on === "gpu";
  return {
    name,
    on,
    manners,
    items: batch * length,
    unit: "tok/s",
    flops,
    reference: { kind: "lora", path: fileURLToPath(mx.lm.EMBEDDED_MODEL), ...sizes },
    async make({ checkpoint }) {
      const { path, remove } = await directory();
      try {
        const { model } = await mx.lm.load(path, { dtype: half ? mx.float16 : mx.float32, device: mx.defaultDevice() });
        model.freeze();
        mx.lm.tuner.linearToLoraLayers(model, layers, { rank, scale: 20, dropout: 0 });
        if (checkpoint) checkpointLayers(model);
        const draw = (): mx.Tensor => mx.random.randint(0, MIN_VOCABULARY, [batch, length]);
        const loss = (x: mx.Tensor, y: mx.Tensor): mx.Tensor => mx.mean(mx.fast.crossEntropy(model.forward(x), y));
        return { model, optimizer: new optimizers.Adam(1e-5), batch: [draw(), draw()], loss, half };
      } finally {
        await remove();
      }
    },
  };
}

/** Weights of Qwen3-0.6B that a token meets: of a block, and of the head. */
const QWEN3_BLOCK = 1024 * (2 * 2048 + 2 * 1024 + 3 * 3072), QWEN3_HEAD = 1024 * 151_936;
const QWEN3_LORA = { layers: 16, rank: 8, batch: 4, length: 512 } as const;
/** Forward through 28 blocks, back through 16 with respect to activations: frozen weights have no gradients. */
const QWEN3_FLOPS = 2 * (28 * QWEN3_BLOCK + QWEN3_HEAD + 16 * QWEN3_BLOCK + QWEN3_HEAD) * 4 * 512;

/** All rows. */
export const TRAIN_CASES: readonly TrainCase[] = [
  mlp("mlp 784-256-256-10", "cpu", { dims: [784, 256, 256, 10], batch: 256 }),
  mlp("mlp 784-256-256-10", "gpu", { dims: [784, 256, 256, 10], batch: 256 }),
  transformer("transformer 1M", "cpu", SMALL, [...BOTH, CHECKPOINTED[1]], false),
  lora(
    "LoRA tiny-qwen3",
    "cpu",
    EMBEDDED,
    { layers: -1, rank: 8, batch: 4, length: 128 },
    [...BOTH, CHECKPOINTED[1]],
    0,
  ),
  transformer("transformer 10M float32", "gpu", MILLIONS_10, CHECKPOINTED, false),
  transformer("transformer 10M float16", "gpu", MILLIONS_10, BOTH, true),
  transformer("transformer 100M float16", "gpu", MILLIONS_100, CHECKPOINTED, true),
  lora("LoRA Qwen3-0.6B 4 bits", "gpu", synthetic("qwen3-0.6b"), QWEN3_LORA, [...CHECKPOINTED, {}], QWEN3_FLOPS),
];
