/**
 * The dtype that a model computes in where the caller names none.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import { deviceOf } from "../../array/devices/device_of.ts";
import * as mx from "../../array/mod.ts";
import type { Dtype } from "../../array/mod.ts";

const DTYPES: Readonly<Record<string, Dtype>> = { float32: mx.float32, float16: mx.float16, bfloat16: mx.bfloat16 };

/**
 * Dtype of activations on the default device, of a model whose floats have `stored`. It is what VKMX_DTYPE names, else `stored` where the
 * device has matrix units for it, else float32.
 */
export function activationDtype(stored: Dtype): Dtype {
  const wished = environment("VKMX_DTYPE");
  return wished === undefined ? deviceOf([]).activationDtype(stored) : DTYPES[wished];
}
