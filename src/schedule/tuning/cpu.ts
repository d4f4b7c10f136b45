/**
 * What runs on the CPU: the kernels in WebAssembly, and software Vulkan, which is there to test what a GPU does.
 *
 * @module
 */

import { H200 } from "./h200.ts";
import type { Tuning } from "./tuning.ts";

/**
 * The kernels in WebAssembly. Products of whole matrices outrun the gradients of attention in blocks from about 96 rows on, 1.4 to 1; with
 * a causal mask, of which they compute both halves, they do not.
 */
export const WASM: Tuning = {
  ...H200,
  name: "WebAssembly",
  attentionGradients: {
    ...H200.attentionGradients,
    inPrimitives: { minOfHead: 96 * 96, maxOfAll: 2 ** 25 },
  },
};

/** lavapipe, llvmpipe, SwiftShader: the choices of an H200, so that tests run what it runs. */
export const SOFTWARE: Tuning = { ...H200, name: "software Vulkan" };
