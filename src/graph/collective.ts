/**
 * Work of several processes: what they exchange, and how a node asks for it.
 *
 * @module
 */

import type { Dtype } from "./dtype.ts";

/** What processes do together. "sumScatter" sums and leaves each process its part; "send" and "receive" are of two. */
export type CollectiveKind = "sum" | "min" | "max" | "gather" | "sumScatter" | "send" | "receive";

/** Processes that exchange bytes. All call the same exchanges in the same order. */
export interface Communicator {
  /** Number of this process among them. */
  readonly rank: number;
  /** How many there are. */
  readonly size: number;
  /**
   * Exchanges `input`, contiguous values of a dtype, and gives `bytes` of result; `peer` is the other process of "send" and "receive". It
   * returns when that is done, and throws a `RuntimeError` where others do not come.
   */
  exchange(kind: CollectiveKind, dtype: Dtype, input: Uint8Array, bytes: number, peer: number): Uint8Array;
}

/** Attributes of a node that processes compute together. */
export interface Collective {
  readonly kind: CollectiveKind;
  readonly processes: Communicator;
  /** The other process of "send" and "receive"; -1 otherwise. */
  readonly peer: number;
}
