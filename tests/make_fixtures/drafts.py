"""Make tests/fixtures/drafts.npz: what llama.cpp's layers and models that draft give, of tests/tiny_drafts.py.

python tests/make_fixtures/drafts.py [NAME...]        (needs llama-cpp-python)
"""

import ctypes
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from make_fixtures.tiny_logits import context_params, load, quiet  # noqa: E402
from tiny_drafts import DRAFTS, FOR_TARGETS, LATTICES, MODELS, features_of, hidden_of  # noqa: E402
from tiny_models import IDS, TinyModel  # noqa: E402
from tiny_zoo import ZOO  # noqa: E402

OUT = TESTS / "fixtures" / "drafts.npz"
MTP = 1  # llama.cpp's type of a context that drafts
ALL = MODELS | DRAFTS

# What a draft gives beside logits; these are no functions of llama.cpp's C interface.
SET_EXTRA = llama_cpp.llama_cpp._lib["_Z26llama_set_embeddings_nextnP13llama_contextbb"]
SET_EXTRA.argtypes, SET_EXTRA.restype = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool], None
GET_EXTRA = llama_cpp.llama_cpp._lib["_Z26llama_get_embeddings_nextnP13llama_context"]
GET_EXTRA.argtypes, GET_EXTRA.restype = [ctypes.c_void_p], ctypes.POINTER(ctypes.c_float)


def main(wanted: list[str]) -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    known = dict(np.load(OUT)) if OUT.exists() else {}
    for name in wanted or [name for name in ALL if name not in known]:
        try:
            with ProcessPoolExecutor(1, get_context("fork")) as child:  # llama.cpp may abort
                known |= child.submit(results, name).result()
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    np.savez_compressed(OUT, **{key: known[key] for key in sorted(known) if key.split(":")[0] in ALL})


def results(name: str) -> dict[str, np.ndarray]:
    """By the model's name its logits ``[tokens, n_vocab]``, and behind it, after a colon, what else it gives."""
    tiny = ALL[name]
    other = open_context(ZOO[FOR_TARGETS[name][0]]) if name in FOR_TARGETS else None
    context = open_context(tiny, other)
    further = "lattice" if name in LATTICES else "confidence" if "conf_proj.weight" in tiny.shapes else ""
    if further:
        SET_EXTRA(context, True, further == "confidence")
    found = {name: logits(tiny, context, other)}
    if further:
        rows = np.ctypeslib.as_array(GET_EXTRA(context), (8, tiny.metadata["embedding_length"])).copy()
        found[f"{name}:{further}"] = rows[:, :1] if further == "confidence" else rows
    return found


def logits(tiny: TinyModel, context: object, other: object) -> np.ndarray:
    """float32 ``[tokens, n_vocab]``."""
    if tiny.architecture == "gemma4-assistant":
        decode(other, IDS, None, 0)
        found = [decode(context, [token], row[None], len(IDS)) for token, row in zip(IDS, hidden_of(tiny), strict=True)]
        return np.concatenate(found)
    if tiny.architecture == "dflash":
        llama_cpp.llama_set_causal_attn(context, tiny.metadata.get("attention.causal", False))
        decode(context, None, features_of(tiny)[:-8], 0)
        return decode(context, IDS[-8:], None, len(IDS) - 8)
    return decode(context, IDS, hidden_of(tiny), 0)


def open_context(tiny: TinyModel, other: object = None) -> object:
    model, params = load(tiny, load_mtp=True), context_params()
    params.ctx_other = other
    if "nextn_predict_layers" in tiny.metadata:
        params.ctx_type = MTP
    return llama_cpp.llama_init_from_model(model, params)


def decode(context: object, ids: Sequence[int] | None, rows: np.ndarray | None, first: int) -> np.ndarray:
    """Logits of tokens, rows of values, or both, from a position on."""
    n = len(rows if ids is None else ids)
    batch = llama_cpp.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    if rows is not None:
        rows = np.ascontiguousarray(rows)
        batch.embd = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    for i in range(n):
        batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = first + i, 1, 0, ids is not None
        if ids is not None:
            batch.token[i] = ids[i]
    if ids is None:
        batch.token = None
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama.cpp cannot run it")
    if ids is None:
        return np.empty((0, 0), np.float32)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(context)))
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (n, n_vocab)).copy()


if __name__ == "__main__":
    main(sys.argv[1:])
