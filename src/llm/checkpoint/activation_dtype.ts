/**
 * What devices say of a model: the dtype that it computes in where the caller names none, and the largest array.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import { deviceOf, devicesOf } from "../../array/devices/device_of.ts";
import * as mx from "../../array/mod.ts";
import type { Dtype } from "../../array/mod.ts";

const DTYPES: Readonly<Record<string, Dtype>> = { float32: mx.float32, float16: mx.float16, bfloat16: mx.bfloat16 };

/** The dtype that a caller or VKMX_DTYPE asks for. */
export function wishedDtype(option: Dtype | undefined): Dtype | undefined {
  const name = environment("VKMX_DTYPE");
  return option ?? (name === undefined ? undefined : DTYPES[name]);
}

/**
 * Dtype of activations on some devices (default the default one) where no other is asked for, of a model whose floats have `stored`. It is
 * `stored` where each device has matrix units for it, else float32.
 */
export function activationDtype(stored: Dtype, devices?: readonly string[]): Dtype {
  return (devices ? devicesOf(devices) : deviceOf([])).activationDtype(stored);
}

/** Most bytes of an array on some devices, default the default one. */
export function maxBufferBytes(devices?: readonly string[]): number {
  return (devices ? devicesOf(devices) : deviceOf([])).maxBufferBytes;
}
