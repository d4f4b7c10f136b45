/**
 * Gives the methods of Tensor the functions that they call, and Tensor those of OperatorMethods; mod.ts imports it for that. Types see to
 * it that none is missing.
 *
 * @module
 */

import * as complex from "./ops/complex.ts";
import * as binary from "./ops/binary.ts";
import * as indexing from "./ops/indexing.ts";
import * as join from "./ops/join.ts";
import * as movement from "./ops/movement.ts";
import * as products from "./linalg/products.ts";
import * as reduce from "./ops/reduce.ts";
import { reshape } from "./ops/reshape.ts";
import * as sort from "./ops/sort.ts";
import { take } from "./ops/gather.ts";
import { type AnyTensor, installOperations, type OperatorMethods, Tensor } from "./tensor/tensor.ts";
import * as unary from "./ops/unary.ts";
import { view } from "./ops/view.ts";

installOperations({
  ...unary,
  ...binary,
  ...reduce,
  ...sort,
  ...products,
  ...movement,
  reshape,
  ...join,
  ...indexing,
  ...complex,
  view,
});

/** A free function whose first argument is the array. */
// deno-lint-ignore no-explicit-any -- further arguments of any kind
type FreeFunction = (array: any, ...rest: any[]) => AnyTensor;

/** The free functions that are methods as they are. */
const OPERATORS = {
  equal: binary.equal,
  notEqual: binary.notEqual,
  less: binary.less,
  lessEqual: binary.lessEqual,
  greater: binary.greater,
  greaterEqual: binary.greaterEqual,
  logicalAnd: binary.logicalAnd,
  logicalOr: binary.logicalOr,
  logicalNot: unary.logicalNot,
  maximum: binary.maximum,
  minimum: binary.minimum,
  floorDivide: binary.floorDivide,
  remainder: binary.remainder,
  bitwiseAnd: binary.bitwiseAnd,
  bitwiseOr: binary.bitwiseOr,
  bitwiseXor: binary.bitwiseXor,
  bitwiseInvert: unary.bitwiseInvert,
  leftShift: binary.leftShift,
  rightShift: binary.rightShift,
  clip: binary.clip,
  take,
  repeat: join.repeat,
  argsort: sort.argsort,
  trace: products.trace,
} as const satisfies Record<keyof OperatorMethods<never, never>, FreeFunction>;

for (const [name, fn] of Object.entries<FreeFunction>(OPERATORS)) {
  Object.defineProperty(Tensor.prototype, name, {
    value(this: Tensor, ...rest: readonly unknown[]): AnyTensor {
      return fn(this, ...rest);
    },
    writable: true,
    configurable: true,
  });
}
