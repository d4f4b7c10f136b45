/**
 * Qwen3.5 and Qwen3-Next in GGUF: gated delta nets and gated attention. A file of Qwen3-Next has two matrices for a net: that of queries, keys
 * and values, and that of gates. Qwen3.5 has the same ones in mlx-lm, so the file is read as that.
 *
 * @module
 */

import * as mx from "../../../array/mod.ts";
import type { Tensor } from "../../../array/mod.ts";
import { quoted } from "../../../graph/error.ts";
import type { CommonFields, Facts } from "./config.ts";
import type { GgufFamily, TensorForm } from "./family.ts";
import type { ModuleNames } from "./names.ts";

const NAMES: ModuleNames = {
  attn_qkv: "linear_attn.in_proj_qkv",
  attn_gate: "linear_attn.in_proj_z",
  ssm_conv1d: "linear_attn.conv1d",
  ssm_dt: "linear_attn.dt_bias",
  ssm_a: "linear_attn.A_log",
  ssm_norm: "linear_attn.norm",
  ssm_alpha: "linear_attn.in_proj_a",
  ssm_beta: "linear_attn.in_proj_b",
  ssm_ba: "linear_attn.in_proj_ba",
  ssm_out: "linear_attn.out_proj",
};

/** Every how many layers one has attention, where a file does not say. */
const INTERVAL = 4;

/** The heads of the nets. */
interface NetHeads {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
}

/** Throws an {@link LlmError} that names keys that are missing, or sizes that are not those of heads. */
function netHeads({ metadata, architecture, number }: Facts): NetHeads {
  const keys = ["group_count", "time_step_rank", "state_size", "inner_size"].map((key) => `ssm.${key}`);
  const missing = keys.filter((key) => !((number(key) ?? 0) > 0)).map((key) => quoted(`${architecture}.${key}`));
  if (missing.length > 0) metadata.fail(`the metadata lack ${missing.join(", ")}`);
  const [keyHeads, valueHeads, keyDim, inner] = keys.map((key) => number(key)!);
  if (valueHeads % keyHeads !== 0 || inner % valueHeads !== 0) {
    metadata.fail(`${keyHeads} heads of keys and ${valueHeads} of values with ${inner} features do not fit each other`);
  }
  return { keyHeads, valueHeads, keyDim, valueDim: inner / valueHeads };
}

/** The interval of layers with attention. Throws an {@link LlmError} if these layers follow no interval. */
function interval({ metadata, architecture, number, flags }: Facts): number {
  const every = number("full_attention_interval") ?? INTERVAL;
  const recurrent = flags("attention.recurrent_layers")?.slice(0, number("block_count"));
  const other = recurrent?.findIndex((isRecurrent, layer) => isRecurrent !== ((layer + 1) % every !== 0)) ?? -1;
  if (other >= 0) {
    const key = quoted(`${architecture}.attention.recurrent_layers`);
    metadata.fail(
      `${key} differs in layer ${other} from attention in each layer ${every}, which is not supported here`,
    );
  }
  return every;
}

function fields(facts: Facts, { head_dim, rope_theta, rope_scaling }: CommonFields): Record<string, unknown> {
  const { number } = facts;
  const { keyHeads, valueHeads, keyDim, valueDim } = netHeads(facts);
  return {
    full_attention_interval: interval(facts),
    linear_num_key_heads: keyHeads,
    linear_num_value_heads: valueHeads,
    linear_key_head_dim: keyDim,
    linear_value_head_dim: valueDim,
    linear_conv_kernel_dim: number("ssm.conv_kernel"),
    rope_theta: undefined,
    rope_scaling: undefined,
    rope_parameters: {
      rope_type: "default",
      ...rope_scaling,
      rope_theta,
      partial_rotary_factor: (number("rope.dimension_count") ?? head_dim) / head_dim,
    },
    ...((number("expert_count") ?? 0) > 0 && {
      num_experts: number("expert_count"),
      moe_intermediate_size: number("expert_feed_forward_length"),
      shared_expert_intermediate_size: number("expert_shared_feed_forward_length") ??
        facts.tensors.get("blk.0.ffn_up_shexp.weight")?.shape[0],
      norm_topk_prob: true,
    }),
  };
}

/** The logarithm of what a file has as −exp of it. */
function logOfNegative(x: Tensor): Tensor {
  return mx.log(mx.negative(x.astype(mx.float32)));
}

/** The forms of Qwen3.5, whose heads of values are in ggml's order: the first ones of all heads of keys, then the second ones. */
function tiledForms(facts: Facts): TensorForm[] {
  const { keyHeads, valueHeads, keyDim } = netHeads(facts);
  const grouped = (x: Tensor, axis: number): Tensor => {
    const { shape } = x;
    if (shape[axis] % valueHeads !== 0) {
      facts.metadata.fail(
        `groups of codes cross the ${valueHeads} heads of values: take a file of another type`,
        "weights",
      );
    }
    const split = [valueHeads / keyHeads, keyHeads, shape[axis] / valueHeads];
    const parts = x.reshape(...shape.slice(0, axis), ...split, ...shape.slice(axis + 1));
    return parts.swapaxes(axis, axis + 1).reshape(...shape);
  };
  const rows = (x: Tensor): Tensor => grouped(x, 0);
  return [
    {
      of: /\.linear_attn\.(in_proj_qkv|conv1d)$/,
      make: (x) => {
        const [kept, values] = mx.split(x, [2 * keyHeads * keyDim], 0);
        return mx.concatenate([kept, rows(values)], 0);
      },
    },
    { of: /\.linear_attn\.(in_proj_[zab]|dt_bias)$/, make: rows },
    { of: /\.linear_attn\.A_log$/, make: (x) => logOfNegative(rows(x)) },
    { of: /\.linear_attn\.out_proj$/, make: (x) => grouped(x, x.ndim - 1) },
  ];
}

/** The forms of Qwen3-Next: β and what the decay follows from are rows of one matrix, key head by key head. */
function joinedForms(facts: Facts): TensorForm[] {
  const { keyHeads } = netHeads(facts);
  return [
    { of: /\.linear_attn\.A_log$/, make: logOfNegative },
    {
      of: /\.linear_attn\.in_proj_ba$/,
      make: (x) => {
        const [rows, ...rest] = x.shape;
        const halves = mx.split(x.reshape(keyHeads, 2, -1, ...rest), 2, 1);
        const [beta, alpha] = halves.map((half) => half.reshape(rows / 2, ...rest));
        return { in_proj_b: beta, in_proj_a: alpha };
      },
    },
  ];
}

/** Qwen3.5 with dense feed-forward parts. */
export const QWEN35: GgufFamily = {
  modelType: "qwen3_5",
  rotatesPart: true,
  names: NAMES,
  fields,
  forms: tiledForms,
};

/** Qwen3.5 with experts. */
export const QWEN35_MOE: GgufFamily = { ...QWEN35, modelType: "qwen3_5_moe" };

/** Qwen3-Next. */
export const QWEN3_NEXT: GgufFamily = { ...QWEN35_MOE, forms: joinedForms };
