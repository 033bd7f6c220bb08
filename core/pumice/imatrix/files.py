"""Files of importance matrices, in llama-imatrix's two formats: GGUF, and the older one (`.dat`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from struct import Struct, pack

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer
from pumice.gguf.output import NewFiles
from pumice.imatrix.sums import CHUNK_SIZE, ActivationSums, Sums

MAGIC = b"GGUF"
SQUARES, COUNTS = ".in_sum2", ".counts"
DATASETS, CHUNKS, CHUNK_TOKENS = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"

_I32 = Struct("<i")


def read_sums(path: str | os.PathLike[str], chunk_size: int = CHUNK_SIZE) -> ActivationSums:
    """Read a file of either format. QuantizeError if it is not one, or has numbers that are not finite.

    chunk_size: tokens a chunk in an older file, which does not say.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise QuantizeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    sums = _read_gguf(path) if is_gguf else _read_dat(path, chunk_size)
    if not sums.tensors:
        raise QuantizeError(f"{path}: is an importance matrix without entries")
    for name, of_tensor in sums.tensors.items():
        if not (np.isfinite(of_tensor.squares).all() and np.isfinite(of_tensor.counts).all()):
            raise QuantizeError(f"{path}: the weights of {name!r} are not all finite")
    return sums


def write_sums(path: str | os.PathLike[str], sums: ActivationSums, *, dat: bool = False, force: bool = False) -> None:
    """Write a GGUF file, or with ``dat`` one of the older format, which loses the counts of experts.

    GGUFError if it cannot be written, or is there already without ``force``; QuantizeError for sums without entries.
    """
    if not sums.tensors:
        raise QuantizeError(f"{path}: no activations were collected, so that there is nothing to write")
    if dat:
        with NewFiles([path], force=force) as files:
            files.next()
            for piece in _dat(sums):
                files.write(piece)
    else:
        _write_gguf(path, sums, force)


def _read_gguf(path: Path) -> ActivationSums:
    with GGUFFile.open(path) as file:
        for key in (DATASETS, CHUNKS, CHUNK_TOKENS):
            if key not in file.metadata:
                raise QuantizeError(f"{path}: metadata key {key!r} is missing; is it an importance matrix?")
        chunk_size = int(file.metadata[CHUNK_TOKENS])
        if chunk_size < 1:
            raise QuantizeError(f"{path}: {CHUNK_TOKENS} is {chunk_size}, it must be at least 1")
        sums = ActivationSums({}, [str(name) for name in file.metadata[DATASETS]], chunk_size)
        for name, squares in file.tensors.items():
            if name.endswith(SQUARES):
                weight = name.removesuffix(SQUARES)
                if weight + COUNTS not in file.tensors:
                    raise QuantizeError(f"{path}: tensor {weight + COUNTS!r} is missing")
                counts = file.tensors[weight + COUNTS].dequantize().reshape(-1)
                sums.tensors[weight] = _sums(path, weight, squares.dequantize(), counts)
        sums.n_chunks = int(file.metadata[CHUNKS])
        return sums


def _sums(path: Path, name: str, squares: NDArray[np.float32], counts: NDArray[np.float32]) -> Sums:
    if squares.size % len(counts):
        raise QuantizeError(f"{path}: {squares.size} sums of {name!r} do not go with {len(counts)} counts")
    return Sums(squares.reshape(len(counts), -1).astype(np.float64), counts.astype(np.float64))


def _write_gguf(path: str | os.PathLike[str], sums: ActivationSums, force: bool) -> None:
    metadata = {
        "general.type": "imatrix",
        DATASETS: sums.datasets or [""],
        CHUNKS: sums.n_chunks,
        CHUNK_TOKENS: sums.chunk_size,
    }
    data = {}
    for name in sorted(sums.tensors):
        of_tensor = sums.tensors[name]
        data[name + SQUARES] = of_tensor.squares.astype(np.float32)
        data[name + COUNTS] = of_tensor.counts[:, None].astype(np.float32)
    infos = [TensorInfo(name, GGMLType.F32, values.shape) for name, values in data.items()]
    with Writer(path, metadata, infos, force=force) as writer:
        for values in data.values():
            writer.write(values)


def _read_dat(path: Path, chunk_size: int) -> ActivationSums:
    """Entries of name, number of chunks, and sums a chunk; then perhaps the number of chunks and the text."""
    data, offset = path.read_bytes(), 0

    def take(n_bytes: int) -> bytes:
        nonlocal offset
        if not 0 <= n_bytes <= len(data) - offset:
            raise QuantizeError(f"{path}: is not an importance matrix: it ends or is wrong at byte {offset}")
        offset += n_bytes
        return data[offset - n_bytes : offset]

    def number() -> int:
        return int(_I32.unpack(take(_I32.size))[0])

    sums = ActivationSums(chunk_size=chunk_size)
    for _ in range(number()):
        name = take(number()).decode("utf-8", "replace")
        n_calls, n_values = max(number(), 1), number()
        values = np.frombuffer(take(4 * n_values), "<f4").astype(np.float64)
        sums.add(name, values[None] * chunk_size, [n_calls * chunk_size])
    if offset < len(data):
        sums.n_chunks = number()
        sums.datasets.append(take(number()).decode("utf-8", "replace"))
    return sums


def _dat(sums: ActivationSums) -> Iterator[bytes]:
    """The bytes of a file of the older format: for a tensor the mean squares times the chunks it has seen."""
    seen = {name: each for name, each in sorted(sums.tensors.items()) if each.counts.max() > 0}
    yield _I32.pack(len(seen))
    for name, of_tensor in seen.items():
        n_calls = ceil(of_tensor.counts.max() / sums.chunk_size)
        encoded, values = name.encode(), of_tensor.means * np.float32(n_calls)
        yield pack("<i", len(encoded)) + encoded + pack("<ii", n_calls, values.size) + values.astype("<f4").tobytes()
    dataset = (sums.datasets[-1] if sums.datasets else "").encode()
    yield pack("<ii", sums.n_chunks, len(dataset)) + dataset
