"""Compare the throughput of Pumice's CPU quantizers with ggml's reference, which llama-quantize calls.

    python bench/compare_quantize.py path/to/libggml-base.so [-t THREADS] [TYPE ...]

The quantizers alternate on normally distributed numbers, whose rows are divided among threads, as both do for files.
Rates are from the fastest runs; the ratio is the median of pairs, so that other load on the machine affects both.
"""

import argparse
import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np

from pumice.gguf import GGMLType, row_bytes
from pumice_cpu.quantizer import QUANTIZERS

COLUMNS = 4096
NEED_WEIGHTS = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
SIMPLE = ("Q8_0", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "MXFP4")  # types that ignore weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("types", nargs="*", metavar="TYPE", help="none: all")
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=2)
    arguments = parser.parse_intermixed_args()
    ggml = load(arguments.library)
    weights = (np.random.RandomState(1).random_sample(COLUMNS) + 0.01).astype(np.float32)
    print("| type | million numbers/s | with an importance matrix |\n| --- | --- | --- |")
    for name in arguments.types or QUANTIZERS:
        cells = []
        for matrix in (None, weights):
            skipped = name in NEED_WEIGHTS if matrix is None else name in SIMPLE
            cells.append("" if skipped else compare(ggml, name, matrix, arguments.repetitions, arguments.threads))
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)


def compare(ggml: ctypes.CDLL, name: str, weights: np.ndarray | None, repetitions: int, n_threads: int) -> str:
    """Return ``ours / theirs, ratio`` in millions of numbers per second; asserts equal blocks."""
    rows = 16 * n_threads if name.startswith("IQ") else 512 * n_threads
    values = (np.random.RandomState(0).standard_normal((rows, COLUMNS)) * 0.02).astype(np.float32)
    out = np.zeros((rows, row_bytes(GGMLType[name], COLUMNS)), np.uint8)
    place = None if weights is None else weights.ctypes.data
    shares = [slice(i * rows // n_threads, (i + 1) * rows // n_threads) for i in range(n_threads)]

    def theirs(share: slice) -> None:
        part, n = values[share], share.stop - share.start
        ggml.ggml_quantize_chunk(GGMLType[name], part.ctypes.data, out[share].ctypes.data, 0, n, COLUMNS, place)

    def ours(share: slice) -> np.ndarray:
        return QUANTIZERS[name].quantize(values[share], weights)

    with ThreadPoolExecutor(n_threads) as pool:
        for share in shares:  # sequentially, since the first call initializes ggml's tables
            theirs(share)
        assert np.array_equal(np.concatenate(list(pool.map(ours, shares))), out), name
        times = [(seconds(pool, ours, shares), seconds(pool, theirs, shares)) for _ in range(repetitions)]
    fast, slow = (min(durations) for durations in zip(*times, strict=True))
    ratio = median(slow / fast for fast, slow in times)
    return f"{rate(values.size / fast)} / {rate(values.size / slow)}, {ratio:.1f}"


def rate(numbers: float) -> str:
    """Return millions of numbers per second."""
    return f"{numbers / 1e6:,.{0 if numbers >= 1e8 else 1}f}"


def seconds(pool: ThreadPoolExecutor, work: Callable[[slice], object], shares: list[slice]) -> float:
    start = time.perf_counter()
    list(pool.map(work, shares))
    return time.perf_counter() - start


def load(path: str) -> ctypes.CDLL:
    ggml = ctypes.CDLL(path)
    pointers = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *pointers]
    return ggml


if __name__ == "__main__":
    main()
