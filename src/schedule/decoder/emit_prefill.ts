/**
 * Many rows through the layers of a decoder, of a prompt or one of each of several sequences: six dispatches a layer around attention.
 *
 *   add_norm   residual + parts of the product before, norm, float16
 *   product    q, k and v as one; biases, norms and rotation of heads, rows into the cache
 *   (attention)
 *   product    output projection, in parts where its depth is split
 *   add_norm
 *   product    gate and up as one, activation(gate) * up
 *   product    down projection, in parts
 *
 * The residual is float32 from the first addition on. `match/prefill.ts` finds the regions; here are their weights and dispatches.
 *
 * @module
 */

import { OFFSET_BATCH, OFFSET_PUSH, OFFSET_SCALAR } from "../../backend/kernels.ts";
import { type Dtype, float16, float32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { contiguousStrides, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { type Value, view } from "../plan/value.ts";
import { mixtureParts } from "../ops/expert_mixture.ts";
import { choiceOf } from "../ops/experts.ts";
import {
  type Fragments,
  gatedProduct,
  headsProduct,
  jointProduct,
  productParts,
} from "../ops/matmul/coopmat_matmul.ts";
import { rotatedConstant } from "./emission.ts";
import { type KvPlace, pageConstant, placePush } from "./kv_place.ts";
import { ACTIVATIONS } from "./spec.ts";
import type { RopeAngles } from "./match/layer.ts";
import type { GatedPart } from "./match/gated.ts";
import type { LayerEpilogue } from "./match/prefill.ts";
import type { OutsideSum, Router } from "./match/prompt_experts.ts";
import { writable } from "../ops/indexing.ts";
import { emitAddNorm, type PartialResidual } from "./partial_residual.ts";
import type { ReadyEpilogue, ReadyNorm, ReadyPrologue } from "./prompt_weights.ts";

/** activation(gate) * up is divided by this power of two: float16 then holds a million, and loses nothing above 0.001. */
const SHRINK = 16;
/** The name of what is emitted here. */
export const REGION = "prompt layer";

/** An epilogue that knows whether only regions read its result. */
interface LinkedEpilogue extends ReadyEpilogue {
  readonly linked: boolean;
}

/** A router of experts, and the epilogue that gives its rows. */
interface ReadyRouter {
  readonly epilogue: LinkedEpilogue;
  readonly router: Router;
  readonly weights: Fragments;
}

/** The regions of a prompt in a graph that is being lowered. */
export class Prompt {
  /** Nodes that need no lowering of their own. */
  readonly inside: ReadonlySet<Node>;
  /** The matched layers, and the reasons of the others, in words. */
  readonly explanation: string;
  readonly #l: Lowering;
  readonly #value: (node: Node) => Value;
  readonly #done: (node: Node, value: Value) => void;
  readonly #prologues = new Map<Node, ReadyPrologue>();
  readonly #norms = new Map<Node, ReadyNorm>();
  /** What reads each residual before the epilogue that changes it. */
  readonly #byResidual = new Map<Node, (ReadyPrologue | ReadyNorm)[]>();
  readonly #epilogues = new Map<Node, LinkedEpilogue>();
  /** Epilogues by the rows that something outside reads. */
  readonly #read = new Map<Node, LinkedEpilogue>();
  /** Routers by the choice that follows from their scores. */
  readonly #routers = new Map<Node, ReadyRouter>();
  /** The rows that epilogues have normalised. */
  readonly #normed = new Map<ReadyEpilogue, Value>();
  readonly #residuals = new Map<Node, PartialResidual>();
  readonly #tables = new Map<string, Value>();
  readonly #emitted = new Set<ReadyPrologue | ReadyEpilogue | ReadyNorm>();

  /** `value` gives the value of a node outside, whether its turn has come or not; `done` takes those of results. */
  constructor(
    l: Lowering,
    prologues: readonly ReadyPrologue[],
    norms: readonly ReadyNorm[],
    epilogues: readonly LinkedEpilogue[],
    explanation: string,
    value: (node: Node) => Value,
    done: (node: Node, value: Value) => void,
  ) {
    this.#l = l;
    this.#value = value;
    this.#done = done;
    this.explanation = explanation;
    for (const prologue of prologues) {
      this.#reads(prologue.region.x, prologue);
      for (const node of prologue.region.results) this.#prologues.set(node, prologue);
    }
    for (const norm of norms) {
      const { x, out, products } = norm.region;
      this.#reads(x, norm);
      for (const node of norm.products ? products : [out]) this.#norms.set(node, norm);
    }
    for (const epilogue of epilogues) {
      const { out, mixed: { node, isAttention }, feedForward } = epilogue.region;
      this.#epilogues.set(out, epilogue);
      if ("normed" in feedForward) this.#read.set(feedForward.normed, epilogue);
      if ("router" in feedForward && feedForward.router && epilogue.router) {
        this.#routers.set(feedForward.router.choice, {
          epilogue,
          router: feedForward.router,
          weights: epilogue.router,
        });
      }
      if (isAttention) l.asHalf.add(node);
    }
    const regions = [...norms, ...prologues.map(({ region }) => region), ...epilogues];
    this.inside = new Set(regions.flatMap(({ inside }) => [...inside]));
  }

  /** Emits what gives a node inside its value, unless that was done before or another node will do it. */
  emit(node: Node): void {
    const before = this.#prologues.get(node) ?? this.#norms.get(node);
    const epilogue = this.#epilogues.get(node);
    const read = this.#read.get(node);
    const router = this.#routers.get(node);
    if (before) this.#emitBefore(before);
    else if (read) this.#done(node, view(this.#emitMixerOutput(read), node.shape, contiguousStrides(node.shape)));
    else if (router) this.#emitRouter(node, router);
    else if (epilogue && !epilogue.linked) {
      this.#emitEpilogue(epilogue);
      const out = this.#l.temporary(node.shape, node.dtype);
      emitAddNorm(this.#l, this.#residual(node), out, undefined);
      this.#residuals.set(node, { value: out, own: false }); // its parts are added; others than regions read it
      this.#done(node, out);
    }
  }

  #reads(residual: Node, region: ReadyPrologue | ReadyNorm): void {
    this.#byResidual.set(residual, [...this.#byResidual.get(residual) ?? [], region]);
  }

  #once(region: ReadyPrologue | ReadyEpilogue | ReadyNorm): boolean {
    const first = !this.#emitted.has(region);
    this.#emitted.add(region);
    return first;
  }

  #plain(node: Node): Value {
    return this.#l.contiguous(this.#value(node), true);
  }

  #residual(node: Node): PartialResidual {
    const epilogue = this.#epilogues.get(node);
    if (epilogue?.linked) this.#emitEpilogue(epilogue);
    return this.#residuals.get(node) ?? { value: this.#plain(node), own: false };
  }

  #emitBefore(before: ReadyPrologue | ReadyNorm): void {
    if (!this.#once(before)) return;
    if ("qkv" in before) this.#emitPrologue(before);
    else this.#emitNorm(before);
  }

  #emitNorm({ region: { x, weight, eps, out, products }, products: joint }: ReadyNorm): void {
    const rows = sizeOf(out.shape.slice(0, -1));
    const normed = this.#norm(x, rows, weight, eps);
    if (!joint) return this.#done(out, view(normed, out.shape, contiguousStrides(out.shape)));
    const all = jointProduct(this.#l, normed, joint, rows, products[0].dtype);
    const width = all.shape[1];
    let offset = 0;
    for (const node of products) {
      const { shape } = node;
      this.#done(node, { ...all, offset, shape, strides: contiguousStrides([...shape.slice(0, -1), width]) });
      offset += shape[shape.length - 1];
    }
  }

  #emitPrologue(prologue: ReadyPrologue): void {
    const { region: r, qkv, bias } = prologue;
    const l = this.#l;
    const rows = r.batch * r.rows;
    const normed = this.#norm(r.x, rows, r.norm, r.eps);
    const [keys, values] = [r.appendKeys, r.appendValues].map((append) => {
      if (!append) return undefined;
      const cache = writable(l, append.update, this.#value(append.update.inputs[0]), true);
      this.#done(append.update, cache);
      return cache;
    });
    const place: KvPlace = r.appendKeys?.place ?? { kind: "contiguous", capacity: r.rows };
    const heads = headsProduct(l, normed, qkv, rows, {
      buffers: [
        this.#table(r.ropeAngles, r.headDim / 2, rows, r.rows),
        r.qNorm && this.#plain(r.qNorm),
        r.kNorm && this.#plain(r.kNorm),
        r.appendKeys && this.#plain(r.appendKeys.start),
        keys,
        values,
        bias,
        place.kind === "paged" ? this.#plain(place.table) : undefined,
      ],
      spec: {
        HEADS: r.heads,
        KV_HEADS: r.kvHeads,
        HEAD_DIM: r.headDim,
        DTYPE_WEIGHT: (r.kNorm ?? bias ?? normed).dtype.code,
        DTYPE_KV: (r.appendKeys?.update.dtype ?? float16).code,
        BLOCK_KEYS: r.appendKeys?.block ?? r.headDim,
        BLOCK_VALUES: r.appendValues?.block ?? r.headDim,
        KEEP: r.keepsRows ? 1 : 0,
        HEAD_NORM: r.kNorm ? 1 : 0,
        QKV_BIAS: bias ? 1 : 0,
        PER_SEQUENCE: r.ropeAngles.perSequence ? 1 : 0,
        ROPE_DIMS: rotatedConstant(r.ropeAngles.dims, r.headDim),
        ...pageConstant(place),
      },
      push: { seq: r.rows, eps: r.headEps, ...placePush(place) },
    });
    // Heads are views of the joint rows.
    const width = (r.heads + 2 * r.kvHeads) * r.headDim;
    const head = (first: number, count: number): Value => ({
      ...heads,
      offset: first * r.headDim,
      shape: [r.batch, count, r.rows, r.headDim],
      strides: [r.rows * width, r.headDim, width, 1],
    });
    if (r.queries) this.#done(r.queries, head(0, r.heads));
    this.#done(r.keys, head(r.heads, r.kvHeads));
    const { shape } = r.values;
    const strides = shape.map((_, i) => i === shape.length - 1 ? 1 : i === shape.length - 2 ? width : r.rows * width);
    this.#done(r.values, { ...heads, offset: (r.heads + r.kvHeads) * r.headDim, shape, strides });
  }

  #emitEpilogue(epilogue: ReadyEpilogue): void {
    if (!this.#once(epilogue)) return;
    const { region: r } = epilogue;
    const normed = this.#emitMixerOutput(epilogue);
    if ("sum" in r.feedForward) {
      const { shared } = r.feedForward;
      const beside = shared && {
        parts: this.#gatedParts(shared, epilogue, normed),
        score: shared.score && this.#plain(shared.score),
        scale: SHRINK * r.scales[1],
      };
      const added = this.#outsideSum(r.feedForward, r.rows);
      const { value, own } = this.#residual(r.x);
      this.#residuals.set(r.out, { value, own, ...added, beside, scale: r.scales[1] });
      return;
    }
    const { value, own } = this.#residual(r.x);
    const parts = this.#gatedParts(r.feedForward, epilogue, normed);
    this.#residuals.set(r.out, { value, own, parts, scale: SHRINK * r.scales[1] });
  }

  /** What a gated part gives for normalised rows, in parts that are to be multiplied by SHRINK. */
  #gatedParts({ activation }: GatedPart, { gateUp, down }: ReadyEpilogue, normed: Value): Value {
    const [rows] = normed.shape;
    const how = { activation: ACTIVATIONS.indexOf(activation), scale: 1 / SHRINK };
    return productParts(this.#l, gatedProduct(this.#l, normed, gateUp!, rows, how), down!, rows);
  }

  /** What experts add to the residual: the products of each, or a sum that is there. */
  #outsideSum({ sum, isMixture }: OutsideSum, rows: number): Pick<PartialResidual, "parts" | "choice"> {
    if (!isMixture) {
      const value = this.#plain(sum);
      const shape = [1, rows, value.shape[value.shape.length - 1]];
      return { parts: view(value, shape, contiguousStrides(shape)) };
    }
    const inputs = sum.inputs.map(this.#value);
    this.#l.from(sum.op, REGION);
    const { products, choice } = mixtureParts(this.#l, sum, inputs);
    this.#l.from("region", REGION);
    return { parts: products, choice };
  }

  /** Emits the scores of experts in parts, and the choice by their sums. */
  #emitRouter(node: Node, { epilogue, router, weights }: ReadyRouter): void {
    const [, ...rest] = node.inputs;
    const normed = this.#emitMixerOutput(epilogue);
    const scores = productParts(this.#l, normed, weights, epilogue.region.rows, float32);
    const added = router.bias && this.#l.contiguous(this.#value(router.bias));
    this.#done(node, choiceOf(this.#l, node, scores, rest.map(this.#value), added));
  }

  /** Emits the output projection and the norm after it, whose rows it gives. */
  #emitMixerOutput(epilogue: ReadyEpilogue): Value {
    const found = this.#normed.get(epilogue);
    if (found) return found;
    const { region: r, o } = epilogue;
    for (const before of this.#byResidual.get(r.x) ?? []) this.#emitBefore(before); // they read the residual that is changed here
    const mixed = this.#mixed(r);
    const index = r.selected && this.#plain(r.selected);
    const take = (x: Value): Value => index ? this.#rows(x, r.rows, index) : x;
    const rows = index ? sizeOf(index.shape) : r.rows;
    const { value: residual, own } = this.#residual(r.x);
    const value = take(residual);
    const given = take(mixed);
    const shape = [1, rows, value.shape[value.shape.length - 1]];
    const parts = o ? productParts(this.#l, given, o, rows) : view(given, shape, contiguousStrides(shape));
    const bias = r.oBias && this.#plain(r.oBias);
    this.#residuals.set(r.x, { value, own, parts, bias, scale: r.scales[0] });
    const dtype = "normed" in r.feedForward ? r.feedForward.dtype : float16;
    const normed = this.#norm(r.x, rows, r.norm, r.eps, dtype);
    this.#normed.set(epilogue, normed);
    return normed;
  }

  /** What the output projection reads, row by row. */
  #mixed({ mixed: { node, isAttention } }: LayerEpilogue): Value {
    if (!isAttention) return this.#plain(node);
    const [batch, heads, seq, dim] = node.shape;
    const { strides: [b, h, t, d], ...rest } = this.#value(node);
    return this.#l.contiguous({ ...rest, shape: [batch, seq, heads, dim], strides: [b, t, h, d] }, true);
  }

  /** Some of the rows of x. */
  #rows(x: Value, rows: number, index: Value): Value {
    const width = sizeOf(x.shape) / rows;
    const count = sizeOf(index.shape);
    const out = this.#l.temporary([count, width], x.dtype);
    const inner = width * x.dtype.bytes / 4;
    this.#l.emit("gather", [x, index, out], {
      spec: { ELEMENT_BYTES: 4, DTYPE_INDEX: index.dtype.code, ALONG: 0, FOURS: 0 },
      push: { outer: 1, axis: rows, inner, n: count },
      workgroups: this.#l.groups(count * inner),
    });
    return out;
  }

  /** The norm of a residual; parts that were to be added are in it from then on. */
  #norm(x: Node, rows: number, weight: Node, eps: number, dtype: Dtype = float16): Value {
    const residual = this.#residual(x);
    const { value, own, parts } = residual;
    const shape = [rows, value.shape[value.shape.length - 1]];
    const total = own || !parts ? value : this.#l.temporary(shape, float32);
    const normed = this.#l.temporary(shape, dtype);
    emitAddNorm(this.#l, residual, parts && total, { weight: this.#plain(weight), eps, normed });
    this.#residuals.set(x, { value: total, own: own || parts !== undefined });
    return normed;
  }

  /** Cosines and sines of `pairs` at the positions of `all` rows, `seq` of each sequence, made once for all layers. */
  #table(
    { dims, base, scale, factor, offset, position, perSequence, freqs }: RopeAngles,
    pairs: number,
    all: number,
    seq: number,
  ): Value {
    const rows = perSequence ? all : seq;
    const key = [pairs, dims, base, scale, factor, offset, position?.id, freqs?.id, rows, seq].join(" ");
    let table = this.#tables.get(key);
    if (!table) {
      const l = this.#l;
      table = l.temporary([rows, pairs, 2], float32);
      l.emit("rope_table", [position && this.#plain(position), freqs && this.#plain(freqs), table], {
        spec: {
          OFFSET_MODE: !position ? OFFSET_PUSH : perSequence ? OFFSET_BATCH : OFFSET_SCALAR,
          HAS_FREQS: freqs ? 1 : 0,
        },
        push: { rows, seq, pairs, rope_dims: dims, offset, scale, factor, log2_base: Math.log2(base) },
        workgroups: l.groups(rows * pairs),
      });
      this.#tables.set(key, table);
    }
    return table;
  }
}
