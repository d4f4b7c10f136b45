/**
 * Batches of random bits: a stream for each key. Nothing moves with a key.
 *
 * @module
 */

import { makeNode } from "../../graph/node.ts";
import { reshapeNode } from "../ops/movement.ts";
import type { OpRules } from "./rule.ts";

/** Rules of random bits. */
export const RANDOM = {
  randomBits: {
    vjp: () => [],
    jvp: () => undefined,
    vmap(entry, [keys], _, size) {
      // (batch, 2) or (batch, n, 2): a row of keys, and a stream of the words of one element for each.
      const [first, ...rest] = entry.shape;
      const several = keys.shape.length > 2;
      const rows = several ? reshapeNode(keys, [size * first, 2]) : keys;
      const shape = several ? [size * first, ...rest] : [size, ...entry.shape];
      return reshapeNode(makeNode("randomBits", [rows], shape, entry.dtype, {}), [size, ...entry.shape]);
    },
  },
} as const satisfies Record<string, OpRules>;
