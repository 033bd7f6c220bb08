"""Make tests/fixtures/tiny_logits/*.npz: llama.cpp's logits for the tiny models, a file a cluster.

    python tests/make_fixtures/tiny_logits.py [NAME...]        (needs llama-cpp-python)

A name is a cluster's or a model's; without names, what has no logits yet is computed, and what is gone is dropped.

Every file has float32 weights, and llama.cpp computes with a float32 cache and without flash attention, which
would round to float16, but for the models in FLASH.
"""

import ctypes
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from tiny_models import N_CTX, TinyModel  # noqa: E402
from tiny_zoo import CLUSTERS  # noqa: E402

LAST = ["qwen4exp-blocks"]  # of which other rows are no model: there llama.cpp attends to parts of blocks
FLASH = ["minimax-m3-blocks"]  # models that llama.cpp computes otherwise without flash attention
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
            for name in names:
                try:
                    with ProcessPoolExecutor(1, get_context("fork")) as child:  # llama.cpp may abort
                        rows = child.submit(logits, models[name], flash=name in FLASH).result()
                    known[name] = rows[-1:] if name in LAST else rows
                except RuntimeError as error:
                    print(f"{name}: {error}", file=sys.stderr)
            np.savez_compressed(path, **{name: known[name] for name in models if name in known})


@llama_cpp.llama_log_callback
def quiet(level: int, text: bytes, user_data: object) -> None:
    if level == ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr)


def load(tiny: TinyModel, load_mtp: bool = False) -> Any:
    """Return llama.cpp's model. Raises RuntimeError if it cannot load it."""
    settings = llama_cpp.llama_model_default_params()
    if load_mtp:
        settings.load_mtp = True
    with tempfile.TemporaryDirectory() as folder:
        path = str(tiny.write(Path(folder) / "model.gguf")).encode()
        model = llama_cpp.llama_model_load_from_file(path, settings)
    if not model:
        raise RuntimeError("llama.cpp cannot load it")
    return model


def context_params() -> Any:
    """Return parameters of a context that rounds nothing to float16."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return params


def batch_of(tokens: Sequence[int]) -> Any:
    """Return a batch of a sequence's first tokens, all of which have outputs."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    return batch


def logits(
    tiny: TinyModel,
    adapters: Sequence[tuple[Path, float]] = (),
    steering: np.ndarray | None = None,
    flash: bool = False,
) -> np.ndarray:
    """float32 ``[tokens, n_vocab]``, of a large vocabulary the last four rows.

    adapters: files and their scales. steering: a control vector ``[layers from 1 on, n_embd]``.
    """
    model = load(tiny)
    params = context_params()
    if flash:
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = llama_cpp.llama_init_from_model(model, params)
    if adapters:
        loaded = [llama_cpp.llama_adapter_lora_init(model, str(path).encode()) for path, _ in adapters]
        scales = (ctypes.c_float * len(adapters))(*(scale for _, scale in adapters))
        llama_cpp.llama_set_adapters_lora(
            context, (llama_cpp.llama_adapter_lora_p_ctypes * len(loaded))(*loaded), len(loaded), scales
        )
    if steering is not None:
        data = steering.astype(np.float32).ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if llama_cpp.llama_set_adapter_cvec(context, data, steering.size, steering.shape[1], 1, len(steering)):
            raise RuntimeError("llama.cpp cannot take the control vector")
    batch = batch_of(tiny.ids)
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama.cpp cannot run it")
    shape = len(tiny.ids), tiny.metadata["vocab_size"]
    values = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape).copy()
    values[:, values[0] < -1e30] = values[0].min()  # llama.cpp masks chameleon's images in the first row alone
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return values if values.shape[1] < 256 else values[-4:]


if __name__ == "__main__":
    main(sys.argv[1:])
