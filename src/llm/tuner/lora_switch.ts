/**
 * Low-rank adaptation of the stacked matrices of experts, as mlx-lm's LoRASwitchLinear: each expert has a product of its own.
 *
 * Shapes: E experts, r the rank.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { RoutedRows } from "../../array/quantized/experts.ts";
import * as nn from "../../nn/mod.ts";
import { QuantizedSwitchLinear, SwitchLinear } from "../layers/switch_linear.ts";
import { inFormatOf, type LoRAOptions, loraSettings, sizesOf } from "./lora.ts";

/** Stacked matrices of experts that can be adapted. */
export type AnySwitchLinear = SwitchLinear | QuantizedSwitchLinear;

/** The stacked matrices, dense. */
function dense(layer: AnySwitchLinear): SwitchLinear {
  return layer instanceof QuantizedSwitchLinear ? layer.toDense() : layer;
}

/** Stacked linear maps and a low-rank product for each: `linear(x) + scale * (x @ lora_aᵀ) @ lora_bᵀ` with the matrices of an expert. */
export class LoRASwitchLinear extends nn.Module {
  /** The layer that is adapted. */
  linear: AnySwitchLinear;
  /** Dropout of the input while training. */
  dropout: nn.Dropout;
  /** The factor of the product. */
  readonly scale: number;
  /** (E, r, inputs) */
  lora_a: Tensor;
  /** (E, outputs, r) */
  lora_b: Tensor;

  /** A layer that computes what `linear` does until it is trained. */
  static fromBase(linear: AnySwitchLinear, options: LoRAOptions = {}): LoRASwitchLinear {
    return new LoRASwitchLinear(linear, options);
  }

  /** Takes the layer and the settings. The first matrices are uniform within 1 / sqrt(inputs), the second ones zeros. */
  constructor(linear: AnySwitchLinear, options: LoRAOptions = {}) {
    super();
    const { r, dropout, scale } = loraSettings("LoRASwitchLinear", options);
    const [experts] = linear.weight.shape;
    const [outputs, inputs] = sizesOf(linear);
    const bound = 1 / Math.sqrt(inputs);
    this.linear = linear;
    this.dropout = new nn.Dropout(dropout);
    this.scale = scale;
    this.lora_a = mx.random.uniform(-bound, bound, [experts, r, inputs]);
    this.lora_b = mx.zeros([experts, outputs, r]);
  }

  /** Rows (…, 1, inputs) and their experts → (…, 1, outputs) */
  override forward(rows: RoutedRows): Tensor {
    const { x, indices, sorted } = rows;
    const times = (input: Tensor, stack: Tensor): Tensor =>
      mx.gatherMm(input, mx.swapaxes(stack, -1, -2), null, indices, { sortedIndices: sorted });
    const z = times(times(this.dropout.forward(x), this.lora_a), this.lora_b);
    return mx.add(this.linear.forward(rows), mx.multiply(z, this.scale).astype(x.dtype));
  }

  /** One layer that computes the same when it is not trained; quantized if the adapted one is, unless `dequantize`. */
  fuse(dequantize: boolean = false): AnySwitchLinear {
    const { linear } = this;
    const { weight, bias } = dense(linear);
    const delta = mx.matmul(mx.multiply(this.lora_b, this.scale), this.lora_a);
    const fused = new SwitchLinear({ weight: mx.add(weight, delta.astype(weight.dtype)), bias });
    return dequantize ? fused : inFormatOf(linear, fused);
  }
}
