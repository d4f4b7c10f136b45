/**
 * The weights of a prompt's regions in the layouts of the kernels, which are made once and kept with the weights.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { Node } from "../../graph/node.ts";
import type { CodeFormat } from "../../graph/quantization.ts";
import {
  type Fragments,
  fragments,
  isWorthMatrices,
  type JointMatrix,
  type JointPart,
  productsUnsupportedReason,
} from "../ops/matmul/coopmat_matmul.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { rowsIn, type Value } from "../plan/value.ts";
import { options } from "../plan/options.ts";
import { prepare } from "../plan/weight_layouts.ts";
import { normWeights } from "./layouts.ts";
import type { GatedPart } from "./match/gated.ts";
import type { Joint } from "./match/joint.ts";
import type { AttentionPrologue, LayerEpilogue } from "./match/prefill.ts";
import type { PromptNorm } from "./match/prompt_mixer.ts";
import type { Matrix } from "../plan/pattern.ts";
import { type ProductFormat, productFormat, SYMMETRIC_GROUP } from "./formats.ts";
import { ropeUnsupportedReason } from "./spec.ts";
import { readMatrices, unpackMatrices } from "./unpack_codes.ts";

const NO_ROOM = "weights are not stored as arrays of their own, or there is no memory for another layout of them";

/** The part before attention, with its weights. */
export interface ReadyPrologue {
  readonly region: AttentionPrologue;
  readonly qkv: Fragments;
  /** Those of q, k and v as one. */
  readonly bias: Value | undefined;
}

/** A norm, with the weights of what reads it if they are multiplied as one. */
export interface ReadyNorm {
  readonly region: PromptNorm;
  readonly products: Fragments | undefined;
  readonly inside: ReadonlySet<Node>;
}

/** The part after attention, with its weights. */
export interface ReadyEpilogue {
  readonly region: LayerEpilogue;
  readonly o: Fragments | undefined;
  /** Of a gated part that the region computes, of all rows. */
  readonly gateUp: Fragments | undefined;
  readonly down: Fragments | undefined;
  /** Of the router of experts that it does not compute. */
  readonly router: Fragments | undefined;
  readonly inside: ReadonlySet<Node>;
}

/** The matrices of a region after attention. */
export function jointsOf({ o, feedForward }: LayerEpilogue): readonly Joint[] {
  const part = gatedPartOf(feedForward);
  const router = "router" in feedForward ? feedForward.router?.joint : undefined;
  return [part?.gateUp, o, part?.down, router].filter((found) => found !== undefined);
}

/** The part of all rows in a feed-forward part. */
export function gatedPartOf(feedForward: LayerEpilogue["feedForward"]): GatedPart | undefined {
  return "gateUp" in feedForward ? feedForward : feedForward.shared;
}

/** Why no kernels multiply matrices on this device; undefined where they do. */
export function jointUnsupportedReason(backend: Backend, { matrices }: Pick<Joint, "matrices">): string | undefined {
  return productsUnsupportedReason(backend, fragmentFormat(productFormat(matrices)));
}

/** The format of a product in fragments: they have a scale and a bias for each 16 weights if some codes are symmetric. */
export function fragmentFormat({ bits, groupSize, symmetric }: ProductFormat): CodeFormat {
  return { bits, groupSize: symmetric === 0 ? groupSize : SYMMETRIC_GROUP };
}

/** Matrices as one, with values that `leaf` gives; undefined if it has none for some. */
export function jointMatrix(
  matrices: readonly Matrix[],
  leaf: (node: Node) => Value | undefined,
  shape: Pick<JointMatrix, "columns" | "k" | "gated">,
): JointMatrix | undefined {
  const parts: JointPart[] = [];
  for (const { codes, scales, biases, rows, groupSize } of matrices) {
    const [c, s, b] = [codes, scales, biases].map((node) => {
      const value = node && leaf(node);
      return value && rowsIn(value, rows);
    });
    if (!c || !s || (biases && !b)) return undefined;
    parts.push({ codes: c, scales: s, biases: b, groupSize });
  }
  return { ...shape, ...fragmentFormat(productFormat(matrices)), parts };
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
    this.#widened = this.#unpacked(joints);
  }

  /** The codes of products that kernels read in another width; undefined if there is no room for all. */
  #unpacked(joints: readonly Joint[]): ReadonlyMap<Node, Value> | undefined {
    const served = joints.filter((joint) => jointUnsupportedReason(this.#l.backend, joint) === undefined);
    return unpackMatrices(this.#l, readMatrices(served.map(({ matrices }) => matrices)), this.#leaf);
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

  norm(region: PromptNorm): ReadyNorm {
    const { joint, out, products: nodes } = region;
    const rows = sizeOf(out.shape.slice(0, -1));
    const pays = joint &&
      (options.regions === "on" ||
        isWorthMatrices(this.#l.backend, rows, joint.columns.reduce((a, b) => a + b), joint.k));
    const products = pays ? this.#fragments(joint, false, this.#unpacked([joint])) : undefined;
    return { region, products, inside: new Set(products ? [out, ...nodes] : [out]) };
  }

  epilogue(region: LayerEpilogue): ReadyEpilogue | undefined {
    const part = gatedPartOf(region.feedForward);
    const o = region.o && this.#fragments(region.o);
    const gateUp = part && this.#fragments(part.gateUp, true);
    const down = part && this.#fragments(part.down);
    if ((region.o && !o) || (part && !(gateUp && down))) return undefined;
    const found = "router" in region.feedForward ? region.feedForward.router : undefined;
    const router = found && this.#fragments(found.joint);
    return { region, o, gateUp, down, router, inside: new Set([...region.inside, ...(router ? found.inside : [])]) };
  }

  #fragments(joint: Joint, gated = false, unpacked = this.#widened): Fragments | undefined {
    const { matrices, columns, k } = joint;
    const reason = jointUnsupportedReason(this.#l.backend, joint);
    const { bits } = productFormat(matrices);
    const widened = new Set(matrices.filter((m) => m.bits !== bits).map(({ codes }) => codes));
    const leaf = (node: Node): Value | undefined => widened.has(node) ? unpacked?.get(node) : this.#leaf(node);
    const matrix = reason === undefined ? jointMatrix(matrices, leaf, { columns, k, gated }) : undefined;
    const packed = matrix && fragments(this.#l, matrix);
    if (!packed) this.#reasons.add(reason ?? NO_ROOM);
    return matrix && packed && { matrix, packed };
  }

  /** Biases after each other, as the columns of the products that they are added to. */
  #joined(nodes: readonly Node[]): Value | undefined {
    const values = nodes.map(this.#leaf);
    return values.every((v) => v !== undefined) ? prepare(this.#l, values, normWeights(nodes))?.[0] : undefined;
  }
}
