/**
 * Matrix units of devices, which multiply float16 and so round what goes in.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { matrixMap } from "../../src/schedule/ops/coopmat.ts";

/** Whether prompts of fused layers go through the matrix units of a device. */
export function hasMatrices(device: string): boolean {
  const backend = mx.withDevice(device, getBackend);
  return backend.has("coopmat_map") && matrixMap(backend).weights !== undefined;
}
