/**
 * A program's own kernels: only the program knows their derivatives and their batches.
 *
 * @module
 */

import type { OpRules } from "./rule.ts";

const none = (rule: string): { readonly none: string } => ({
  none: `call the kernel in a function of mx.customFunction and set its rule with .${rule}()`,
});

/** The rules of `customKernel`. */
export const CUSTOM_KERNEL: OpRules = { vjp: none("vjp"), jvp: none("jvp"), vmap: none("vmap") };
