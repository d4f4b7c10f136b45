/**
 * The records for the CPU: the kernels in WebAssembly, and software Vulkan, which tests the paths of GPUs.
 *
 * @module
 */

import { H200 } from "./h200.ts";
import type { Tuning } from "./tuning.ts";

/**
 * The kernels in WebAssembly. From about 96 rows on, products of whole matrices are 1.4 times as fast as attention gradients in blocks.
 * With a causal mask they are not, since they compute both halves.
 */
export const WASM: Tuning = {
  ...H200,
  name: "WebAssembly",
  experts: { ...H200.experts, maxUnsortedRows: 0 },
  attentionGradients: {
    ...H200.attentionGradients,
    inPrimitives: { minOfHead: 96 * 96, maxOfAll: 2 ** 25 },
  },
};

/** lavapipe, llvmpipe, SwiftShader: the choices of an H200, so that tests run what it runs. */
export const SOFTWARE: Tuning = { ...H200, name: "software Vulkan" };
