/**
 * A decoder: embedding, blocks and a last norm. With a head it is a language model.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import { Module, type RoPE } from "../../nn/mod.ts";
import { attentionOf, type DecoderConfig, MODULE_NAMES } from "../config/decoder.ts";
import type { RopeConfig } from "../config/rope.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Block } from "./block.ts";
import { Pass } from "./pass.ts";
import { initializeRope } from "./rope.ts";
import { embedding, forwardInDtype, type Layer, linear, rmsNorm, type Table } from "./stored.ts";

/** The model up to the head: token ids to hidden states. */
export class Decoder extends Module {
  /** The vectors of tokens. */
  embed_tokens: Table;
  /** The blocks, in their order. */
  layers: Block[];
  /** The last norm. */
  norm?: Layer;
  /** The last norm, by the name that it has in some families. */
  embedding_norm?: Layer;
  readonly #norm: "norm" | "embedding_norm";
  /** Further vectors of tokens, of all layers beside each other, in families that have some. */
  embed_tokens_per_layer?: Table;
  /** What the vectors of the embedding add to those: (…, hidden) → (…, layers * size). */
  per_layer_model_projection?: Layer;
  /** The norm of that, of each layer's. */
  per_layer_projection_norm?: Layer;
  readonly #dtype: Dtype;
  readonly #scale: number;
  /** The device of each layer, where they are on several. */
  #devices: readonly string[] | undefined;

  /** Takes embed_tokens, layers and norm below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string) {
    super();
    const { vocabSize, hiddenSize, layers, embeddingScale = 1, names = MODULE_NAMES } = config;
    this.#dtype = weights.dtype;
    this.#scale = embeddingScale;
    const ropes = ropesOf(config, weights);
    this.embed_tokens = embedding(weights, `${path}.embed_tokens`, vocabSize, hiddenSize);
    this.layers = Array.from(
      { length: layers },
      (_, i) => new Block(config, weights, `${path}.layers.${i}`, i, ropes[i]),
    );
    this.#norm = names.lastNorm;
    this[this.#norm] = rmsNorm(weights, `${path}.${this.#norm}`, hiddenSize, config);
    if (config.layerInputs === undefined) return;
    const { size, vocabSize: tokens } = config.layerInputs;
    this.embed_tokens_per_layer = embedding(weights, `${path}.embed_tokens_per_layer`, tokens, layers * size);
    this.per_layer_model_projection = linear(
      weights,
      `${path}.per_layer_model_projection`,
      hiddenSize,
      layers * size,
    );
    this.per_layer_projection_norm = rmsNorm(weights, `${path}.per_layer_projection_norm`, size, config);
  }

  /**
   * Token ids (B, T) → the normed result of the last block, (B, T, hidden), or (B, n, hidden) with `rows` (n,), counted from 0.
   * With a cache, the tokens follow those that it holds.
   */
  override forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    const [, count] = tokens.shape;
    const pass = Pass.open(cache, count);
    let x = this.embedded(tokens);
    const inputs = this.#layerInputs(tokens, x);
    for (const layer of this.layers.keys()) x = this.#forwardLayer(layer, x, cache, pass, inputs);
    return this.onLast(() => forwardInDtype(this[this.#norm]!, rows === undefined ? x : mx.take(x, rows, 1)));
  }

  /** Token ids (B, T) → the vectors of the embedding, what each block but the last makes of them, and what the norm does at last. */
  hiddenStates(tokens: Tensor, cache?: Cache): Tensor[] {
    const [, count] = tokens.shape;
    const states = [this.embedded(tokens)];
    const inputs = this.#layerInputs(tokens, states[0]);
    const pass = Pass.open(cache, count);
    for (const layer of this.layers.keys()) {
      states.push(this.#forwardLayer(layer, states[layer], cache, pass, inputs));
    }
    return states.with(-1, this.onLast(() => forwardInDtype(this[this.#norm]!, states[this.layers.length])));
  }

  /** Puts each layer on a device, before the weights are read. The embedding is with the first one, the last norm with the last one. */
  place(devices: readonly string[], config: DecoderConfig, weights: Weights): void {
    this.#devices = devices;
    for (const device of new Set(devices).difference(new Set(devices.slice(0, 1)))) {
      const ropes = ropesOf(config, weights); // each device has wavelengths of its own
      this.layers.forEach(({ self_attn: attention }, layer) => {
        if (devices[layer] === device && attention && ropes[layer]) attention.rope = ropes[layer];
      });
    }
  }

  /** Runs work on the device of the last layer, where layers are on several. */
  onLast<T>(work: () => T): T {
    return onDevice(this.#devices?.at(-1), work);
  }

  #forwardLayer(
    layer: number,
    x: Tensor,
    cache: Cache | undefined,
    pass: Pass,
    inputs: readonly Tensor[] | undefined,
  ): Tensor {
    const device = this.#devices?.[layer];
    return onDevice(device, () => this.layers[layer].forward(x, cache, pass.on(device), inputs?.[layer]));
  }

  /** Token ids (B, T) → their vectors (B, T, hidden), in the dtype of activations. */
  embedded(tokens: Tensor): Tensor {
    return onDevice(this.#devices?.[0], () => {
      const x = this.embed_tokens.forward(tokens, this.#dtype).astype(this.#dtype);
      return this.#scale === 1 ? x : mx.multiply(x, this.#scale);
    });
  }

  /** What each layer adds, (B, T, size), of tokens (B, T) and their vectors x; undefined in families without it. */
  #layerInputs(tokens: Tensor, x: Tensor): Tensor[] | undefined {
    if (!this.embed_tokens_per_layer) return undefined;
    return onDevice(this.#devices?.[0], () => this.#vectorsOf(this.embed_tokens_per_layer!, tokens, x));
  }

  #vectorsOf(table: Table, tokens: Tensor, x: Tensor): Tensor[] {
    const own = table.forward(tokens, this.#dtype).astype(this.#dtype);
    const axes = [...tokens.shape, this.layers.length, own.shape[2] / this.layers.length];
    const [, , hidden] = x.shape;
    const projected = mx.multiply(forwardInDtype(this.per_layer_model_projection!, x), hidden ** -0.5).reshape(axes);
    const scaled = mx.multiply(own, Math.sqrt(axes[3])).reshape(axes);
    const both = mx.multiply(mx.add(forwardInDtype(this.per_layer_projection_norm!, projected), scaled), Math.SQRT1_2);
    return mx.split(both, this.layers.length, 2).map((part) => part.reshape([...tokens.shape, axes[3]]));
  }
}

/** The rotary positions of each layer; layers that rotate alike share them. */
export function ropesOf(config: DecoderConfig, weights: Weights): (RoPE | undefined)[] {
  const { layers, ropeDims, ropeTraditional } = config;
  const made = new Map<string, RoPE>();
  const ropeOf = ({ ropeTheta, ropeScaling }: RopeConfig, dims: number): RoPE => {
    const name = JSON.stringify([ropeTheta, ropeScaling, dims]);
    const rope = made.get(name) ?? initializeRope(weights, dims, ropeTheta, ropeScaling, ropeTraditional);
    made.set(name, rope);
    return rope;
  };
  return Array.from({ length: layers }, (_, layer) => {
    const { rope, headDim } = attentionOf(config, layer);
    return rope && ropeOf(rope, ropeDims ?? headDim);
  });
}
