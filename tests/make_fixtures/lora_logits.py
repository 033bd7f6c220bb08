"""Make tests/fixtures/lora_logits.npz: llama.cpp's logits for tiny models with adapters (tests/adapters.py).

python tests/make_fixtures/lora_logits.py        (needs llama-cpp-python)
"""

import ctypes
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import llama_cpp
import numpy as np
from tiny_logits import TESTS, logits, quiet

from adapters import CASES, write_case  # tests/adapters.py: tiny_logits has put its folder on the path
from tiny_zoo import ZOO


def made(case: str) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        return logits(ZOO[CASES[case][0]], write_case(Path(folder), case))


if __name__ == "__main__":
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    with ProcessPoolExecutor(1, get_context("fork")) as child:
        found = {case: child.submit(made, case).result() for case in CASES}
    np.savez_compressed(TESTS / "fixtures" / "lora_logits.npz", **found)
