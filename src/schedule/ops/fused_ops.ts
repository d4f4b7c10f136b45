/**
 * Fused ops: one row each, with the kernel that serves a node and the rule that dispatches it. Where there is none for its sizes, or
 * the backend lacks the kernel, the node's composite is lowered instead.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import * as k from "../../backend/kernels.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { float32 } from "../../graph/dtype.ts";
import { isCoded } from "../../graph/kv_codes.ts";
import { attrsOf, type Node, type OpName } from "../../graph/node.ts";
import { contiguousStrides, reshapeStrides, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import { matrixShape, type Value, view } from "../plan/value.ts";
import { attentionKeyVjp, attentionQueryVjp, attentionStats, vjpKernel } from "./attention_vjp.ts";
import { choiceKernel, expertChoice, expertKernel, expertSum, expertUnits } from "./experts.ts";
import { expertMixture, mixtureKernel } from "./expert_mixture.ts";
import { attention, sinkAttention } from "./matmul/attention.ts";
import { normVjp, normWeightVjp, rowThreads } from "./norm_vjp.ts";
import { appendPages, copyPages, gatherPages } from "./pages.ts";
import { randomWords } from "./random.ts";
import { causalConv, causalConvKernel, deltaKernel, gatedDelta } from "./recurrent.ts";
import type { Inputs, Rule } from "./rule.ts";
import {
  emitLogprobs,
  emitSample,
  hasLogprobsKernel,
  hasSampleKernel,
  MAX_COLS,
  samplingPush,
  settingsOf,
} from "./sampling.ts";

/** A fused op. */
export interface FusedOp {
  /** The kernel that serves a node, none if its sizes are beyond all of them. */
  kernel(node: Node, backend: Backend): KernelName | undefined;
  readonly rule: Rule;
}

const OFFSET_MODES = { none: k.OFFSET_PUSH, scalar: k.OFFSET_SCALAR, batch: k.OFFSET_BATCH } as const;

/** (B, H, T, D) strides of an array (B, …, T, D): the middle dimensions are walked as heads. */
function headsOf(l: Lowering, value: Value): Value {
  const r = value.shape.length;
  const middle = sizeOf(value.shape.slice(1, -2));
  const shape = [value.shape[0], middle, value.shape[r - 2], value.shape[r - 1]];
  const strides = reshapeStrides(value.shape, value.strides, shape);
  const v = strides ? view(value, shape, strides) : view(l.contiguous(value), shape, contiguousStrides(shape));
  return l.rows(v);
}

function rmsNorm(l: Lowering, node: Node, [x, weight]: Inputs): Value {
  const dense = l.contiguous(x, true);
  const out = l.temporary(node.shape, node.dtype);
  const push = { ...matrixShape(node.shape), eps: attrsOf(node, "rmsNorm").eps };
  l.emit("rms_norm", [dense, weight && l.contiguous(weight, true), out], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_WEIGHT: (weight?.dtype ?? float32).code,
      DTYPE_OUT: node.dtype.code,
      HAS_WEIGHT: weight ? 1 : 0,
    },
    threads: rowThreads(l, push.cols),
    push,
    workgroups: push.cols ? push.rows : 0,
  });
  return out;
}

function layerNorm(l: Lowering, node: Node, [x, ...rest]: Inputs): Value {
  const { eps, hasWeight, hasBias } = attrsOf(node, "layerNorm");
  const weight = hasWeight ? rest[0] : undefined;
  const bias = hasBias ? rest[hasWeight ? 1 : 0] : undefined;
  const out = l.temporary(node.shape, node.dtype);
  const push = { ...matrixShape(node.shape), eps };
  l.emit("layer_norm", [l.contiguous(x), weight && l.contiguous(weight), bias && l.contiguous(bias), out], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_WEIGHT: (weight?.dtype ?? float32).code,
      DTYPE_BIAS: (bias?.dtype ?? float32).code,
      DTYPE_OUT: node.dtype.code,
      HAS_WEIGHT: hasWeight ? 1 : 0,
      HAS_BIAS: hasBias ? 1 : 0,
    },
    threads: rowThreads(l, push.cols),
    push,
    workgroups: push.cols ? push.rows : 0,
  });
  return out;
}

function rope(l: Lowering, node: Node, inputs: Inputs): Value {
  const attrs = attrsOf(node, "rope");
  const x = headsOf(l, inputs[0]);
  const [batch, heads, seq, dims] = x.shape;
  const offset = attrs.offsetInput === "none" ? undefined : l.contiguous(inputs[1]);
  const freqs = attrs.hasFreqs ? l.contiguous(inputs[inputs.length - 1]) : undefined;
  const out = l.temporary(node.shape, node.dtype);
  l.emit("rope", [x, offset, freqs, out], {
    spec: {
      DTYPE: x.dtype.code,
      TRADITIONAL: attrs.traditional ? 1 : 0,
      OFFSET_MODE: OFFSET_MODES[attrs.offsetInput],
      HAS_FREQS: attrs.hasFreqs ? 1 : 0,
    },
    push: {
      batch,
      heads,
      seq,
      dims,
      rope_dims: attrs.dims,
      x_strides: x.strides.slice(0, 3),
      offset: attrs.offset,
      scale: attrs.scale,
      log2_base: Math.log2(attrs.base),
    },
    workgroups: l.groups(batch * heads * seq * (dims - attrs.dims / 2)),
  });
  return out;
}

function sample(l: Lowering, node: Node, [x, ...rest]: Inputs): Value {
  const choice = attrsOf(node, "sample");
  const out = l.temporary(node.shape, node.dtype);
  const [rows, cols] = x.shape;
  const logits = l.contiguous(x);
  const settings = choice.draws ? settingsOf(l, rest[0]) : undefined;
  const uniforms = choice.draws ? l.contiguous(rest[1]) : undefined;
  const mask = choice.masked ? l.contiguous(rest.at(-1)!) : undefined;
  if (hasSampleKernel(l.backend, cols)) {
    emitSample(l, choice, { logits, settings, mask }, uniforms, out);
    return out;
  }
  l.emit("sample", [logits, settings, uniforms, out, mask], {
    spec: { DTYPE_IN: logits.dtype.code },
    push: samplingPush(rows, cols, 0, settings),
    workgroups: rows,
  });
  return out;
}

function logprobs(l: Lowering, node: Node, inputs: Inputs): Value {
  const out = l.temporary(node.shape, node.dtype);
  const [logits, tokens, mask] = inputs.map((input) => l.contiguous(input));
  emitLogprobs(l, attrsOf(node, "logprobs").top, { logits, mask }, tokens, out);
  return out;
}

/** The kernel of attention, if it knows the sizes of heads. */
function attentionKernel({ inputs: [q, , v] }: Node): KernelName | undefined {
  return q.shape[3] <= 256 && v.shape[3] <= 256 ? "attention" : undefined;
}

/** All fused ops. */
export const FUSED_OPS = {
  rmsNorm: { kernel: () => "rms_norm", rule: rmsNorm },
  layerNorm: { kernel: () => "layer_norm", rule: layerNorm },
  normVjp: { kernel: () => "norm_vjp", rule: normVjp },
  normWeightVjp: { kernel: () => "norm_weight_vjp", rule: normWeightVjp },
  rope: { kernel: () => "rope", rule: rope },
  attention: { kernel: attentionKernel, rule: attention },
  sinkAttention: { kernel: attentionKernel, rule: sinkAttention },
  attentionStats: { kernel: vjpKernel("attention_stats"), rule: attentionStats },
  attentionQueryVjp: { kernel: vjpKernel("attention_vjp_queries"), rule: attentionQueryVjp },
  attentionKeyVjp: { kernel: vjpKernel("attention_vjp_keys"), rule: attentionKeyVjp },
  sample: {
    kernel({ inputs: [logits] }, backend) {
      const cols = logits.shape[1];
      return hasSampleKernel(backend, cols) ? "sample_draw" : cols <= MAX_COLS ? "sample" : undefined;
    },
    rule: sample,
  },
  logprobs: {
    kernel(node, backend) {
      const cols = node.inputs[0].shape[1];
      return hasLogprobsKernel(backend, cols, attrsOf(node, "logprobs").top) ? "logprobs" : undefined;
    },
    rule: logprobs,
  },
  expertChoice: { kernel: choiceKernel, rule: expertChoice },
  expertUnits: { kernel: expertKernel("expert_units"), rule: expertUnits },
  expertSum: { kernel: expertKernel("expert_sum"), rule: expertSum },
  expertMixture: { kernel: mixtureKernel, rule: expertMixture },
  gatedDelta: { kernel: deltaKernel, rule: gatedDelta },
  causalConv: { kernel: causalConvKernel, rule: causalConv },
  appendPages: { kernel: ({ dtype }) => isCoded(dtype) ? "append_codes" : "append_pages", rule: appendPages },
  copyPages: { kernel: () => "scatter", rule: copyPages },
  gatherPages: { kernel: ({ inputs: [{ dtype }] }) => isCoded(dtype) ? "gather_codes" : "gather", rule: gatherPages },
  randomNormal: {
    kernel: () => "random_normal",
    rule: (l, node, [key]) => randomWords(l, "random_normal", node, key),
  },
} as const satisfies { readonly [K in OpName]?: FusedOp };

/** Names of fused ops. */
export type FusedName = keyof typeof FUSED_OPS;

/** The rules of fused ops. */
export const FUSED_RULES = Object.fromEntries(
  Object.entries(FUSED_OPS).map(([name, { rule }]) => [name, rule]),
) as { readonly [K in FusedName]: Rule };
