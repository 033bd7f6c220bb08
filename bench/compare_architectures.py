"""Compare logits with llama.cpp, on llama.cpp's test models, one or two per architecture.

    python bench/compare_architectures.py path/to/test-llama-archs --seeds 1 2 3 --backends numpy cpu vulkan

test-llama-archs is a target of llama.cpp's build with -DLLAMA_BUILD_TESTS=ON; it writes models with random weights.
llama-cpp-python of the same version computes the logits, in a process per model, since llama.cpp may abort; it loads
libraries from LLAMA_CPP_LIB_PATH. Prints the normalized mean squared error per model, and errors above the backend's
limit; docs/models.md explains the limits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import pumice

LIMITS = {"numpy": 1e-6}
LIMIT = 1e-4  # for the other backends
N_CTX, N_TOKENS, N_IDS = 256, 24, 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="llama.cpp's test-llama-archs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of the models' weights")
    parser.add_argument("--backends", nargs="+", default=["numpy"], help="backends of Pumice")
    args = parser.parse_args()
    above: list[str] = []
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            write = [args.program, "-o", folder, "-s", str(seed)]
            subprocess.run(write, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for path in sorted(Path(folder).glob("*.gguf")):
                above += compare(path, seed, args.backends)
    print(f"\n{len(above)} models above the limit", *above, sep="\n")
    return len(above) > 0


def compare(path: Path, seed: int, backends: list[str]) -> list[str]:
    """Print the errors of one model; return those above the limit."""
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as child:
            expected = child.submit(llama_logits, path).result()
    except (RuntimeError, BrokenProcessPool) as error:
        print(f"{path.stem} seed {seed}: llama.cpp: {error}")
        return []
    above = []
    for backend in backends:
        try:
            with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX) as model:
                logits = model.logits(tokens(expected.shape[1]))
            error = np.mean((logits - expected) ** 2, dtype=np.float64) / np.mean(expected**2, dtype=np.float64)
            line, wrong = f"{error:.1e}", not error < LIMITS.get(backend, LIMIT)
        except pumice.PumiceError as refusal:
            line, wrong = str(refusal), True
        line = f"{path.stem} seed {seed} {backend}: {line}"
        print(line, flush=True)
        above += [line] if wrong else []
    return above


def tokens(n_vocab: int) -> list[int]:
    return [(7 * i + 3) % min(n_vocab, N_IDS) for i in range(N_TOKENS)]


def llama_logits(path: Path) -> NDArray[np.float32]:
    """Return llama.cpp's logits ``[N_TOKENS, n_vocab]`` of one batch, with a float32 cache, without flash attention."""
    import ctypes

    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError("cannot load the model")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = N_CTX
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    batch = llama_cpp.llama_batch_init(N_TOKENS, 0, 1)
    batch.n_tokens = N_TOKENS
    for i, token in enumerate(tokens(n_vocab)):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("cannot run the model")
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (N_TOKENS, n_vocab)).copy()


if __name__ == "__main__":
    sys.exit(main())
