"""Make tests/fixtures/tiny_embeddings.npz: llama.cpp's embeddings and scores for the models of tests/tiny_encoders.py.

    python tests/make_fixtures/tiny_embeddings.py [NAME...]        (needs llama-cpp-python)

Without names, what is not there yet is computed. Weights, cache and attention are float32, as for tiny_logits.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_logits import batch_of, context_params, load, quiet  # noqa: E402

from tiny_encoders import MODELS, NONE, TEXTS  # noqa: E402
from tiny_models import TinyModel  # noqa: E402

OUT = TESTS / "fixtures" / "tiny_embeddings.npz"


def main(wanted: list[str]) -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    known = dict(np.load(OUT)) if OUT.exists() else {}
    for name, model in MODELS.items():
        if name in wanted or (not wanted and name not in known):
            known[name] = embeddings(name, model)
            print(name)
    np.savez_compressed(OUT, **{name: known[name] for name in MODELS if name in known})


def embeddings(name: str, tiny: TinyModel) -> np.ndarray:
    """float32 ``[len(TEXTS), n]``, or of all tokens of all texts where nothing is pooled."""
    model, params = load(tiny), context_params()
    params.embeddings = True
    rows = [of_text(name, model, params, tokens) for tokens in TEXTS]
    llama_cpp.llama_model_free(model)
    return np.concatenate(rows)


def of_text(name: str, model: Any, params: Any, tokens: list[int]) -> np.ndarray:
    context = llama_cpp.llama_init_from_model(model, params)
    batch = batch_of(tokens)
    has_decoder = llama_cpp.llama_model_has_decoder(model)
    if (llama_cpp.llama_decode if has_decoder else llama_cpp.llama_encode)(context, batch):
        raise SystemExit(f"llama.cpp cannot run {name}")
    pooling = llama_cpp.llama_pooling_type(context)
    n = llama_cpp.llama_model_n_embd_out(model)
    if pooling == NONE:
        values = np.ctypeslib.as_array(llama_cpp.llama_get_embeddings(context), (len(tokens), n)).copy()
    else:
        n = llama_cpp.llama_model_n_cls_out(model) if pooling == llama_cpp.LLAMA_POOLING_TYPE_RANK else n
        values = np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(context, 0), (1, n)).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return values


if __name__ == "__main__":
    main(sys.argv[1:])
