"""References of prompt caches, hidden states, embeddings and perplexity by mlx-lm in float32.

    python3 tests/reference/mlx_scores.py DIR CASES.json CACHE.safetensors OUT.json

DIR is a model directory. For development: needs `pip install mlx[cpu] mlx-lm`. Called by scores.ts, which says what the cases are.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import make_prompt_cache, save_prompt_cache
from mlx_lm.perplexity import eval_ppl
from mlx_lm.utils import load_model


def hidden_states(model, ids):
    """As output_hidden_states of transformers: embeddings, each layer, the last one behind the norm."""
    h = model.model.embed_tokens(mx.array([ids]))
    mask = create_attention_mask(h, None)
    states = [h]
    for layer in model.model.layers:
        states.append(layer(states[-1], mask, None))
    states[-1] = model.model.norm(states[-1])
    assert mx.array_equal(states[-1], model.model(mx.array([ids])))
    return [np.array(s[0], dtype=np.float64) for s in states]


def pool(states, pooling, normalize):
    v = {"last": states[-1], "cls": states[0], "mean": states.mean(axis=0)}[pooling]
    return v / np.linalg.norm(v) if normalize else v


def strided(model, ids, context, stride):
    """The loop of transformers' "Perplexity of fixed-length models", with the sum over exactly the tokens that are scored."""
    losses, previous = [], 0
    for begin in range(0, len(ids), stride):
        end = min(begin + context, len(ids))
        logits = np.array(model(mx.array([ids[begin:end]]))[0], dtype=np.float64)
        for at in range(max(previous, begin + 1), end):
            row = logits[at - 1 - begin]
            top = row.max()
            losses.append(top + np.log(np.exp(row - top).sum()) - row[ids[at]])
        previous = end
        if end == len(ids):
            break
    losses = np.array(losses)
    ppl = np.exp(losses.mean())
    return float(ppl), float(ppl * losses.std(ddof=1) / np.sqrt(len(losses))), len(losses)


def flat(array):
    return [float(f"{x:.9g}") for x in np.asarray(array).ravel()]


if __name__ == "__main__":
    directory, cases, cache_file, out = sys.argv[1:]
    cases = json.loads(Path(cases).read_text())
    model, _ = load_model(Path(directory), lazy=False)
    model.set_dtype(mx.float32)

    cache = make_prompt_cache(model)
    model(mx.array([cases["prompt"]]), cache=cache)
    mx.eval([c.state for c in cache])
    save_prompt_cache(cache_file, cache, {"model": "synthetic", "tokenizer_config": "{}"})

    ids = cases["text"]
    perplexities = []
    for case in cases["perplexity"]:
        context, stride = case["context"], case.get("stride")
        if stride is None:
            whole = len(ids) // context * context
            data = mx.array(ids[:whole]).reshape(-1, context)
            ppl, err = eval_ppl(model, data, batch_size=2)
            perplexities.append([ppl, err, data.shape[0] * (context - 1)])
        else:
            perplexities.append(strided(model, ids, context, stride))
    result = {
        "hidden": [flat(s) for s in hidden_states(model, cases["hidden"])],
        "embeddings": [
            flat([pool(hidden_states(model, text)[-1], c["pooling"], c["normalize"]) for text in cases["texts"]])
            for c in cases["embed"]
        ],
        "perplexity": perplexities,
        "logits": flat(np.array(model(mx.array([[cases["next"]]]), cache=cache)[0, 0])[::64]),
    }
    Path(out).write_text(json.dumps(result) + "\n")
