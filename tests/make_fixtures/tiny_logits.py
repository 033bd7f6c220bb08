"""Make tests/fixtures/tiny_logits/*.npz: llama.cpp's logits for the tiny models, a file a cluster.

    python tests/make_fixtures/tiny_logits.py [NAME...]        (needs llama-cpp-python)

A name is a cluster's or a model's; without names, what has no logits yet is computed, and what is gone is dropped.

Every file has float32 weights, and llama.cpp computes with a float32 cache and without flash attention, which
would round to float16.
"""

import ctypes
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_models import IDS, N_CTX, TinyModel  # noqa: E402
from tiny_zoo import CLUSTERS  # noqa: E402

OUT = TESTS / "fixtures" / "tiny_logits"
ERROR = 4  # ggml's level of log messages


def main(wanted: list[str]) -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    OUT.mkdir(exist_ok=True)
    for cluster, models in CLUSTERS.items():
        path = OUT / f"{cluster}.npz"
        known = dict(np.load(path)) if path.exists() else {}
        names = [name for name in models if ({name, cluster} & set(wanted) if wanted else name not in known)]
        if names or set(known) - set(models):
            known |= {name: logits(name, models[name]) for name in names}
            np.savez_compressed(path, **{name: known[name] for name in models if name in known})


@llama_cpp.llama_log_callback
def quiet(level: int, text: bytes, user_data: object) -> None:
    if level == ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr)


def logits(name: str, tiny: TinyModel) -> np.ndarray:
    """float32 ``[len(IDS), n_vocab]``."""
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
    batch = llama_cpp.llama_batch_init(len(IDS), 0, 1)
    batch.n_tokens = len(IDS)
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit(f"llama.cpp cannot run {name}")
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(IDS), tiny.metadata["vocab_size"])).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values


if __name__ == "__main__":
    main(sys.argv[1:])
