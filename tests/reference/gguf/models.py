"""Small models in GGUF as llama.cpp's converter writes them, and what mlx-lm computes with their weights.

    python3 tests/reference/gguf/models.py [OUT]

Writes golden/models/gguf_models.json.gz and gguf_models.f32. The first has, for each model, the header of its file, the SHA-256 of the whole
file, and for each tensor its type and where its values come from, so that a test can write the same file. The package gguf writes the files
and names the tensors. The second has mlx-lm's logits in float32, as mlx_lm_families.py keeps them: of the weights that the package gguf
reads from the file.

For development: needs `pip install gguf mlx[cpu] mlx-lm==0.32.2 numpy`.
"""

import base64
import gzip
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

sys.path.append(str(Path(__file__).parent.parent))
import mlx_lm_families as families
from layouts import HYBRID, layouts, write_gemma4, write_hybrid, write_latent

GOLDEN = Path(__file__).parent.parent.parent / "golden"
ARCH = {
    "gemma2": "GEMMA2",
    "gemma3_text": "GEMMA3",
    "gemma4_text": "GEMMA4",
    "gemma": "GEMMA",
    "glm4_moe_lite": "DEEPSEEK2",
    "gpt_oss": "GPT_OSS",
    "granite": "GRANITE",
    "granitemoehybrid": "GRANITE",
    "granitemoe": "GRANITE_MOE",
    "lfm2": "LFM2",
    "lfm2_moe": "LFM2MOE",
    "llama": "LLAMA",
    "mistral": "LLAMA",
    "ministral3": "MISTRAL3",
    "mixtral": "LLAMA",
    "olmo2": "OLMO2",
    "olmo3": "OLMO2",
    "phi3": "PHI3",
    "qwen2": "QWEN2",
    "qwen2_moe": "QWEN2MOE",
    "qwen3": "QWEN3",
    "qwen3_5": "QWEN35",
    "qwen3_5_moe": "QWEN35MOE",
    "qwen3_moe": "QWEN3MOE",
    "qwen3_next": "QWEN3NEXT",
    "smollm3": "SMOLLM3",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# Of families whose configs GGUF cannot hold, with what it can hold.
DENSE = [
    ("SmolLM3, bfloat16", {}),
    ("Granite, bfloat16", {}),
    ("Phi-3 with factors of wavelengths, bfloat16", {}),
    ("Phi-3, bfloat16", {}),
    ("OLMo 2, bfloat16", {}),
    ("OLMo 3, bfloat16", {}),
    ("Mistral with a window that no layer has, bfloat16", {}),
    ("Mistral with a window that no layer has, bfloat16", {"rope_scaling": LLAMA3}),
    ("Ministral 3, bfloat16", {"layer_types": None, "sliding_window": None, "mscale": 1.0}),
    ("Qwen2 with use_sliding_window, bfloat16", {}),
    ("Qwen3 with use_sliding_window, bfloat16", {}),
    ("Mixtral, bfloat16", {}),
    ("Qwen2-MoE, bfloat16", {}),
    ("Qwen3-MoE, bfloat16", {"norm_topk_prob": True}),
    ("Gemma, bfloat16", {}),
    ("Gemma 2, bfloat16", {"query_pre_attn_scalar": 32}),
    ("Gemma 3 text, bfloat16", {"query_pre_attn_scalar": 32}),
    ("Gemma 3 with a head and a stretched base, bfloat16", {"query_pre_attn_scalar": 32}),
    ("gpt-oss, bfloat16", {}),
    ("GraniteMoE, bfloat16", {}),
    ("LFM2, bfloat16", {}),
    ("LFM2-MoE, bfloat16", {"routed_scaling_factor": 1.0}),
]
DELTA = {**families.BASE, **families.DELTA, "linear_value_head_dim": 32, "linear_num_value_heads": 6, "rope_parameters": families.DELTA_ROPE}
GEMMA4 = {**families.BASE, **families.GEMMA4, "num_kv_shared_layers": 0}
GEMMA4_ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 5000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 500.0, "rope_type": "default"},
}
GEMMA4_EXPERTS = {
    **GEMMA4,
    "num_hidden_layers": 3,
    "hidden_size_per_layer_input": 0,
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "final_logit_softcapping": None,
    "rope_parameters": {**GEMMA4_ROPE, "full_attention": {**GEMMA4_ROPE["full_attention"], "partial_rotary_factor": 0.5}},
}
GLM = {
    **families.BASE,
    **families.GLM4_MOE_LITE,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.8,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
SPREAD4 = {"outer": 0.75, "norm": [0.4, 0.6], "heads": [0.3, 0.5]}
# Families with layers of several kinds, with the ranges of their values.
KINDS = [
    ("Qwen3.5", {"model_type": "qwen3_5", **DELTA}, ["BF16"], {}),
    ("Qwen3.5-MoE", {"model_type": "qwen3_5_moe", **DELTA, **families.SHARED, "linear_num_key_heads": 3}, ["BF16"], {}),
    (
        "Qwen3-Next",
        {
            "model_type": "qwen3_next",
            **DELTA,
            **families.SHARED,
            "rope_parameters": None,
            "partial_rotary_factor": 0.5,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        },
        ["BF16"],
        {},
    ),
    (
        "Gemma 4 with keys and values that layers share",
        {"model_type": "gemma4_text", **GEMMA4, "num_kv_shared_layers": 2, "rope_parameters": GEMMA4_ROPE},
        ["BF16"],
        {**SPREAD4, "outer": 0.5},
    ),
    ("Gemma 4 with experts", {"model_type": "gemma4_text", **GEMMA4_EXPERTS}, ["BF16"], SPREAD4),
    ("GLM-4.7-Flash", {"model_type": "glm4_moe_lite", **GLM, "n_group": 4, "topk_group": 2}, ["BF16"], {"router": 1, "outer": 2}),
    (
        "GLM-4.7-Flash with stretched positions",
        {
            "model_type": "glm4_moe_lite",
            **GLM,
            "q_lora_rank": None,
            "scoring_func": "sigmoid",
            "norm_topk_prob": False,
            "routed_scaling_factor": 0.8,
            "first_k_dense_replace": 0,
            "rope_scaling": {**families.YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
        ["BF16"],
        {"router": 1},
    ),
    (
        "Qwen3.5, Q4_K and others",
        {
            "model_type": "qwen3_5",
            **DELTA,
            **families.WIDE,
            "intermediate_size": 512,
            "head_dim": 64,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
        },
        ["Q4_K", "Q6_K", "Q8_0", "Q3_K", "Q5_K"],
        {},
    ),
    ("Gemma 4 with experts, Q8_0", {"model_type": "gemma4_text", **GEMMA4_EXPERTS}, ["Q8_0"], SPREAD4),
    (
        "Granite 4 without positions",
        next(case["config"] for case in families.CASES if case["name"] == "Granite 4 without positions, bfloat16"),
        ["BF16"],
        {},
    ),
    ("GLM-4.7-Flash, Q8_0 and Q4_0", {"model_type": "glm4_moe_lite", **GLM}, ["Q8_0", "Q4_0"], {"router": 1, "outer": 2}),
]
WIDE = {**families.BASE, "hidden_size": 256, "intermediate_size": 512}
ALL = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "F16", "F32", "BF16"]
QUANTIZED = [
    ("Qwen3 of all types", {"model_type": "qwen3", **WIDE, "head_dim": 64, "num_hidden_layers": 3}, ALL),
    ("Llama, Q4_K and Q6_K", {"model_type": "llama", **WIDE, "tie_word_embeddings": False}, ["Q4_K", "Q4_K", "Q4_K", "Q6_K"]),
    ("Llama, Q8_0", {"model_type": "llama", **families.BASE}, ["Q8_0"]),
    ("Gemma 3, Q4_0", {"model_type": "gemma3_text", **families.BASE, **families.GEMMA3, "query_pre_attn_scalar": 32}, ["Q4_0"]),
]
# The exponents of the 16-bit floats of blocks, and where they are: weights are about as large as those of a trained model.
SCALES = {
    "Q4_0": [(0, -7)],
    "Q4_1": [(0, -7), (2, -4)],
    "Q5_0": [(0, -8)],
    "Q5_1": [(0, -8), (2, -4)],
    "Q8_0": [(0, -11)],
    "Q2_K": [(80, -8), (82, -7)],
    "Q3_K": [(108, -10)],
    "Q4_K": [(0, -13), (2, -10)],
    "Q5_K": [(0, -14), (2, -10)],
    "Q6_K": [(208, -14)],
    "IQ4_NL": [(0, -11)],
    "MXFP4": [],
}
# Minima that are added, not taken away.
NEGATIVE = {"Q4_1": 2, "Q5_1": 2}


def hashed(row, count):
    x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(row * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in [(16, 0x85EBCA6B), (13, 0xC2B2AE35)]:
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def blocks(row, shape, name):
    """Blocks of tensor number `row`, uint8 (…, bytes): hashed words, with 16-bit floats of one exponent as scales."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = int(np.prod(shape)) // block
    data = hashed(row, (count * size + 3) // 4).view(np.uint8)[: count * size].reshape(count, size).copy()
    for index, (at, exponent) in enumerate(SCALES[name]):
        digits = hashed(row + 1000 * (index + 1), count) & np.uint32(1023)
        half = (digits + np.uint32((exponent + 15) << 10) + np.uint32(0x8000 if NEGATIVE.get(name) == at else 0)).astype(np.uint16)
        data[:, at : at + 2] = half.reshape(-1, 1).view(np.uint8)
    if name == "MXFP4":
        data[:, 0] = 121 + (hashed(row + 1000, count) & np.uint32(1)).astype(np.uint8)
    return data.reshape(*shape[:-1], -1)


def write_metadata(writer, config, sources):
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    kind = config["model_type"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    kv_heads = config["num_key_value_heads"]
    if kind.startswith("lfm2"):
        kv_heads = [kv_heads if layer == "full_attention" else 0 for layer in config["layer_types"]]
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    if kind == "lfm2_moe":
        writer.add_leading_dense_block_count(config["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.get("norm_eps", config["rms_norm_eps"]))
    writer.add_rope_freq_base(config.get("rope_parameters", {}).get("rope_theta", config["rope_theta"]))
    if "head_dim" in config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    if config.get("position_embedding_type") == "nope":
        writer.add_rope_scaling_finetuned(False)
    if kind in HYBRID:
        write_hybrid(writer, config)
    if kind == "gemma4_text":
        write_gemma4(writer, config, sources)
    if kind == "glm4_moe_lite":
        write_latent(writer, config)
    if kind in ("gpt_oss", "olmo3", "gemma2", "gemma3_text", "phi3"):
        writer.add_sliding_window(config.get("sliding_window") or 0)
    if kind == "gemma3_text":
        writer.add_rope_freq_base_swa(config["rope_local_base_freq"])
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind.startswith("granite"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if experts := config.get("num_experts", config.get("num_local_experts", config.get("n_routed_experts"))):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.get("num_experts_per_tok", config.get("top_k_experts")))
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if kind == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    scaling = config.get("rope_scaling", config.get("rope_parameters", {}))
    rope = scaling.get("rope_type", scaling.get("type"))
    if rope in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope))
        writer.add_rope_scaling_factor(scaling["factor"])
    if rope == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    if kind == "ministral3":
        writer.add_rope_scaling_yarn_log_mul(scaling["mscale_all_dim"])
        writer.add_attn_temperature_scale(scaling["llama_4_scaling_beta"])
    if rope == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
        for name, key in (("rope_factors_long.weight", "long_factor"), ("rope_factors_short.weight", "short_factor")):
            writer.add_tensor(name, np.array(scaling[key], np.float32))
            sources.append([name, "F32", scaling[key]])
    if rope == "llama3":
        freqs = config["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        turns = scaling["original_max_position_embeddings"] * freqs / (2 * np.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = np.clip((turns - low) / (high - low), 0, 1)
        factors = (1 / (kept + (1 - kept) / scaling["factor"])).astype(np.float32)
        writer.add_tensor("rope_freqs.weight", factors)
        sources.append(["rope_freqs.weight", "F32", [float(f) for f in factors]])


def write_tokenizer(writer, tokenizer, rows):
    tokens, kinds = [f"[PAD{i}]" for i in range(rows)], [gguf.TokenType.UNUSED] * rows
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i], kinds[i] = text, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]], kinds[token["id"]] = token["content"], gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(500)
    writer.add_eos_token_id(501)
    writer.add_chat_template("{{ bos_token }}{% for message in messages %}{{ message.content }}<|eot_id|>{% endfor %}")


def model_of(config):
    model_class, args_class = _get_classes(config)
    return model_class(args_class.from_dict(json.loads(json.dumps(config))))


def model_rows(config, spread=None):
    """Rows of tensors as mlx_lm_families.py has them."""
    if spread is None:
        spread = {"norm": [-0.1, 0.1], "outer": 0.5} if config["model_type"].startswith("gemma") else {}
    parameters = tree_flatten(model_of(config).parameters())
    return [
        [name, "bfloat16", list(array.shape), *families.ranges(name, array, {}, spread)]
        for name, array in parameters
        if not (name.startswith("lm_head") and config["tie_word_embeddings"])
    ]


def logits(config, weights):
    model = model_of(config)
    if config.get("tie_word_embeddings") and config["model_type"].startswith("gemma3"):
        model.tie_word_embeddings = "lm_head.weight" not in weights
        if model.tie_word_embeddings:
            model.pop("lm_head")
    model.load_weights([(name, mx.array(value)) for name, value in weights.items()])
    model.set_dtype(mx.float32)
    cache = make_prompt_cache(model)
    rows = [families.logits_of(model, families.PROMPTS[0], cache)]
    rows += [families.logits_of(model, [token], cache) for token in families.STEPS]
    return families.kept(np.concatenate(rows), 0)


def written(folder, config, rows, types, tokenizer):
    """Writes a model; returns what a test needs, and its logits."""
    kind = config["model_type"]
    arch = gguf.MODEL_ARCH[ARCH[kind]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    sources = []
    write_metadata(writer, config, sources)
    write_tokenizer(writer, tokenizer, config["vocab_size"])
    matrices = 0
    weights = {
        name: np.array(families.drawn(row, shape, mx.bfloat16, low, high).astype(mx.float32))
        for row, (name, _, shape, low, high) in enumerate(rows)
    }
    places = {name: row for row, (name, *_) in enumerate(rows)}
    for layout in layouts(config, {name: shape for name, _, shape, *_ in rows}, names):
        name, shape = layout.of[0], layout.shape
        routers = (".gate.weight", ".router.weight", "_gate.weight", ".router.layer.weight", ".router.proj.weight")
        dense = (*routers, ".conv.conv.weight", ".conv1d.weight")
        is_matrix = name.endswith("weight") and len(shape) > 1 and not name.endswith(dense)
        type_ = types[matrices % len(types)] if is_matrix else "F32"
        matrices += is_matrix
        raw = gguf.GGMLQuantizationType[type_]
        if name.endswith("A_log"):
            data = (-np.exp(layout.stored(weights).astype(np.float64))).astype(np.float32)
            sources.append([layout.name, type_, [float(x) for x in data]])
        else:
            if type_ in SCALES:
                data = blocks(places[name], shape, type_)
                layout.restored(gguf.dequantize(data, raw), weights)
            else:
                data = layout.stored(weights)
                data = gguf.quantize(data, raw) if type_ != "F32" else data
            sources.append([layout.name, type_, layout.of, layout.shape, layout.rows, layout.columns, layout.added])
        writer.add_tensor(layout.name, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = path.read_bytes()
    start = gguf.GGUFReader(path).data_offset
    values = logits(config, weights)
    assert np.isfinite(values).all()
    case = {"config": config, "rows": rows, "tensors": sources, "sha256": hashlib.sha256(file).hexdigest()}
    return {**case, "header": base64.b64encode(file[:start]).decode()}, values


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN / "models"
    known = {m["name"]: m for m in json.loads(gzip.decompress((GOLDEN / "models/mlx_lm_families.json.gz").read_bytes()))["models"]}
    tokenizer = json.loads((GOLDEN / "tokenizers/llama_tokenizer.json").read_text())["tokenizer"]
    entries = []
    for name, change in DENSE:
        config = {k: v for k, v in {**json.loads(known[name]["config"]), **change}.items() if v is not None}
        if mscale := config.pop("mscale", None):
            config["rope_parameters"] = {**config["rope_parameters"], "mscale": mscale, "mscale_all_dim": mscale}
        suffix = " with stretched positions" if "rope_scaling" in change else ""
        entries.append((name.removesuffix(", bfloat16") + suffix + ", BF16", config, known[name]["tensors"], ["BF16"]))
    for name, config, types in QUANTIZED:
        entries.append((name, config, model_rows(config), types))
    for name, config, types, spread in KINDS:
        config = {k: v for k, v in config.items() if v is not None or k in ("q_lora_rank", "final_logit_softcapping")}
        suffix = ", BF16" if types == ["BF16"] else ""
        entries.append((name + suffix, config, model_rows(config, spread), types))
    cases, logits_ = [], []
    for name, config, rows, types in entries:
        with tempfile.TemporaryDirectory() as folder:
            case, values = written(Path(folder), config, rows, types, tokenizer)
        print(name, f"std {values.std():.2f}", file=sys.stderr)
        cases.append({"name": name, **case})
        logits_.append(values)
    text = json.dumps(cases, separators=(",", ":")).encode()
    (out / "gguf_models.json.gz").write_bytes(gzip.compress(text, mtime=0))
    np.concatenate(logits_).astype("<f4").tofile(out / "gguf_models.f32")
