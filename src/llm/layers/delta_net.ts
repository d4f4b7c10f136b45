/**
 * A gated delta net in the place of attention (arXiv 2412.06464). A short convolution over queries, keys and values comes before the gated
 * delta rule, and a norm whose result is gated after it. Its state is a matrix for each head and the last inputs of the convolution.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { normalizedDeltaUpdate } from "../../array/fast/gated_delta.ts";
import { Module, silu } from "../../nn/mod.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { convolvedFeatures, type DeltaNetConfig, layerStates } from "../config/layer_kinds.ts";
import type { Cache } from "../kv/cache.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { CausalConv } from "./causal_conv.ts";
import { forwardInDtype, type Layer, linear, plainNorm } from "./stored.ts";

/** Added to the sum of the squares of a query or a key. */
const EPS = 1e-6;

/** What a net makes of its input before the convolution. */
interface Projected {
  /** Queries, keys and values (B, T, 2 * keyHeads * K + H * V). */
  readonly mixed: Tensor;
  /** The gate of the result (B, T, H, V). */
  readonly gate: Tensor;
  /** β before the sigmoid, and what the decay follows from: (B, T, H). */
  readonly rate: Tensor;
  readonly step: Tensor;
}

/** Masks by the numbers of tokens that count: the nets of a pass share one. */
const MASKS = new WeakMap<Tensor, Tensor>();

/** bool (B, T): the first tokens of each sequence, as many as `counted` says. */
function maskOf(counted: Tensor, B: number, T: number): Tensor {
  const known = MASKS.get(counted);
  if (known?.shape.join() === [B, T].join()) return known;
  const mask = mx.broadcastTo(mx.less(mx.arange(0, T, 1, mx.int32), counted.reshape([-1, 1])), [B, T]);
  MASKS.set(counted, mask);
  return mask;
}

/** A net of H heads of values. */
export class DeltaNet extends Module {
  /** Over queries, keys and values. */
  conv1d: CausalConv;
  /** (…, hidden) → queries, keys and values, in families that have a matrix for each part. */
  in_proj_qkv?: Layer;
  /** (…, hidden) → the gate of the result. */
  in_proj_z?: Layer;
  /** (…, hidden) → (…, H): β before the sigmoid. */
  in_proj_b?: Layer;
  /** (…, hidden) → (…, H): what the decay follows from. */
  in_proj_a?: Layer;
  /** (…, hidden) → queries, keys, values and gates of each head of keys, in families that have one matrix for them. */
  in_proj_qkvz?: Layer;
  /** (…, hidden) → β and what the decay follows from, of each head of keys. */
  in_proj_ba?: Layer;
  /** Added to what the decay follows from: (H,). */
  dt_bias: Tensor;
  /** The logarithm of the rate of decay: (H,). */
  A_log: Tensor;
  /** The norm of the result of each head. */
  norm: Layer;
  /** (…, H * V) → (…, hidden) */
  out_proj: Layer;
  readonly #net: DeltaNetConfig;
  readonly #state: number;

  /** Takes conv1d, the projections, dt_bias, A_log, norm and out_proj below `path`. */
  constructor(config: DecoderConfig, weights: Weights, path: string, layer: number) {
    super();
    const { hiddenSize: hidden } = config;
    const net = config.deltaNet!;
    const { keyHeads, valueHeads, keyDim, valueDim, window, joined } = net;
    const mixed = convolvedFeatures(net);
    this.#net = net;
    this.#state = layerStates(config, layer).length;
    this.conv1d = new CausalConv(weights, `${path}.conv1d`, mixed, window, false, this.#state);
    const project = (name: string, outputs: number): Layer => linear(weights, `${path}.${name}`, hidden, outputs);
    if (joined) {
      this.in_proj_qkvz = project("in_proj_qkvz", 2 * (keyHeads * keyDim + valueHeads * valueDim));
      this.in_proj_ba = project("in_proj_ba", 2 * valueHeads);
    } else {
      this.in_proj_qkv = project("in_proj_qkv", mixed);
      this.in_proj_z = project("in_proj_z", valueHeads * valueDim);
      this.in_proj_b = project("in_proj_b", valueHeads);
      this.in_proj_a = project("in_proj_a", valueHeads);
    }
    const vector = (name: string): Tensor => weights.take(`${path}.${name}`, [valueHeads], "float");
    this.dt_bias = vector("dt_bias");
    this.A_log = vector("A_log");
    this.norm = plainNorm(weights, `${path}.norm`, valueDim, config.rmsNormEps);
    this.out_proj = linear(weights, `${path}.out_proj`, valueHeads * valueDim, hidden);
  }

  /** (B, T, hidden) → (B, T, hidden) */
  override forward(x: Tensor, cache: Cache | undefined): Tensor {
    const [B, T] = x.shape;
    const { keyHeads, valueHeads, keyDim, valueDim } = this.#net;
    const { mixed, gate, rate, step } = this.#projected(x);
    const convolved = this.conv1d.forward(mixed, cache, { silu: true });
    const [q, k, v] = mx.split(convolved, [keyHeads * keyDim, 2 * keyHeads * keyDim], -1);
    const given = {
      q: q.reshape(B, T, keyHeads, keyDim),
      k: k.reshape(B, T, keyHeads, keyDim),
      v: v.reshape(B, T, valueHeads, valueDim),
      gamma: step,
      beta: rate,
      gates: { bias: this.dt_bias, logRate: this.A_log },
      state: cache?.readState(this.#state + 1) ?? mx.zeros([B, valueHeads, valueDim, keyDim], mx.float32),
    };
    const update = (counted: Tensor | undefined): [Tensor, Tensor] => {
      const mask = counted && maskOf(counted, B, T);
      return normalizedDeltaUpdate({ ...given, ...(mask && { mask }) }, EPS);
    };
    const [outputs, state] = update(cache?.counted);
    cache?.writeState(this.#state + 1, state, (counted) => update(counted)[1]);
    const gated = mx.multiply(forwardInDtype(this.norm, outputs), silu(gate.astype(mx.float32)));
    return forwardInDtype(this.out_proj, gated.astype(x.dtype).reshape(B, T, valueHeads * valueDim));
  }

  #projected(x: Tensor): Projected {
    const [B, T] = x.shape;
    const { keyHeads, valueHeads, keyDim, valueDim } = this.#net;
    if (!this.in_proj_qkvz) {
      const [mixed, gate, rate, step] = [this.in_proj_qkv!, this.in_proj_z!, this.in_proj_b!, this.in_proj_a!]
        .map((layer) => forwardInDtype(layer, x));
      return { mixed, gate: gate.reshape(B, T, valueHeads, valueDim), rate, step };
    }
    const perKey = valueHeads / keyHeads;
    const all = forwardInDtype(this.in_proj_qkvz, x).reshape(B, T, keyHeads, -1);
    const [q, k, v, gate] = mx.split(all, [keyDim, 2 * keyDim, 2 * keyDim + perKey * valueDim], -1);
    const [rate, step] = mx.split(forwardInDtype(this.in_proj_ba!, x).reshape(B, T, keyHeads, -1), 2, -1);
    return {
      mixed: mx.concatenate([q, k, v].map((part) => part.reshape(B, T, -1)), -1),
      gate: gate.reshape(B, T, valueHeads, valueDim),
      rate: rate.reshape(B, T, valueHeads),
      step: step.reshape(B, T, valueHeads),
    };
  }
}
