/**
 * A pass over whole texts whose keys and values are rounded to the codes of a cache with 8 bits, and kept nowhere.
 *
 * @module
 */

import { decodeKv, encodeKv } from "../../array/fast/kv_codes.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import type { Cache, KeysValues } from "./pass.ts";
import type { StateShape } from "./states.ts";

/** One pass from position 0 on: attention sees what a cache with codes would give back. */
export class CodedPass implements Cache {
  readonly counted = undefined;
  readonly #batch: number;
  readonly #states: readonly StateShape[];

  /** Over `batch` texts. Recurrent layers of a model have `states`. */
  constructor(batch: number, states: readonly StateShape[] = []) {
    this.#batch = batch;
    this.#states = states;
  }

  /** See {@link Cache.begin}. */
  begin(): number {
    return 0;
  }

  /** See {@link Cache.update}. */
  update(_layer: number, keys: Tensor, values: Tensor): KeysValues {
    const coded = (features: Tensor): Tensor => decodeKv(encodeKv(features), features.dtype);
    return { keys: coded(keys), values: coded(values), lengths: undefined };
  }

  /** See {@link Cache.readState}: zeros. */
  readState(index: number): Tensor {
    const { shape, dtype } = this.#states[index];
    return mx.zeros([this.#batch, ...shape], dtype);
  }

  /** See {@link Cache.writeState}: no pass follows. */
  writeState(): void {}
}
