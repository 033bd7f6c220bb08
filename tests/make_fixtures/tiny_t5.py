"""Make tests/fixtures/tiny_t5.npz: llama.cpp's logits for the encoder-decoders of tests/tiny_t5.py.

    python tests/make_fixtures/tiny_t5.py        (needs llama-cpp-python)

Weights, cache and attention are float32, as for tiny_logits.
"""

import ctypes
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from tiny_logits import quiet

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_models import N_CTX, N_VOCAB, TinyModel  # noqa: E402
from tiny_t5 import DECODED, MODELS, PROMPT  # noqa: E402

OUT = TESTS / "fixtures" / "tiny_t5.npz"


def main() -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    np.savez_compressed(OUT, **{name: logits(name, model) for name, model in MODELS.items()})


def logits(name: str, tiny: TinyModel) -> np.ndarray:
    """float32 ``[len(DECODED), N_VOCAB]``."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(tiny.write(Path(folder) / f"{name}.gguf")).encode()
        model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {name}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    if llama_cpp.llama_encode(context, batch_of(PROMPT)) or llama_cpp.llama_decode(context, batch_of(DECODED)):
        raise SystemExit(f"llama.cpp cannot run {name}")
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(DECODED), N_VOCAB)).copy()
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values


def batch_of(tokens: list[int]) -> Any:
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    return batch


if __name__ == "__main__":
    main()
