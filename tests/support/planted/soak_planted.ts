/**
 * Rows for `deno task soak` that leak: memory of the process, memory of the device, and none of both. One keeps what it makes until round 70,
 * and one without an end.
 */

import * as mx from "../../../mod.ts";
import type { SoakKind } from "../../../scripts/soak/kinds.ts";
import { untrack } from "../../../src/array/tensor/tracking.ts";

const units = { wasm: 1, vulkan: 1, quick: 1 };
const kept: unknown[] = [];
const keep = (): void => void kept.push(new Uint8Array(500_000).fill(1));
const made = (): number => kept.length;

/** What a row does in a round, and whether it counts what it keeps. */
interface PlantedRow {
  readonly name: string;
  readonly round: () => void;
  readonly made?: () => number;
}

const ROWS: readonly PlantedRow[] = [
  { name: "none", round: () => void mx.sum(mx.ones([1000])).item() },
  { name: "process", round: keep },
  { name: "late", round: () => kept.length < 70 ? keep() : undefined, made },
  { name: "endless", round: keep, made },
  {
    name: "device",
    round: () => {
      const leaked = mx.add(mx.ones([100_000]), 1);
      untrack(leaked);
      mx.eval(leaked);
      kept.push(leaked);
    },
  },
];

/** All of them. */
export const KINDS: readonly SoakKind[] = ROWS.map(({ name, round, made }) => ({
  name,
  check: 12,
  each: "rounds",
  units,
  start: (device) =>
    Promise.resolve(Object.assign(() => Promise.resolve(mx.withDevice(device, round)), made && { made })),
}));
