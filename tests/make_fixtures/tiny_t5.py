"""Make tests/fixtures/tiny_t5.npz: llama.cpp's logits for the encoder-decoders of tests/tiny_t5.py.

    python tests/make_fixtures/tiny_t5.py        (needs llama-cpp-python)

Weights, cache and attention are float32, as for tiny_logits.
"""

import ctypes
import sys
from pathlib import Path

import llama_cpp
import numpy as np
from tiny_logits import batch_of, context_params, load, quiet

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_models import N_VOCAB, TinyModel  # noqa: E402
from tiny_t5 import DECODED, MODELS, PROMPT  # noqa: E402

OUT = TESTS / "fixtures" / "tiny_t5.npz"


def main() -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    np.savez_compressed(OUT, **{name: logits(name, model) for name, model in MODELS.items()})


def logits(name: str, tiny: TinyModel) -> np.ndarray:
    """float32 ``[len(DECODED), N_VOCAB]``."""
    model = load(tiny)
    context = llama_cpp.llama_init_from_model(model, context_params())
    if llama_cpp.llama_encode(context, batch_of(PROMPT)) or llama_cpp.llama_decode(context, batch_of(DECODED)):
        raise SystemExit(f"llama.cpp cannot run {name}")
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(DECODED), N_VOCAB)).copy()
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values


if __name__ == "__main__":
    main()
