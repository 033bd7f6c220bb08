"""Read and write importance matrices in llama-imatrix's formats: GGUF, and the older `.dat`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from struct import Struct, pack

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer
from pumice.gguf.output import NewFiles
from pumice.imatrix.sums import CHUNK_SIZE, ActivationSums, TensorSums

MAGIC = b"GGUF"
SQUARES, COUNTS = ".in_sum2", ".counts"
DATASETS, CHUNKS, CHUNK_TOKENS = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"

_I32 = Struct("<i")
_MAX = float(np.finfo(np.float32).max)  # files store sums in float32


def read_sums(path: str | os.PathLike[str], chunk_size: int = CHUNK_SIZE) -> ActivationSums:
    """Read a file in either format.

    Args:
        path: path of the file.
        chunk_size: tokens per chunk, which the older format does not store.

    Raises:
        QuantizeError: the file is invalid, or has non-finite values.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise QuantizeError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    sums = _read_gguf(path) if is_gguf else _read_dat(path, chunk_size)
    if not sums.tensors:
        raise QuantizeError(f"{path}: the importance matrix has no entries")
    for name, of_tensor in sums.tensors.items():
        if not all(np.abs(values).max(initial=0) <= _MAX for values in (of_tensor.squares, of_tensor.counts)):
            raise QuantizeError(f"{path}: the weights of {name!r} are not all finite numbers of 32 bits")
    return sums


def write_sums(path: str | os.PathLike[str], sums: ActivationSums, *, dat: bool = False, force: bool = False) -> None:
    """Write a GGUF file or, with ``dat``, the older format, which lacks the counts of experts.

    Raises:
        GGUFError: the file cannot be written, or exists and ``force`` is False.
        QuantizeError: ``sums`` has no entries.
    """
    if not sums.tensors:
        raise QuantizeError(f"{path}: no activations were collected, so there is nothing to write")
    if dat:
        with NewFiles([path], force=force) as files:
            files.next()
            for piece in _dat(sums):
                files.write(piece)
    else:
        _write_gguf(path, sums, force)


def _read_gguf(path: Path) -> ActivationSums:
    with GGUFFile.open(path) as file:
        n_chunks, chunk_size = (_integer(file, key, least) for key, least in ((CHUNKS, 0), (CHUNK_TOKENS, 1)))
        datasets = _value(file, DATASETS)
        if not isinstance(datasets, Sequence) or not all(isinstance(name, str) for name in datasets):
            raise QuantizeError(f"{path}: {DATASETS} must be a list of texts")
        sums = ActivationSums({}, list(datasets), chunk_size)
        for name, squares in file.tensors.items():
            if name.endswith(SQUARES):
                weight = name.removesuffix(SQUARES)
                if weight + COUNTS not in file.tensors:
                    raise QuantizeError(f"{path}: tensor {weight + COUNTS!r} is missing")
                counts = file.tensors[weight + COUNTS].dequantize().reshape(-1)
                sums.tensors[weight] = _sums(path, weight, squares.dequantize(), counts)
        sums.n_chunks = n_chunks
        return sums


def _value(file: GGUFFile, key: str) -> object:
    if key not in file.metadata:
        raise QuantizeError(f"{file.path}: metadata key {key!r} is missing; is it an importance matrix?")
    return file.metadata[key]


def _integer(file: GGUFFile, key: str, least: int) -> int:
    value = _value(file, key)
    if not isinstance(value, int) or value < least:
        raise QuantizeError(f"{file.path}: {key} is {value!r:.60}, but must be an integer of at least {least}")
    return value


def _sums(path: Path, name: str, squares: NDArray[np.float32], counts: NDArray[np.float32]) -> TensorSums:
    if squares.size % len(counts):
        raise QuantizeError(f"{path}: {squares.size} sums of {name!r} do not match {len(counts)} counts")
    return TensorSums(squares.reshape(len(counts), -1).astype(np.float64), counts.astype(np.float64))


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
    """Read the older format: name, number of chunks and sums per entry, optionally number of chunks and dataset."""
    data, offset = path.read_bytes(), 0

    def take(n_bytes: int) -> bytes:
        nonlocal offset
        if not 0 <= n_bytes <= len(data) - offset:
            raise QuantizeError(f"{path}: not an importance matrix: truncated or invalid at byte {offset}")
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
        if sums.n_chunks < 0:
            raise QuantizeError(f"{path}: the number of chunks is {sums.n_chunks}, but must be at least 0")
        sums.datasets.append(take(number()).decode("utf-8", "replace"))
    return sums


def _dat(sums: ActivationSums) -> Iterator[bytes]:
    """Yield the bytes of the older format, in which mean squares are multiplied by the number of chunks."""
    counted = {name: tensor for name, tensor in sorted(sums.tensors.items()) if tensor.counts.max() > 0}
    yield _I32.pack(len(counted))
    for name, of_tensor in counted.items():
        n_calls = ceil(of_tensor.counts.max() / sums.chunk_size)
        encoded, values = name.encode(), of_tensor.means * np.float32(n_calls)
        yield pack("<i", len(encoded)) + encoded + pack("<ii", n_calls, values.size) + values.astype("<f4").tobytes()
    dataset = (sums.datasets[-1] if sums.datasets else "").encode()
    yield pack("<ii", sums.n_chunks, len(dataset)) + dataset
