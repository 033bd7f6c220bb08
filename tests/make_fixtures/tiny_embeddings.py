"""Make tests/fixtures/tiny_embeddings.npz: llama.cpp's embeddings and scores for the models of tests/tiny_encoders.py.

    python tests/make_fixtures/tiny_embeddings.py [NAME...]        (needs llama-cpp-python)

Without names, what is not there yet is computed. Weights, cache and attention are float32, as for tiny_logits.
"""

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_logits import quiet  # noqa: E402

from tiny_encoders import MODELS, NONE, TEXTS  # noqa: E402
from tiny_models import N_CTX, TinyModel  # noqa: E402

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
    with tempfile.TemporaryDirectory() as folder:
        path = str(tiny.write(Path(folder) / f"{name}.gguf")).encode()
        model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {name}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.embeddings = True
    rows = [of_text(name, model, params, tokens) for tokens in TEXTS]
    llama_cpp.llama_model_free(model)
    return np.concatenate(rows)


def of_text(name: str, model: Any, params: Any, tokens: list[int]) -> np.ndarray:
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
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
