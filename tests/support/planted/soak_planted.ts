/** Rows for `deno task soak` that leak: memory of the process, memory of the device, and none of both. */

import * as mx from "../../../mod.ts";
import type { SoakKind } from "../../../scripts/soak/kinds.ts";
import { untrack } from "../../../src/array/tensor/tracking.ts";

const units = { wasm: 1, vulkan: 1, quick: 1 };
const kept: unknown[] = [];

/** All of them. */
export const KINDS: readonly SoakKind[] = [
  { name: "none", round: () => mx.sum(mx.ones([1000])).item() },
  { name: "process", round: () => kept.push(new Uint8Array(500_000).fill(1)) },
  {
    name: "device",
    round: () => {
      const leaked = mx.add(mx.ones([100_000]), 1);
      untrack(leaked);
      mx.eval(leaked);
      kept.push(leaked);
    },
  },
].map(({ name, round }) => ({
  name,
  check: 12,
  each: "rounds",
  units,
  start: (device) => Promise.resolve(() => Promise.resolve(void mx.withDevice(device, round))),
}));
