"""A tiny DeepSeek V4 with the biases by which experts of images are chosen, and a prompt with two images."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tiny_models import LONG_IDS, N_VOCAB, YARN, TinyModel, weights
from tiny_zoo.streams import ALL, BIASED, CHOSEN, HASHED, LATENT, MIXED, deepseek4

FIXTURE = Path(__file__).parent / "fixtures" / "image_spans.npz"
VL = "exp_probs_b_vl.bias=E"


def seeing_model(n_vocab: int) -> TinyModel:
    """Return the model with a vocabulary of so many tokens."""
    return deepseek4(
        [
            f"{LATENT} {MIXED} {HASHED} {VL}",
            f"{LATENT} {CHOSEN} {MIXED} {BIASED} {VL}",
            f"{LATENT} {ALL} {MIXED} {BIASED} {VL}",
        ],
        attention__compress_ratios=[0, 4, 128],
        swiglu_clamp_exp=0.5,
        dims=deepseek4.keywords["dims"] | {"V": n_vocab},
        **YARN,
    )


MODEL = seeing_model(N_VOCAB)
IDS = LONG_IDS[:160]
SPANS = (range(13, 50), range(70, 94))  # longer than the window of 8 positions; the first begins within a pool
ENDS = (50, 51, 94, 100, 160)  # of the prompts whose next logits are compared


def rows(span: range) -> NDArray[np.float32]:
    """Return the embeddings in place of tokens of a span."""
    return np.asarray(weights(f"rows {span.start}", (len(span), 64)), np.float32)
