"""Small checkpoints of mlx-lm's families as mlx-lm saves them, and what mlx-lm computes with them.

    python3 tests/reference/mlx_lm_families.py [OUT]

Writes golden/models/mlx_lm_families.json.gz, mlx_lm_families.f32 and prompt caches of the families with recurrent state. The first has, for each checkpoint, its config.json, its tensors
(name, dtype, shape, range of the values), the tokens that greedy decoding gives, lengths of gradients, and the SHA-256 of the files that `mlx_lm.convert`
makes of a dense one in 4 bits. Values follow from the place of a tensor in the list
(see `drawn`), so that a test can write the same files. The second has logits in float32, of every row every 16th one.

For development: needs `pip install mlx[cpu] mlx-lm==0.32.2 numpy`. All parameters become float32 before logits are computed, because
mlx sums in the dtype of the operands on a CPU.
"""

import gzip
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache, save_prompt_cache
from mlx_lm.utils import _get_classes, load_model, quantize_model, save_config, save_model

VOCABULARY = 512
EVERY = 16
GREEDY = 6
PROMPTS = [[(i * 1237 + 11) % 500 for i in range(40)], [(i * 911 + 5) % 500 for i in range(13)]]
STEPS = [(i * 613 + 7) % 500 for i in range(4)]

FOUR_BITS = {"group_size": 64, "bits": 4, "mode": "affine"}
MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
NVFP4 = {"group_size": 16, "bits": 4, "mode": "nvfp4"}
BASE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
    "eos_token_id": 510,
}
WIDE = {"hidden_size": 256, "intermediate_size": 384}
WINDOWED = ["sliding_attention", "full_attention"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
QWEN3_MOE = {
    "head_dim": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": False,
}
DELTA = {
    "head_dim": 32,
    "num_hidden_layers": 3,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": False,
}
DELTA_ROPE = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25}
SHARED = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
LFM2 = {
    "norm_eps": 1e-5,
    "num_hidden_layers": 5,
    "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_multiple_of": 64,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
}
# mlx-lm has defaults for the heads of the text part.
TEXT = {name: value for name, value in BASE.items() if name not in ("num_attention_heads", "num_key_value_heads")}
GEMMA4 = {
    "head_dim": 32,
    "global_head_dim": 64,
    "num_hidden_layers": 6,
    "sliding_window": 10,
    "sliding_window_pattern": 3,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 64,
    "vocab_size_per_layer_input": VOCABULARY,
    "final_logit_softcapping": 8.0,
}
GLM4_MOE_LITE = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 64,
    "kv_lora_rank": 64,
    "q_lora_rank": 128,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 64,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
GEMMA3 = {
    "head_dim": 32,
    "num_hidden_layers": 4,
    "sliding_window": 10,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 20,
    "rope_local_base_freq": 500.0,
}


def case(name, model_type, config, formats=(None, FOUR_BITS), base=BASE, **spread):
    config = {"model_type": model_type, **base, **config}
    suffix = {None: "bfloat16", "affine": "4 bits"}
    return [
        {"name": f"{name}, {suffix.get(f and f['mode'], f and f['mode'])}", "config": config, "format": f, "spread": spread} for f in formats
    ]


CASES = [
    *case("SmolLM3", "smollm3", {"num_hidden_layers": 4}),
    *case("SmolLM3 with layers named", "smollm3", {"no_rope_layers": [0, 1]}, [None]),
    *case(
        "Granite",
        "granite",
        {
            "attention_bias": False,
            "mlp_bias": False,
            "logits_scaling": 4.0,
            "attention_multiplier": 0.15,
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.3,
        },
    ),
    *case(
        "Granite with layers that kernels compute",
        "granite",
        {
            "hidden_size": 256,
            "intermediate_size": 384,
            "attention_bias": False,
            "mlp_bias": False,
            "logits_scaling": 2.0,
            "attention_multiplier": 0.08,
            "embedding_multiplier": 4.0,
            "residual_multiplier": 0.3,
        },
        [FOUR_BITS],
    ),
    *case(
        "GraniteMoE",
        "granitemoe",
        {
            "attention_bias": False,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "logits_scaling": 4.0,
            "attention_multiplier": 0.15,
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.3,
        },
    ),
    *case(
        "Granite 4 without positions",
        "granitemoehybrid",
        {
            "attention_bias": False,
            "layer_types": ["attention"] * 2,
            "position_embedding_type": "nope",
            "shared_intermediate_size": 128,
            "logits_scaling": 4.0,
            "attention_multiplier": 0.15,
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.3,
        },
    ),
    *case(
        "Granite 4 with positions",
        "granitemoehybrid",
        {
            "attention_bias": True,
            "layer_types": ["attention"] * 2,
            "num_local_experts": 0,
            "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
            "tie_word_embeddings": False,
            "logits_scaling": 2.0,
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
        },
        [None],
        base={name: value for name, value in BASE.items() if name != "rope_theta"},
    ),
    *case(
        "Phi-3 with factors of wavelengths",
        "phi3",
        {
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 1024,
            "num_attention_heads": 2,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": [1.0 + 0.25 * i for i in range(12)],
                "short_factor": [1.0] * 12,
            },
        },
    ),
    *case("Phi-3", "phi3", {"tie_word_embeddings": False, "sliding_window": 8}, [None]),
    *case("OLMo 2", "olmo2", {}),
    *case(
        "OLMo 3",
        "olmo3",
        {"num_hidden_layers": 4, "sliding_window": 7, "rope_scaling": YARN, "tie_word_embeddings": False},
    ),
    *case("Mistral with windows", "mistral", {"layer_types": WINDOWED, "sliding_window": 9, "head_dim": 32}),
    *case("Mistral with a window that no layer has", "mistral", {"sliding_window": 9}, [None]),
    *case(
        "Ministral 3",
        "ministral3",
        {
            "layer_types": WINDOWED[::-1],
            "sliding_window": 16,
            "rope_parameters": {**YARN, "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1},
        },
    ),
    *case("Qwen2 with use_sliding_window", "qwen2", {"use_sliding_window": True, "sliding_window": 8}, [None]),
    *case(
        "Qwen3 with use_sliding_window",
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 8, "head_dim": 16},
        [None],
    ),
    *case(
        "Mixtral",
        "mixtral",
        {"num_local_experts": 6, "num_experts_per_tok": 2, "tie_word_embeddings": False, "num_hidden_layers": 3},
    ),
    *case(
        "Qwen2-MoE",
        "qwen2_moe",
        {
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 128,
            "tie_word_embeddings": False,
        },
    ),
    *case(
        "Qwen3-MoE with a dense layer",
        "qwen3_moe",
        {**QWEN3_MOE, "num_hidden_layers": 3, "mlp_only_layers": [1], "norm_topk_prob": True},
    ),
    *case(
        "Qwen3-MoE with a dense last layer",
        "qwen3_moe",
        {
            **QWEN3_MOE,
            "hidden_size": 256,
            "intermediate_size": 384,
            "head_dim": 64,
            "num_experts": 4,
            "mlp_only_layers": [1],
        },
        [FOUR_BITS],
    ),
    *case("Qwen3-MoE", "qwen3_moe", {**QWEN3_MOE, "tie_word_embeddings": False}, [None, MXFP4, NVFP4]),
    *case("Gemma", "gemma", {"head_dim": 32, "num_key_value_heads": 1}, norm=[-0.1, 0.1], outer=0.5),
    *case(
        "Gemma 2",
        "gemma2",
        {
            "hidden_size": 128,
            "head_dim": 32,
            "sliding_window": 8,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 8.0,
            "query_pre_attn_scalar": 24,
        },
        norm=[-0.1, 0.1], outer=0.5,
    ),
    *case("Gemma 3 text", "gemma3_text", GEMMA3, norm=[-0.1, 0.1], outer=0.5),
    *case(
        "Gemma 3 with a head and a stretched base",
        "gemma3_text",
        {**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "hidden_size": 96, "num_hidden_layers": 3},
        [None],
        untied=True,
        norm=[-0.1, 0.1], outer=0.5,
    ),
    *case(
        "Gemma 3, the text of a model with images",
        "gemma3",
        {"text_config": {**TEXT, **GEMMA3, "model_type": "gemma3_text"}},
        base={"vocab_size": VOCABULARY, "eos_token_id": 510},
        norm=[-0.1, 0.1], outer=0.5,
    ),
    *case("Gemma 4 with keys and values that layers share", "gemma4_text", GEMMA4, outer=0.5, norm=[0.4, 0.6], heads=[0.3, 0.5]),
    *case(
        "Gemma 4 with experts",
        "gemma4_text",
        {
            **GEMMA4,
            "num_hidden_layers": 3,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 2,
            "moe_intermediate_size": 64,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "final_logit_softcapping": None,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": 0.5,
                    "rope_theta": 5000.0,
                    "rope_type": "proportional",
                    "factor": 2.0,
                },
                "sliding_attention": {"rope_theta": 500.0, "rope_type": "default"},
            },
        },
        outer=0.75, norm=[0.4, 0.6], heads=[0.3, 0.5],
    ),
    *case(
        "Gemma 4, the text of a model with images",
        "gemma4",
        {"text_config": {**TEXT, **GEMMA4, "model_type": "gemma4_text", "use_double_wide_mlp": False}},
        base={"vocab_size": VOCABULARY, "eos_token_id": 510},
        outer=0.5, norm=[0.4, 0.6], heads=[0.3, 0.5],
    ),
    *case("GLM-4.7-Flash", "glm4_moe_lite", {**GLM4_MOE_LITE, "n_group": 4, "topk_group": 2}, router=1, outer=2),
    *case(
        "GLM-4.7-Flash with stretched positions and projected queries",
        "glm4_moe_lite",
        {
            **GLM4_MOE_LITE,
            "q_lora_rank": None,
            "n_shared_experts": None,
            "norm_topk_prob": False,
            "routed_scaling_factor": 0.8,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 2,
            "attention_bias": True,
            "rope_scaling": {**YARN, "rope_type": "deepseek_yarn", "mscale": 1.0, "mscale_all_dim": 1.0},
        },
        [None],
        router=1,
    ),
    *case(
        "gpt-oss",
        "gpt_oss",
        {
            "head_dim": 32,
            "num_hidden_layers": 4,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "sliding_window": 6,
            "rope_scaling": YARN,
            "tie_word_embeddings": False,
            "rope_theta": 150000.0,
        },
        [None, FOUR_BITS, MXFP4],
    ),
    *case("LFM2", "lfm2", {**LFM2, "conv_bias": False, "rope_parameters": {"rope_theta": 5000.0}}),
    *case(
        "LFM2 with biases and an adjusted size",
        "lfm2",
        {
            **LFM2,
            "conv_bias": True,
            "conv_L_cache": 5,
            "num_hidden_layers": 4,
            "block_auto_adjust_ff_dim": True,
            "block_ff_dim": 200,
            "layer_types": None,
            "full_attn_idxs": [0, 3],
        },
        [None],
    ),
    *case(
        "LFM2-MoE",
        "lfm2_moe",
        {
            **LFM2,
            "conv_bias": False,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 64,
            "norm_topk_prob": True,
            "use_expert_bias": True,
            "num_dense_layers": 1,
            "routed_scaling_factor": 1.5,
        },
    ),
    *case("Qwen3.5", "qwen3_5", {**DELTA, "rope_parameters": DELTA_ROPE, "attention_bias": True}),
    *case(
        "Qwen3.5, the text of a model with images",
        "qwen3_5",
        {"text_config": {**BASE, **DELTA, "rope_parameters": DELTA_ROPE, "tie_word_embeddings": True}},
        [None],
        base={"eos_token_id": 510},
    ),
    *case(
        "Qwen3.5-MoE",
        "qwen3_5_moe",
        {"text_config": {**BASE, **DELTA, **SHARED, "model_type": "qwen3_5_moe_text"}},
        base={"eos_token_id": 510},
    ),
    *case(
        "Qwen3-Next",
        "qwen3_next",
        {
            **DELTA,
            **SHARED,
            "linear_num_key_heads": 4,
            "num_experts_per_tok": 3,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [],
            "partial_rotary_factor": 0.5,
            "norm_topk_prob": False,
        },
    ),
    *case(
        "Mistral with windows and layers that kernels compute",
        "mistral",
        {**WIDE, "layer_types": WINDOWED, "sliding_window": 9},
        [FOUR_BITS],
    ),
    *case(
        "Ministral 3 with layers that kernels compute",
        "ministral3",
        {
            **WIDE,
            "layer_types": WINDOWED[::-1],
            "sliding_window": 16,
            "rope_parameters": {
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "rope_theta": 10000.0,
                "llama_4_scaling_beta": 0.3,
            },
        },
        [FOUR_BITS],
    ),
    *case(
        "Phi-3 with layers that kernels compute",
        "phi3",
        {
            **WIDE,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 1024,
            "rope_scaling": {
                "type": "longrope",
                "long_factor": [1.0 + 0.25 * i for i in range(24)],
                "short_factor": [1.0] * 24,
            },
        },
        [FOUR_BITS],
    ),
    *case(
        "Gemma 3 with layers that kernels compute",
        "gemma3_text",
        {**GEMMA3, **WIDE, "head_dim": 64, "query_pre_attn_scalar": 64},
        [FOUR_BITS],
        norm=[-0.1, 0.1],
        outer=0.5,
    ),
    *case("OLMo 2 with layers that kernels compute", "olmo2", WIDE, [FOUR_BITS]),
    *case("SmolLM3 with layers that kernels compute", "smollm3", {**WIDE, "no_rope_layers": [0, 1]}, [FOUR_BITS]),
]

# Checkpoints whose prompt caches are saved.
CACHES = ["LFM2, bfloat16", "Qwen3.5, bfloat16"]


def drawn(row, shape, dtype, low, high):
    """Values of tensor number `row`: those of a hash of their places, uniform from `low` to `high`, or whole words of codes."""
    x = np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(row * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in [(16, 0x85EBCA6B), (13, 0xC2B2AE35)]:
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    if dtype == mx.uint32:
        return mx.array(x.reshape(shape))
    values = low + (high - low) * ((x >> np.uint32(8)) / 2**24)
    if dtype == mx.uint8:
        return mx.array(np.floor(values).astype(np.uint8).reshape(shape))
    return mx.array(values.astype(np.float32).reshape(shape)).astype(dtype)


def ranges(name, array, quantization, spread):
    """The range of the values of a tensor. Weights are scaled by their fan-in, so that activations stay finite."""
    path, part = name.rsplit(".", 1)
    shape = array.shape
    outer = spread.get("outer", 3)
    router = path.endswith((".gate", ".router", ".router.proj", ".router.layer"))
    gain = outer if path.endswith(("embed_tokens", "lm_head")) else spread.get("router", 4) if router else 1
    if path.endswith(("q_norm", "k_norm")) and "heads" in spread:
        return spread["heads"]
    if part == "weight" and array.ndim == 1:
        return spread.get("norm", [0.9, 1.1])
    if array.dtype == mx.uint32:
        return [0, 0]
    if part in ("scales", "biases"):
        own = quantization.get(path)
        bits, group = [(own if isinstance(own, dict) else quantization)[key] for key in ("bits", "group_size")]
        std = gain / (shape[-1] * group) ** 0.5
        if array.dtype == mx.uint8:  # bytes of a power of 2, or of E4M3 with 3 bits after the exponent; codes spread by 2.9
            middle = 127 + np.log2(std / 2.9) if group == 32 else 8 * (7 + np.log2(std / 2.9))
            return [float(np.floor(middle)), float(np.floor(middle)) + (2 if group == 32 else 6)]
        scale = std / (2**bits / 12**0.5)
        middle = scale * (2**bits - 1) / 2
        return [0.9 * scale, 1.1 * scale] if part == "scales" else [-1.01 * middle, -0.99 * middle]
    if part == "sinks":
        return [-2, 2]
    if part == "e_score_correction_bias":
        return [-1.5, 1.5]
    if part in ("layer_scalar", "scale", "per_expert_scale"):
        return [0.5, 1.5]
    if part == "weight":
        inputs = shape[1] if shape[-1] == 1 else shape[-1]  # of a convolution the tokens that it sees
        edge = gain * (3 / inputs) ** 0.5
        return [-edge, edge]
    return [-0.5, 0.5]


def checkpoint(directory, config, form, spread):
    """Writes a checkpoint with mlx-lm's classes and savers; returns its config and the rows of its tensors."""
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(json.loads(json.dumps(config))))
    model.set_dtype(mx.bfloat16)
    language = getattr(model, "language_model", model)
    if config["model_type"].startswith("gemma3") and not spread.get("untied"):  # as sanitize() leaves it without a head
        language.tie_word_embeddings = True
        language.pop("lm_head")
    if form is not None:
        model, config = quantize_model(model, dict(config), form["group_size"], form["bits"], mode=form["mode"])
    rows, values = [], []
    for row, (name, array) in enumerate(tree_flatten(model.parameters())):
        low, high = ranges(name, array, config.get("quantization", {}), spread)
        dtype = str(array.dtype).removeprefix("mlx.core.")
        rows.append([name, dtype, list(array.shape), low, high])
        values.append((name, drawn(row, array.shape, array.dtype, low, high)))
    model.update(tree_unflatten(values))
    save_model(directory, model, donate_model=False)
    save_config(dict(config), config_path=directory / "config.json")
    saved = mx.load(str(directory / "model.safetensors"))
    assert {name for name, *_ in rows} == saved.keys(), set(saved) ^ {name for name, *_ in rows}
    return (directory / "config.json").read_text(), rows


def logits_of(model, tokens, cache):
    return np.array(model(mx.array([tokens]), cache=cache)[0], dtype="<f4")


def greedy(model, prompt):
    cache = make_prompt_cache(model)
    tokens, row = [], logits_of(model, prompt, cache)[-1]
    for _ in range(GREEDY):
        tokens.append(int(row.argmax()))
        row = logits_of(model, tokens[-1:], cache)[-1]
    return tokens


def kept(logits, first):
    """Of every row every 16th logit, from a place that changes with the row."""
    return np.concatenate([row[(first + i) % EVERY :: EVERY] for i, row in enumerate(logits)])


def save_cache(directory, file):
    """Writes the cache of the first prompt in float32."""
    model, _ = load_model(directory, lazy=False)
    model.set_dtype(mx.float32)
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPTS[0]]), cache=cache), [c.state for c in cache])
    save_prompt_cache(str(file), cache, {"model": "synthetic"})


def computed(directory):
    model, _ = load_model(directory, lazy=False)
    model.set_dtype(mx.float32)
    cache = make_prompt_cache(model)
    prompt = PROMPTS[0]
    rows = [logits_of(model, prompt, cache), *(logits_of(model, [token], cache) for token in STEPS)]
    return kept(np.concatenate(rows), 0), [greedy(model, prompt) for prompt in PROMPTS]


def gradients(directory):
    """The loss of the first prompt's tokens, and how long its gradients by small parameters are: norms, sinks and routers."""
    model, _ = load_model(directory, lazy=False)
    model.set_dtype(mx.float32)
    tokens = mx.array([PROMPTS[0]])
    loss = nn.value_and_grad(model, lambda m: nn.losses.cross_entropy(m(tokens[:, :-1]), tokens[:, 1:], reduction="mean"))
    value, grads = loss(model)
    small = ("norm.weight", "sinks", ".gate.weight", ".router.weight")
    lengths = {name: mx.linalg.norm(grad).item() for name, grad in tree_flatten(grads) if name.endswith(small)}
    return {"loss": value.item(), "lengths": lengths}


def converted(directory, form):
    """The SHA-256 of the files of a checkpoint that mlx-lm quantizes."""
    model, config = load_model(directory, lazy=False)
    model, config = quantize_model(model, config, form["group_size"], form["bits"], mode=form["mode"])
    out = directory / "quantized"
    save_model(out, model)
    save_config(config, config_path=out / "config.json")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden/models")
    models, logits = [], []
    for entry in CASES:
        with tempfile.TemporaryDirectory() as folder:
            config, rows = checkpoint(Path(folder), entry["config"], entry["format"], entry["spread"])
            values, tokens = computed(Path(folder))
            if entry["name"] in CACHES:
                save_cache(Path(folder), out / f"prompt_caches/{entry['config']['model_type']}.safetensors")
            grads = gradients(Path(folder)) if entry["format"] is None else None
            sums = converted(Path(folder), FOUR_BITS) if entry["format"] is None else None
        assert np.isfinite(values).all() and not any(510 in answer for answer in tokens), entry["name"]
        print(entry["name"], f"std {values.std():.2f}", tokens[0], file=sys.stderr)
        models.append({"name": entry["name"], "config": config, "tensors": rows, "greedy": tokens, "converted": sums, "gradients": grads})
        logits.append(values)
    golden = {"prompts": PROMPTS, "steps": STEPS, "every": EVERY, "models": models}
    text = json.dumps(golden, separators=(",", ":")).encode()
    (out / "mlx_lm_families.json.gz").write_bytes(gzip.compress(text, mtime=0))
    np.concatenate(logits).astype("<f4").tofile(out / "mlx_lm_families.f32")
