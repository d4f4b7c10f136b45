"""Hidden states, vectors of texts and perplexities of tiny-qwen3 by mlx-lm in float32.

    python hidden_states.py ../../examples/models/tiny-qwen3 > hidden_states.json

Needs mlx, mlx-lm 0.32 and numpy. The perplexity of windows one behind the other is mlx_lm.perplexity.eval_ppl's; that of a
sliding window is computed from its logits as https://huggingface.co/docs/transformers/perplexity does.
"""

import contextlib
import json
import math
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.perplexity import eval_ppl
from mlx_lm.utils import load

TEXT = (
    "Once upon a time, there was a little girl named Nina. She lived near the library. Nina liked to swim and run. "
    "One day, Nina found a tiny door in the library. It was green and very old."
)
TEXTS = ["Once upon a time", "The sea", "Nina found a tiny door in the library. It was green and very old."]
CONTEXT, STRIDE = 16, 6

mx.set_default_device(mx.cpu)
model, tokenizer = load(sys.argv[1])
model.set_dtype(mx.float32)


def states(ids):
    """Those of the embedding, behind each layer but the last, and behind the norm."""
    x = model.model.embed_tokens(mx.array([ids]))
    found = [x]
    for layer in model.model.layers:
        x = layer(x, "causal" if len(ids) > 1 else None, None)
        found.append(x)
    found[-1] = model.model.norm(x)
    return found


def sliding(ids):
    losses, end = [], 0
    for begin in range(0, len(ids), STRIDE):
        to = min(begin + CONTEXT, len(ids))
        logits = model(mx.array([ids[begin:to]]))
        loss = nn.losses.cross_entropy(logits[:, :-1], mx.array([ids[begin + 1 : to]]), reduction="none")
        losses += np.array(loss[0])[-(to - end) :].tolist()
        end = to
        if to == len(ids):
            break
    return losses


def short(values):
    return [float(f"{x:.8g}") for x in values]


ids = tokenizer.encode(TEXT)
with contextlib.redirect_stdout(sys.stderr):
    whole = len(ids) // CONTEXT * CONTEXT
    perplexity, error = eval_ppl(model, mx.array(ids[:whole]).reshape(-1, CONTEXT), batch_size=2)
losses = sliding(ids)
vectors = [np.array(states(tokenizer.encode(text))[-1][0]) for text in TEXTS]
print(
    json.dumps(
        {
            "text": TEXT,
            "ids": ids,
            "context": CONTEXT,
            "stride": STRIDE,
            "perplexity": short([perplexity, error]),
            "sliding": {"perplexity": float(f"{math.exp(np.mean(losses)):.8g}"), "tokens": len(losses)},
            "texts": TEXTS,
            "last": [short(v[-1][::8]) for v in vectors],
            "cls": [short(v[0][::8]) for v in vectors],
            "mean": [short(v.mean(0)[::8]) for v in vectors],
            "states": [short(np.array(s)[0, -1][::16]) for s in states(ids[:9])],
        },
        separators=(",", ":"),
    )
)
