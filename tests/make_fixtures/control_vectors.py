"""Make tests/fixtures/control_vectors.npz: llama.cpp's last logits for tiny models with control vectors, and a vector.

python tests/make_fixtures/control_vectors.py GENERATOR        (needs llama-cpp-python)

GENERATOR is the program llama-cvector-generator, which makes a vector of the demo model, by the mean.
"""

import ctypes
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import llama_cpp
import numpy as np
from tiny_logits import TESTS, logits, quiet

from control_vectors import STEERED, directions, write_pairs  # tiny_logits has put the folder of tests on the path
from pumice.demo import demo_model_path
from pumice.gguf import GGUFFile
from tiny_zoo import ZOO


def steered(name: str) -> np.ndarray:
    return logits(ZOO[name], steering=directions(ZOO[name]))[-1]


def made(generator: str) -> np.ndarray:
    """``[layers from 1 on, n_embd]``."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/vector.gguf"
        arguments = ["-m", demo_model_path(), *write_pairs(Path(folder)), "-o", out, "--method", "mean", "-fa", "off"]
        subprocess.run([generator, *map(str, arguments)], check=True, capture_output=True)
        with GGUFFile.open(out) as file:
            return np.stack([tensor.dequantize() for tensor in file.tensors.values()])


if __name__ == "__main__":
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    found = {"demo": made(sys.argv[1])}
    for name in STEERED:
        try:
            with ProcessPoolExecutor(1, get_context("fork")) as child:  # llama.cpp may abort
                found[name] = child.submit(steered, name).result()
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    np.savez_compressed(TESTS / "fixtures" / "control_vectors.npz", **found)
