/**
 * Modules put into models by name.
 */

import * as mx from "../../../mod.ts";

/** A tree with one leaf, in which numbers are places of lists. */
function nested([key, ...rest]: string[], leaf: mx.nn.Module): unknown {
  const value = rest.length === 0 ? leaf : nested(rest, leaf);
  return /^\d+$/.test(key) ? [...Array.from({ length: Number(key) }, () => ({})), value] : { [key]: value };
}

/** Puts a module in the place of the one with a name such as "model.layers.0.mlp". */
export function putModule(model: mx.nn.Module, name: string, module: mx.nn.Module): void {
  model.updateModules(nested(name.split("."), module) as mx.nn.ModuleTree);
}

/** Puts dense layers in the places of affine quantized ones. */
export function makeDense(model: mx.nn.Module): void {
  for (const [name, module] of model.namedModules()) {
    const weight = (m: mx.nn.QuantizedMatrix): mx.Tensor =>
      mx.dequantize(m.weight, m.scales, m.biases, m.groupSize, m.bits);
    if (module instanceof mx.nn.QuantizedLinear) {
      putModule(model, name, new mx.nn.Linear({ weight: weight(module), bias: module.bias }));
    }
    if (module instanceof mx.nn.QuantizedEmbedding) {
      putModule(model, name, new mx.nn.Embedding({ weight: weight(module) }));
    }
  }
}
