/**
 * Matrix units of devices, which multiply float16 and so round what goes in.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { matrixMap, PAIRS } from "../../../src/schedule/ops/matmul/coopmat.ts";

/** Whether prompts of fused layers go through the matrix units of a device. */
export function hasMatrices(device: string): boolean {
  const backend = mx.withDevice(device, getBackend);
  return backend.has("coopmat_map") && matrixMap(backend).weights !== undefined;
}

/** The name of a device without its matrix units, whose products have the accuracy of float32. */
export function withoutMatrices(device: string): string {
  return mx.withDevice(device, getBackend).has("coopmat_map") ? `${device}-coopmat` : device;
}

/** The order of weights that a kernel of products reads on a device: emulated ones have one of their own. */
export function weightsMap(backend: Backend, kernel: KernelName): Uint32Array {
  return isEmulated(kernel) ? PAIRS : matrixMap(backend).weights!;
}

/** Kernels that a device must have for a test of one of products. */
export function neededBy(kernel: KernelName): readonly KernelName[] {
  return isEmulated(kernel) ? [kernel] : ["coopmat_map", kernel];
}

function isEmulated(kernel: KernelName): boolean {
  return kernel.includes("_emulated");
}
