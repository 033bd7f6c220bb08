"""Numbers quantized a second, by Pumice's CPU quantizers and by ggml's reference, which llama-quantize calls.

    python bench/compare_quantize.py path/to/libggml-base.so [TYPE ...]

Both on one thread, in turns, on normally distributed numbers; processor time, the best of a few runs. Both share out
rows over threads that have nothing in common, so the ratio is that of whole files on any number of cores.
"""

import argparse
import ctypes
import time
from collections.abc import Callable

import numpy as np

from pumice.gguf import GGMLType, row_bytes
from pumice_cpu.quantizer import QUANTIZERS

COLUMNS = 4096
NEED_WEIGHTS = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
SIMPLE = ("Q8_0", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "MXFP4")  # ignore weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("types", nargs="*", metavar="TYPE", help="none: all")
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    ggml = load(arguments.library)
    weights = (np.random.RandomState(1).random_sample(COLUMNS) + 0.01).astype(np.float32)
    print("| type | million numbers/s | with an importance matrix |\n| --- | --- | --- |")
    for name in arguments.types or QUANTIZERS:
        cells = []
        for matrix in (None, weights):
            skipped = name in NEED_WEIGHTS if matrix is None else name in SIMPLE
            cells.append("" if skipped else compare(ggml, name, matrix, arguments.repetitions))
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)


def compare(ggml: ctypes.CDLL, name: str, weights: np.ndarray | None, repetitions: int) -> str:
    """``ours / theirs, ratio``, in millions of numbers a second; the blocks must be the same."""
    rows = 16 if name.startswith("IQ") else 256
    values = (np.random.RandomState(0).standard_normal((rows, COLUMNS)) * 0.02).astype(np.float32)
    out = np.zeros((rows, row_bytes(GGMLType[name], COLUMNS)), np.uint8)
    place = None if weights is None else weights.ctypes.data

    def theirs() -> None:
        ggml.ggml_quantize_chunk(GGMLType[name], values.ctypes.data, out.ctypes.data, 0, rows, COLUMNS, place)

    def ours() -> np.ndarray:
        return QUANTIZERS[name].quantize(values, weights)

    theirs()
    assert np.array_equal(ours(), out), name
    times = [(seconds(ours), seconds(theirs)) for _ in range(repetitions)]
    fast, slow = (min(each) for each in zip(*times, strict=True))
    return f"{values.size / fast / 1e6:.3g} / {values.size / slow / 1e6:.3g}, {slow / fast:.1f}"


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def load(path: str) -> ctypes.CDLL:
    ggml = ctypes.CDLL(path)
    pointers = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *pointers]
    return ggml


if __name__ == "__main__":
    main()
