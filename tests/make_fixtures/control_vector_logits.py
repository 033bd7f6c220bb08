"""Make tests/fixtures/control_vector_logits.npz: llama.cpp's last logits for tiny models with control vectors.

python tests/make_fixtures/control_vector_logits.py        (needs llama-cpp-python)
"""

import ctypes
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import llama_cpp
import numpy as np
from tiny_logits import TESTS, logits, quiet

from control_vectors import STEERED, directions  # tests/control_vectors.py: tiny_logits has put its folder on the path
from tiny_zoo import ZOO


def made(name: str) -> np.ndarray:
    return logits(ZOO[name], steering=directions(ZOO[name]))[-1]


if __name__ == "__main__":
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    found = {}
    for name in STEERED:
        try:
            with ProcessPoolExecutor(1, get_context("fork")) as child:  # llama.cpp may abort
                found[name] = child.submit(made, name).result()
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    np.savez_compressed(TESTS / "fixtures" / "control_vector_logits.npz", **found)
