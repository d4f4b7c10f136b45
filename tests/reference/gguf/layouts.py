"""How llama.cpp's converter lays out the tensors of a model, and the metadata of the families with layers of several kinds.

The rows of conversion/{qwen,gemma,deepseek,glm}.py in llama.cpp, which is part of the source package of llama-cpp-python 0.3.36.
"""

import re
from dataclasses import dataclass

import gguf
import numpy as np

PAIRED = {"granite", "granitemoe", "granitemoehybrid", "llama", "mistral", "ministral3", "mixtral", "smollm3"}
HYBRID = {"qwen3_5", "qwen3_5_moe", "qwen3_next"}
# Names that the package gguf has no mapping for, by the end of mlx-lm's.
NAMES = {
    "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "self_attn.embed_q.weight": "attn_k_b.weight",
    "self_attn.unembed_out.weight": "attn_v_b.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "layer_scalar": "layer_output_scale.weight",
}


@dataclass
class Layout:
    """A tensor of a file: rows of tensors of a model, one after the other, of which some are taken in an order, as are columns."""

    name: str
    of: list
    shape: list
    rows: list = None
    columns: list = None
    added: float = 0

    def stored(self, tensors):
        """The values of the file."""
        flat = np.concatenate([flattened(tensors[name]) for name in self.of])
        flat = flat if self.rows is None else flat[self.rows]
        flat = flat if self.columns is None else flat[:, self.columns]
        return (flat + np.float32(self.added)).astype(np.float32).reshape(self.shape)

    def restored(self, values, tensors):
        """Puts values of the file into tensors of the model."""
        parts = [flattened(tensors[name]) for name in self.of]
        whole = np.concatenate(parts)
        rows = np.arange(len(whole)) if self.rows is None else np.array(self.rows)
        columns = np.arange(whole.shape[1]) if self.columns is None else np.array(self.columns)
        whole[np.ix_(rows, columns)] = values.reshape(len(rows), len(columns))
        for part, name in zip(np.split(whole, np.cumsum([len(part) for part in parts])[:-1]), self.of):
            tensors[name] = part.reshape(tensors[name].shape)


def flattened(x):
    """Rows of the last axis; a vector has rows of one, and a filter those of a channel."""
    if x.ndim == 3 and x.shape[2] == 1:
        x = x[:, :, 0]
    return x.reshape(-1, x.shape[-1] if x.ndim > 1 else 1)


def tiled(heads, each, size):
    """The places of `each` rows of `heads` key heads in the order of ggml: all first heads, then all second ones."""
    return [int(i) for i in np.arange(heads * each * size).reshape(heads, each, size).swapaxes(0, 1).reshape(-1)]


def paired(rows, heads):
    """The places of rows of each head where those of its halves take turns."""
    return [int(i) for i in np.arange(rows).reshape(heads, 2, rows // heads // 2).swapaxes(1, 2).reshape(-1)]


def layer_of(name):
    return re.search(r"layers.(\d+)", name)[1]


def makers_name(name):
    """The name that the package gguf knows."""
    name = re.sub(r"mlp\.switch_mlp\.", "mlp.experts.", name.removeprefix("language_model.")).replace("experts.switch_glu", "experts")
    for ours, theirs in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
        name = re.sub(rf"model\.(layers\.\d+)\.block_sparse_moe\.switch_mlp\.{ours}", rf"\1.feed_forward.experts.{theirs}", name)
    for ours, theirs in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
        name = re.sub(rf"model\.(layers\.\d+)\.feed_forward\.switch_mlp\.{ours}", rf"\1.feed_forward.experts.{theirs}", name)
        name = re.sub(rf"(\.feed_forward)\.{ours}", rf"\1.{theirs}", name)
    return name + ".weight" if name.endswith("sinks") else name + ".bias" if name.endswith("expert_bias") else name


def stored_name(name, names):
    """llama.cpp's name of a tensor of mlx-lm."""
    for end, own in NAMES.items():
        if name.endswith("." + end):
            return f"blk.{layer_of(name)}.{own}"
    return names.get_name(makers_name(name), try_suffixes=(".weight", ".bias"))


def layouts(config, shapes, names):
    """The tensors of a model's file, of those of mlx-lm by name with their shapes."""
    kind = config["model_type"]
    for name, shape in shapes.items():
        plain = Layout(stored_name(name, names), [name], shape[:2] if name.endswith("conv1d.weight") or name.endswith(".conv.conv.weight") else shape)
        if kind in PAIRED and (match := re.search(r"\.([qk])_proj\.", name)):
            plain.rows = paired(shape[0], config["num_attention_heads" if match[1] == "q" else "num_key_value_heads"])
        if kind.startswith("gemma") and kind != "gemma4_text" and name.endswith("norm.weight"):
            plain.added = 1
        if kind in HYBRID and ".linear_attn." in name:
            yield from of_delta_net(config, plain, name, shape)
        elif name.endswith("switch_glu.gate_proj.weight"):
            up = name.replace("gate_proj", "up_proj")
            experts, size, hidden = shape
            rows = np.arange(2 * experts * size).reshape(2, experts, size).swapaxes(0, 1).reshape(-1)
            stored = plain.name if plain.name else f"blk.{layer_of(name)}.ffn_gate_up_exps.weight"
            yield Layout(stored, [name, up], [experts, 2 * size, hidden], [int(i) for i in rows])
        elif not name.endswith("switch_glu.up_proj.weight"):
            yield plain


def of_delta_net(config, plain, name, shape):
    """The tensors of a gated delta net: heads of values are tiled in Qwen3.5, and Qwen3-Next has a matrix for queries, keys and values."""
    heads, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size, width, each = config["linear_key_head_dim"], config["linear_value_head_dim"], values // heads
    module = name.split(".linear_attn.")[1].removesuffix(".weight")
    if config["model_type"] == "qwen3_next":
        if module == "in_proj_qkvz":
            layer = layer_of(name)
            places = np.arange(shape[0]).reshape(heads, -1)
            parts = np.split(places, [size, 2 * size, 2 * size + each * width], axis=1)
            qkv = [int(i) for part in parts[:3] for i in part.reshape(-1)]
            gate = [int(i) for i in parts[3].reshape(-1)]
            yield Layout(f"blk.{layer}.attn_qkv.weight", [name], [len(qkv), shape[1]], qkv)
            yield Layout(f"blk.{layer}.attn_gate.weight", [name], [len(gate), shape[1]], gate)
        else:
            yield plain
        return
    kept = 2 * heads * size
    if module in ("in_proj_qkv", "conv1d"):
        plain.rows = [*range(kept), *(kept + i for i in tiled(heads, each, width))]
    elif module == "in_proj_z":
        plain.rows = tiled(heads, each, width)
    elif module in ("in_proj_a", "in_proj_b", "A_log", "dt_bias"):
        plain.rows = tiled(heads, each, 1)
    elif module == "out_proj":
        plain.columns = tiled(heads, each, width)
    yield plain


def write_hybrid(writer, config):
    """Metadata of Qwen3-Next and Qwen3.5."""
    rope = config.get("rope_parameters", config)
    arch = {"qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next"}[config["model_type"]]
    layers, interval = config["num_hidden_layers"], config["full_attention_interval"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    if config["model_type"] != "qwen3_next":  # newer files have both
        writer.add_array(f"{arch}.attention.recurrent_layers", [(i + 1) % interval != 0 for i in range(layers)])
        writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_full_attention_interval(interval)
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))


def write_gemma4(writer, config, sources):
    """Metadata of Gemma 4, and the factors that leave pairs of the layers without a window as they are."""
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    slides = [(i + 1) % config["sliding_window_pattern"] != 0 for i in range(layers)]
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(slides)
    whole, size = config["global_head_dim"], config["head_dim"]
    writer.add_key_length(whole)
    writer.add_value_length(whole)
    writer.add_key_length_swa(size)
    writer.add_value_length_swa(size)
    if config.get("use_double_wide_mlp", True):
        wide = config["intermediate_size"]
        writer.add_feed_forward_length([wide if i < layers - shared else 2 * wide for i in range(layers)])
    if full := config.get("num_global_key_value_heads"):
        writer.add_head_count_kv([config["num_key_value_heads"] if slides_ else full for slides_ in slides])
    writer.add_rope_dimension_count(whole)
    writer.add_rope_dimension_count_swa(size)
    turned = int(whole * rope["full_attention"]["partial_rotary_factor"] / 2)
    factors = [1.0] * turned + [1e30] * (whole // 2 - turned)
    writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    sources.append(["rope_freqs.weight", "F32", factors])


def write_latent(writer, config):
    """Metadata of GLM-4.7-Flash, which is a "deepseek2"."""
    rank, turned, plain = config["kv_lora_rank"], config["qk_rope_head_dim"], config["qk_nope_head_dim"]
    writer.add_head_count_kv(1)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + turned)
    writer.add_value_length(rank)
    writer.add_key_length_mla(plain + turned)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config.get("scoring_func"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)
    writer.add_rope_dimension_count(turned)
    if scaling := config.get("rope_scaling"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])
