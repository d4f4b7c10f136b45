/**
 * Facts about a device for the planning of a model's steps.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import { type Dtype, float16, float32 } from "../graph/dtype.ts";
import { isBlocked, type KvLayout } from "../graph/kv_layout.ts";
import type { Node } from "../graph/node.ts";
import type { CodeFormat } from "../graph/quantization.ts";
import { type DecoderFeatures, type DecoderSizes, kvLayoutFor } from "./decoder/spec.ts";
import { hasMatrixTiles } from "./ops/matmul/coopmat.ts";
import { hasMatrixKernels } from "./ops/matmul/coopmat_dense.ts";
import { minTile } from "./ops/matmul/matmul_tiles.ts";
import { maxPreciseRows } from "./ops/matmul/packed_weights.ts";
import { backendOf } from "./realize.ts";

/** Facts of a device, or what holds on all of several that compute one after another. */
export class DeviceFacts {
  /** The device, of several the last one. */
  readonly #backend: Backend;
  readonly #all: readonly Backend[];

  /** Of the device of some nodes, or of devices by their names. */
  constructor(of: readonly Node[] | { readonly names: readonly string[] }) {
    this.#all = "names" in of ? of.names.map(getBackend) : [backendOf(of)];
    this.#backend = this.#all.at(-1)!;
  }

  /** Name of the device; of several that of the last one, where tokens are chosen. */
  get name(): string {
    return this.#backend.name;
  }

  /** Rows that cost as much as one. */
  get tile(): number {
    return Math.max(...this.#all.map(minTile));
  }

  /** Whether the device computes many rows in tiles, so that a few more rows cost nothing; otherwise each costs. */
  get tiled(): boolean {
    return this.tile > 1;
  }

  /** Most rows of a pass that the device computes with all digits of activations; of more it may round them to save time. */
  get maxPreciseRows(): number {
    return Math.min(...this.#all.map(maxPreciseRows));
  }

  /** Whether the device computes a tile in less time than two rows one after the other. */
  get readsTiles(): boolean {
    return this.#all.every(hasMatrixTiles);
  }

  /** Whether the device can leave out the rest of a step that it has begun. */
  get drops(): boolean {
    return this.#all.length === 1 && this.#backend.limits.drops;
  }

  /** Whether the device is likely to run many workgroups at a time. */
  get concurrent(): boolean {
    return this.#all.every(({ limits }) => limits.concurrent);
  }

  /** Most bytes of an array. */
  get maxBufferBytes(): number {
    return Math.min(...this.#all.map(({ limits }) => limits.maxBufferBytes));
  }

  /**
   * The layout of a key/value cache for one sequence of a decoder, of matrices of some formats, that the device reads fastest. Of several
   * devices it is plain unless all read another one.
   */
  kvLayout(sizes: DecoderSizes, features: DecoderFeatures, formats: readonly CodeFormat[]): KvLayout {
    const layouts = this.#all.map((backend) => kvLayoutFor(backend, sizes, features, formats));
    return layouts.find((layout) => !isBlocked(layout, sizes.headDim)) ?? layouts[0];
  }

  /**
   * Dtype of the activations of a model whose weights have `stored`. It is `stored` where matrix units multiply that, which is as fast
   * alone and up to four times as fast in batches. Otherwise it is float32.
   */
  activationDtype(stored: Dtype): Dtype {
    return this.#all.every((backend) => hasMatrixKernels(backend, stored)) ? stored : float32;
  }

  /**
   * Element type of a key/value cache for a model whose activations are `dtype`. The CPU reads the whole cache for every token, so it
   * keeps float32 rows in float16, unless VKMX_EXACT=1 asks for all digits.
   */
  kvDtype(dtype: Dtype): Dtype {
    return dtype === float32 && this.#all.every((backend) => backend.has("packed_matvec")) ? float16 : dtype;
  }
}
