"""Make tests/fixtures/image_spans.npz: llama.cpp's logits of a tiny DeepSeek V4 after prompts with images.

    python tests/make_fixtures/image_spans.py        (needs llama-cpp-python)

As libmtmd does, each image is a batch of embeddings whose attention is not causal.
"""

import ctypes
import sys
from itertools import pairwise
from pathlib import Path

import llama_cpp
import numpy as np
from tiny_logits import context_params, load

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from image_spans import ENDS, FIXTURE, IDS, MODEL, SPANS, rows  # noqa: E402
from tiny_models import N_VOCAB  # noqa: E402

WIDTH = 64


def main() -> None:
    context = llama_cpp.llama_init_from_model(load(MODEL), context_params())
    edges = sorted({0, len(IDS), *(edge for span in SPANS for edge in (span.start, span.stop))})
    logits = np.concatenate([decoded(context, range(*pair)) for pair in pairwise(edges)])
    np.savez_compressed(FIXTURE, logits=logits[np.array(ENDS) - 1])


def decoded(context: ctypes.c_void_p, positions: range) -> np.ndarray:
    """Return the logits of consecutive positions of text, or of an image."""
    is_image = positions in SPANS
    batch = llama_cpp.llama_batch_init(len(positions), WIDTH if is_image else 0, 1)
    batch.n_tokens = len(positions)
    if is_image:
        values = rows(positions)
        ctypes.memmove(batch.embd, values.ctypes.data, values.nbytes)
    for i, position in enumerate(positions):
        if not is_image:
            batch.token[i] = IDS[position]
        batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = position, 1, 0, 1
    llama_cpp.llama_set_causal_attn(context, not is_image)
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama.cpp cannot run it")
    shape = len(positions), N_VOCAB
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape).copy()


if __name__ == "__main__":
    main()
