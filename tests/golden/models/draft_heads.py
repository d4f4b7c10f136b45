"""Heads that draft tokens (multi-token prediction) of Qwen3.5 and Qwen3-Next, computed in float64.

    python3 tests/golden/models/draft_heads.py [OUT]

Writes draft_heads.json.gz beside it: for each case its model among those of mlx_lm_families.json.gz, the tensors of a head, and logits. The
definition is that of vLLM's qwen3_5_mtp.py and qwen3_next_mtp.py. For a hidden state h, which is after the model's last norm, and the token t that
came of it: x = fc([norm_e(embed(t)), norm_h(h)]), a layer of gated attention as the model's, the norm, and the model's head. The next draft
takes what that norm gives as its h.

For development: needs numpy. Shares no code with mlx-lm or vkmx.
"""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# Row numbers of the head's tensors in draws, after those of any model.
FIRST = 1000
CASES = ["Qwen3.5, bfloat16", "Qwen3.5-MoE, bfloat16", "Qwen3-Next, bfloat16"]
TOKENS = [11, 248, 402, 7, 333]
EVERY = 4


def drawn(row, shape, low, high):
    """Values of tensor number `row`, uniform in a range, with the digits of bfloat16."""
    x = np.arange(np.prod(shape), dtype=np.uint32) * np.uint32(2654435761) + np.uint32(row * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in [(16, 0x85EBCA6B), (13, 0xC2B2AE35)]:
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    values = (low + (high - low) * ((x >> np.uint32(8)) / 2**24)).astype(np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(np.float64).reshape(shape)


def head_tensors(config):
    """Names and shapes of a head's tensors, in order."""
    hidden, heads, kv, size = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    layer = "mtp.layers.0."
    rows = [("mtp.fc.weight", [hidden, 2 * hidden])]
    bias = config.get("attention_bias", False)
    for name, out, inputs in [("q", 2 * heads * size, hidden), ("k", kv * size, hidden), ("v", kv * size, hidden), ("o", hidden, heads * size)]:
        rows.append((f"{layer}self_attn.{name}_proj.weight", [out, inputs]))
        if bias:
            rows.append((f"{layer}self_attn.{name}_proj.bias", [out]))
    rows += [(f"{layer}self_attn.{name}_norm.weight", [size]) for name in ("q", "k")]
    rows += [(f"{layer}{name}_layernorm.weight", [hidden]) for name in ("input", "post_attention")]
    if has_experts(config):
        experts, inner, shared = (config[key] for key in ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"))
        rows.append((f"{layer}mlp.gate.weight", [experts, hidden]))
        stacks = [("gate", [experts, inner, hidden]), ("up", [experts, inner, hidden]), ("down", [experts, hidden, inner])]
        rows += [(f"{layer}mlp.switch_mlp.{name}_proj.weight", shape) for name, shape in stacks]
        one = [("gate", [shared, hidden]), ("up", [shared, hidden]), ("down", [hidden, shared])]
        rows += [(f"{layer}mlp.shared_expert.{name}_proj.weight", shape) for name, shape in one]
        rows.append((f"{layer}mlp.shared_expert_gate.weight", [1, hidden]))
    else:
        inner = config["intermediate_size"]
        one = [("gate", [inner, hidden]), ("up", [inner, hidden]), ("down", [hidden, inner])]
        rows += [(f"{layer}mlp.{name}_proj.weight", shape) for name, shape in one]
    rows += [(f"mtp.{name}.weight", [hidden]) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")]
    return rows


def has_experts(config):
    """Whether the head's layer has experts: as the model's first layer."""
    return config.get("num_experts", 0) > 0 and 1 % config.get("decoder_sparse_step", 1) == 0


def ranged(rows):
    """The rows with ranges that keep activations finite."""
    found = []
    for name, shape in rows:
        if len(shape) == 1:
            low, high = (-0.5, 0.5) if name.endswith(".bias") else (0.9, 1.1)
        else:
            high = (4 if name.endswith("mlp.gate.weight") else 1) * (3 / shape[-1]) ** 0.5
            low = -high
        found.append([name, "bfloat16", shape, low, high])
    return found


def norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def unit(x, path, w):
    gate = x @ w[f"{path}gate_proj.weight"].T
    return (gate * sigmoid(gate) * (x @ w[f"{path}up_proj.weight"].T)) @ w[f"{path}down_proj.weight"].T


def rotated(x, theta, dims):
    """x (heads, T, size) rotated by the positions 0, 1, …; pairs are features of the first and the second half of `dims`."""
    half = dims // 2
    angles = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attention(x, config, w):
    heads, kv, size = (config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    rope = config if config["model_type"] == "qwen3_next" else config.get("rope_parameters", {})
    theta, share = rope.get("rope_theta", 1e5), rope.get("partial_rotary_factor", 0.25)
    dims, T, path = int(size * share), len(x), "mtp.layers.0.self_attn."

    def project(name, count):
        y = x @ w[f"{path}{name}_proj.weight"].T + w.get(f"{path}{name}_proj.bias", 0)
        return y.reshape(T, count, -1).transpose(1, 0, 2)

    q, gate = np.split(project("q", heads), 2, -1)
    eps = config["rms_norm_eps"]
    q = rotated(norm(q, w[f"{path}q_norm.weight"], eps), theta, dims)
    k = rotated(norm(project("k", kv), w[f"{path}k_norm.weight"], eps), theta, dims)
    k, v = (np.repeat(y, heads // kv, 0) for y in (k, project("v", kv)))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(size)
    scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
    y = (softmax(scores) @ v) * sigmoid(gate)
    return y.transpose(1, 0, 2).reshape(T, -1) @ w[f"{path}o_proj.weight"].T + w.get(f"{path}o_proj.bias", 0)


def feed_forward(x, config, w):
    path = "mtp.layers.0.mlp."
    if not has_experts(config):
        return unit(x, path, w)
    probable = softmax(x @ w[f"{path}gate.weight"].T)
    out = np.empty_like(x)
    for t, row in enumerate(x):
        chosen = np.argsort(-probable[t], kind="stable")[: config["num_experts_per_tok"]]
        weights = probable[t, chosen]
        if config.get("norm_topk_prob", True):
            weights = weights / weights.sum()
        stacks = {name: w[f"{path}switch_mlp.{name}_proj.weight"] for name in ("gate", "up", "down")}
        out[t] = sum(
            share * unit(row, "", {f"{name}_proj.weight": stack[e] for name, stack in stacks.items()}) for share, e in zip(weights, chosen)
        )
    return out + sigmoid(x @ w[f"{path}shared_expert_gate.weight"].T) * unit(x, f"{path}shared_expert.", w)


def draft(hidden, tokens, config, w, table, head):
    eps, layer = config["rms_norm_eps"], "mtp.layers.0."
    embedded = norm(table[tokens], w["mtp.pre_fc_norm_embedding.weight"], eps)
    x = np.concatenate([embedded, norm(hidden, w["mtp.pre_fc_norm_hidden.weight"], eps)], -1) @ w["mtp.fc.weight"].T
    x = x + attention(norm(x, w[f"{layer}input_layernorm.weight"], eps), config, w)
    x = x + feed_forward(norm(x, w[f"{layer}post_attention_layernorm.weight"], eps), config, w)
    out = norm(x, w["mtp.norm.weight"], eps)
    return out, out @ head.T


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    models = json.loads(gzip.decompress((HERE / "mlx_lm_families.json.gz").read_bytes()))["models"]
    cases = []
    for name in CASES:
        model = next(one for one in models if one["name"] == name)
        config = json.loads(model["config"])
        config = config.get("text_config", config)
        rows = ranged(head_tensors(config))
        w = {row[0]: drawn(FIRST + i, *row[2:]) for i, row in enumerate(rows)}
        stored = {row[0].removeprefix("language_model."): (i, row) for i, row in enumerate(model["tensors"])}
        table, head = (drawn(stored[key][0], *stored[key][1][2:]) for key in ("model.embed_tokens.weight", "lm_head.weight"))
        hidden = drawn(FIRST - 1, [len(TOKENS), config["hidden_size"]], -2, 2)
        first, logits = draft(hidden, TOKENS, config, w, table, head)
        # A second draft, each row from what the first gave and the token after it.
        _, again = draft(first, TOKENS[1:] + [96], config, w, table, head)
        keep = [[float(f"{x:.9g}") for x in rows.reshape(-1)[::EVERY]] for rows in (logits, again)]
        cases.append({"model": name, "tensors": rows, "logits": keep})
    golden = {"first": FIRST, "every": EVERY, "tokens": TOKENS, "next": TOKENS[1:] + [96], "cases": cases}
    (out / "draft_heads.json.gz").write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))


main()
