"""Measure the time to open a GGUF file and decode its strings: pumice.gguf.GGUFFile against gguf.GGUFReader.

    python bench/gguf_open.py model-or-vocabulary.gguf [--repeat 3]

Both read the same data: every metadata value as Python or NumPy values, and every tensor's description. The best
repetition counts; GGUFReader runs once, since it may take long.
"""

import argparse
import time
from collections.abc import Callable

import gguf

from pumice.gguf import GGUFFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs of pumice")
    arguments = parser.parse_args()
    path, repeat = arguments.path, arguments.repeat

    opened = min(seconds(lambda: GGUFFile.open(path)) for _ in range(repeat))
    ours = min(seconds(lambda: read_pumice(path)) for _ in range(repeat))
    theirs = seconds(lambda: read_package(path))
    print(f"pumice   {ours:8.3f} s   ({opened:.3f} s to open, the rest decodes strings)")
    print(f"gguf     {theirs:8.3f} s")
    print(f"ratio    {theirs / ours:8.1f}")


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def read_pumice(path: str) -> None:
    file = GGUFFile.open(path)
    dict(file.metadata.items())
    list(file.tensors)


def read_package(path: str) -> None:
    reader = gguf.GGUFReader(path)
    for field in reader.fields.values():
        field.contents()
    list(reader.tensors)


if __name__ == "__main__":
    main()
