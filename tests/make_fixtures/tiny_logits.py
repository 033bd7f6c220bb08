"""Make tests/fixtures/tiny_logits.npz: llama.cpp's logits for the tiny models.

    python tests/make_fixtures/tiny_logits.py [NAME...]        (needs llama-cpp-python)

Every file has float32 weights, and llama.cpp computes with a float32 cache and without flash attention, which
would round to float16.
"""

import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_models import IDS, N_CTX, N_VOCAB  # noqa: E402
from tiny_zoo import ZOO  # noqa: E402

OUT = TESTS / "fixtures" / "tiny_logits.npz"


def main(names: list[str]) -> None:
    llama_cpp.llama_backend_init()
    known = dict(np.load(OUT)) if names and OUT.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or ZOO:
            known[name] = logits(ZOO[name]().write(Path(folder) / f"{name}.gguf"))
    np.savez_compressed(OUT, **{name: known[name] for name in ZOO if name in known})


def logits(path: Path) -> np.ndarray:
    """float32 ``[len(IDS), N_VOCAB]``."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path.name}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(IDS), 0, 1)
    batch.n_tokens = len(IDS)
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit(f"llama.cpp cannot run {path.name}")
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(IDS), N_VOCAB)).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values


if __name__ == "__main__":
    main(sys.argv[1:])
