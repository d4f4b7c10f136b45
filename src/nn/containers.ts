/**
 * Modules made of others.
 *
 * @module
 */

import type { Tensor } from "../array/mod.ts";
import { Module } from "./module.ts";

/** A layer of a {@link Sequential}: a module, or a function such as an activation. */
export type Layer = Module | ((x: Tensor) => Tensor);

/**
 * Modules one after the other; functions may stand between them.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const model = new mx.nn.Sequential(new mx.nn.Linear(4, 8), mx.nn.relu, new mx.nn.Linear(8, 2));
 * model.forward(mx.ones([3, 4])).shape; // [3, 2]
 * ```
 */
export class Sequential extends Module {
  /** The layers in their order. */
  layers: Layer[];

  /** Takes the layers. */
  constructor(...layers: Layer[]) {
    super();
    this.layers = layers;
  }

  /** Applies all layers to x, one after the other. */
  override forward(x: Tensor): Tensor {
    let y = x;
    for (const layer of this.layers) y = layer instanceof Module ? layer.forward(y) : layer(y);
    return y;
  }
}
