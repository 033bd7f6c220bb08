"""Make tests/fixtures/drafts.npz: llama.cpp's logits of the layers that draft in the models of tests/tiny_drafts.py.

python tests/make_fixtures/drafts.py [NAME...]        (needs llama-cpp-python)
"""

import ctypes
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from make_fixtures.tiny_logits import quiet  # noqa: E402
from tiny_drafts import EAGLES, MODELS, hidden_of  # noqa: E402
from tiny_models import IDS, N_CTX, TinyModel  # noqa: E402

OUT = TESTS / "fixtures" / "drafts.npz"
MTP = 1  # llama.cpp's type of a context that drafts
ALL = MODELS | EAGLES


def main(wanted: list[str]) -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    known = dict(np.load(OUT)) if OUT.exists() else {}
    for name in wanted or [name for name in ALL if name not in known]:
        try:
            with ProcessPoolExecutor(1, get_context("fork")) as child:  # llama.cpp may abort
                known[name] = child.submit(logits, ALL[name]).result()
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    np.savez_compressed(OUT, **{name: known[name] for name in ALL if name in known})


def logits(tiny: TinyModel) -> np.ndarray:
    """float32 ``[tokens, n_vocab]``."""
    settings = llama_cpp.llama_model_default_params()
    settings.load_mtp = True
    with tempfile.TemporaryDirectory() as folder:
        path = str(tiny.write(Path(folder) / "model.gguf")).encode()
        model = llama_cpp.llama_model_load_from_file(path, settings)
    if not model:
        raise RuntimeError("llama.cpp cannot load it")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if tiny.architecture != "eagle3":
        params.ctx_type = MTP
    context = llama_cpp.llama_init_from_model(model, params)
    hidden = hidden_of(tiny)
    batch = llama_cpp.llama_batch_init(len(IDS), 0, 1)
    batch.n_tokens = len(IDS)
    batch.embd = hidden.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama.cpp cannot run it")
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(IDS), tiny.metadata["vocab_size"])).copy()


if __name__ == "__main__":
    main(sys.argv[1:])
