/**
 * The weights of a prompt's regions in the layouts of the kernels, which are made once and kept with the weights.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { Node } from "../../graph/node.ts";
import { type Fragments, fragments, productsUnsupportedReason } from "../ops/matmul/coopmat_matmul.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { prepare } from "../plan/weight_layouts.ts";
import { normWeights } from "./layouts.ts";
import type { AttentionEpilogue, AttentionPrologue, Joint } from "./match/prefill.ts";
import { ropeUnsupportedReason, unpackedBits } from "./spec.ts";
import { unpackMatrices } from "./unpack_codes.ts";

const NO_ROOM = "weights are not stored as arrays of their own, or there is no memory for another layout of them";

/** The part before attention, with its weights. */
export interface ReadyPrologue {
  readonly region: AttentionPrologue;
  readonly qkv: Fragments;
  /** Those of q, k and v as one. */
  readonly bias: Value | undefined;
}

/** The part after attention, with its weights. */
export interface ReadyEpilogue {
  readonly region: AttentionEpilogue;
  readonly o: Fragments;
  readonly gateUp: Fragments;
  readonly down: Fragments;
}

/** Why no kernels multiply matrices on this device; undefined where they do. */
export function jointUnsupportedReason(backend: Backend, { bits, groupSize }: Joint): string | undefined {
  return productsUnsupportedReason(backend, { bits: unpackedBits(bits), groupSize });
}

/** Brings the weights of regions into the layouts of the kernels, and notes why that cannot be. */
export class PromptWeights {
  readonly #l: Lowering;
  readonly #leaf: (node: Node) => Value | undefined;
  /** Codes that stand for those of the graph; undefined if there is no room for them. */
  readonly #widened: ReadonlyMap<Node, Value> | undefined;
  readonly #reasons: Set<string>;

  constructor(
    l: Lowering,
    leaf: (node: Node) => Value | undefined,
    joints: readonly Joint[],
    reasons: Set<string>,
  ) {
    this.#l = l;
    this.#leaf = leaf;
    this.#reasons = reasons;
    const served = joints.filter((joint) => jointUnsupportedReason(l.backend, joint) === undefined);
    const matrices = served.flatMap(({ matrices, bits }) => matrices.map(({ codes }) => ({ codes, bits })));
    this.#widened = unpackMatrices(l, matrices, leaf);
  }

  prologue(region: AttentionPrologue): ReadyPrologue | undefined {
    const { ropeAngles: { form, dims }, headDim } = region;
    const unsupported = ropeUnsupportedReason(form, dims, headDim);
    const biases = [region.qBias, region.kBias, region.vBias].filter((node) => node !== undefined);
    const bias = unsupported === undefined && biases.length > 0 ? this.#joined(biases) : undefined;
    const reason = unsupported ?? (biases.length > 0 && !bias ? NO_ROOM : undefined);
    if (reason !== undefined) {
      this.#reasons.add(reason);
      return undefined;
    }
    const qkv = this.#fragments(region.qkv);
    return qkv && { region, qkv, bias };
  }

  epilogue(region: AttentionEpilogue): ReadyEpilogue | undefined {
    const o = this.#fragments(region.o);
    const gateUp = this.#fragments(region.gateUp, true);
    const down = this.#fragments(region.down);
    return o && gateUp && down && { region, o, gateUp, down };
  }

  #fragments(joint: Joint, gated = false): Fragments | undefined {
    const bits = unpackedBits(joint.bits);
    const parts = joint.matrices.map(({ codes, scales, biases }) => [
      bits === joint.bits ? this.#leaf(codes) : this.#widened?.get(codes),
      this.#leaf(scales),
      this.#leaf(biases),
    ]);
    const matrix = { ...joint, bits, parts: parts as Value[][], gated };
    const reason = jointUnsupportedReason(this.#l.backend, joint);
    const isThere = reason === undefined && parts.flat().every((value) => value !== undefined);
    const packed = isThere ? fragments(this.#l, matrix) : undefined;
    if (!packed) this.#reasons.add(reason ?? NO_ROOM);
    return packed && { matrix, packed };
  }

  /** Biases after each other, as the columns of the products that they are added to. */
  #joined(nodes: readonly Node[]): Value | undefined {
    const values = nodes.map(this.#leaf);
    return values.every((v) => v !== undefined) ? prepare(this.#l, values, normWeights(nodes))?.[0] : undefined;
  }
}
