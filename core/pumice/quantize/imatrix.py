"""Importance matrices: how much an error in each column of a matrix counts, measured by running a model.

Two formats, both llama-imatrix's: GGUF, and the older one (`.dat`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import GGUFFile

MAGIC = b"GGUF"
SUMS, COUNTS = ".in_sum2", ".counts"
DATASETS, CHUNKS, CHUNK_SIZE = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"

_I32 = Struct("<i")


@dataclass(frozen=True)
class ImportanceMatrix:
    """Weights of columns by the name of a tensor: float32 [matrices * columns], finite.

    datasets: the texts they were measured on. n_chunks: how many pieces of them; 0 if the file does not say.
    """

    path: Path
    weights: dict[str, NDArray[np.float32]]
    datasets: list[str] = field(default_factory=list)
    n_chunks: int = 0

    def only(self, keep: Callable[[str], bool]) -> "ImportanceMatrix":
        """Those of the tensors that ``keep`` wants."""
        kept = {name: values for name, values in self.weights.items() if keep(name)}
        return ImportanceMatrix(self.path, kept, self.datasets, self.n_chunks)


def read_imatrix(path: str | os.PathLike[str]) -> ImportanceMatrix:
    """Read a file of either format. QuantizeError if it is not one, or has numbers that are not finite."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise QuantizeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    matrix = _read_gguf(path) if is_gguf else _read_dat(path)
    if not matrix.weights:
        raise QuantizeError(f"{path}: is an importance matrix without entries")
    for name, values in matrix.weights.items():
        if not np.isfinite(values).all():
            raise QuantizeError(f"{path}: the weights of {name!r} are not all finite")
    return matrix


def _read_gguf(path: Path) -> ImportanceMatrix:
    with GGUFFile.open(path) as file:
        for key in (DATASETS, CHUNKS, CHUNK_SIZE):
            if key not in file.metadata:
                raise QuantizeError(f"{path}: metadata key {key!r} is missing; is it an importance matrix?")
        weights = {}
        for name, sums in file.tensors.items():
            if not name.endswith(SUMS):
                continue
            weight = name.removesuffix(SUMS)
            if weight + COUNTS not in file.tensors:
                raise QuantizeError(f"{path}: tensor {weight + COUNTS!r} is missing")
            counts = file.tensors[weight + COUNTS].dequantize().reshape(-1, 1)
            weights[weight] = _means(path, weight, sums.dequantize(), counts)
        datasets = [str(name) for name in file.metadata[DATASETS]]
        return ImportanceMatrix(path, weights, datasets, int(file.metadata[CHUNKS]))


def _means(path: Path, name: str, sums: NDArray[np.float32], counts: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums by how many they are of; 1 for experts that no token reached."""
    if sums.size % len(counts):
        raise QuantizeError(f"{path}: {sums.size} sums of {name!r} do not go with {len(counts)} counts")
    rows = sums.reshape(len(counts), -1)
    return np.divide(rows, counts, out=np.ones_like(rows), where=counts > 0).reshape(-1)


def _read_dat(path: Path) -> ImportanceMatrix:
    """Entries of name, number of calls, and sums; then perhaps the number of chunks and the text."""
    data, offset = path.read_bytes(), 0

    def take(n_bytes: int) -> bytes:
        nonlocal offset
        if not 0 <= n_bytes <= len(data) - offset:
            raise QuantizeError(f"{path}: is not an importance matrix: it ends or is wrong at byte {offset}")
        offset += n_bytes
        return data[offset - n_bytes : offset]

    def number() -> int:
        return int(_I32.unpack(take(_I32.size))[0])

    weights: dict[str, NDArray[np.float32]] = {}
    for _ in range(number()):
        name = take(number()).decode("utf-8", "replace")
        n_calls, n_values = number(), number()
        values = np.frombuffer(take(4 * n_values), np.float32)
        weights[name] = values / np.float32(n_calls) if n_calls > 0 else values
    if offset == len(data):
        return ImportanceMatrix(path, weights)
    n_chunks = number()
    return ImportanceMatrix(path, weights, [take(number()).decode("utf-8", "replace")], n_chunks)
