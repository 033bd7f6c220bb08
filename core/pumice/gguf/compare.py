"""Differences between two models, and checksums of one."""

import hashlib
import uuid
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pumice.errors import GGUFError
from pumice.gguf.copy import ByteProgress
from pumice.gguf.quants import CHUNK, dequantize
from pumice.gguf.reader import GGUFFile
from pumice.gguf.tensors import ModelTensor

# gguf-py's gguf_hash.py: the name space of the UUIDs of models.
MODEL_NAMESPACE = uuid.UUID("ef001206-dadc-5f6d-a15f-3359e577d4e5")


class Difference(NamedTuple):
    """A difference between two files. A value is None if the file does not have the key or tensor."""

    what: str  # "metadata" or "tensor"
    name: str
    first: str | None
    second: str | None


def differences(first: GGUFFile, second: GGUFFile, *, data: bool = True) -> Iterator[Difference]:
    """Yield metadata that differ in type or value, and tensors that differ in type, shape or, if ``data``, values."""
    for key in dict.fromkeys([*first.metadata, *second.metadata]):
        a, b = (file.metadata.encoded(key) if key in file.metadata else None for file in (first, second))
        if a != b:
            yield Difference("metadata", key, describe_value(first, key), describe_value(second, key))
    for name in dict.fromkeys([*first.tensors, *second.tensors]):
        one, other = first.tensors.get(name), second.tensors.get(name)
        if one is None or other is None or (one.type, one.shape) != (other.type, other.shape):
            yield Difference("tensor", name, describe_tensor(one), describe_tensor(other))
        elif data and not np.array_equal(one.data, other.data):
            change = f"differs by up to {_largest_difference(one, other):.6g}"
            yield Difference("tensor", name, describe_tensor(one), change)


def describe_value(file: GGUFFile, key: str) -> str | None:
    """Return type and value of a metadata key in about 60 characters; None if it is missing."""
    if key not in file.metadata:
        return None
    value = file.metadata[key]
    name = file.metadata.encoded(key).type_name
    if name.endswith("[]"):
        items = ", ".join(str(item) if not isinstance(item, str) else repr(item) for item in value[:6])
        name, text = f"{name[:-2]}[{len(value)}]", f"[{items}{', ...' if len(value) > 6 else ''}]"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return f"{name} {text if len(text) <= 60 else text[:57] + '...'}"


def describe_tensor(tensor: ModelTensor | None) -> str | None:
    """Return type and shape, in GGUF's order; None without a tensor."""
    return None if tensor is None else f"{tensor.type.name} {' x '.join(map(str, tensor.shape[::-1]))}"


def checksums(
    file: GGUFFile, algorithms: tuple[str, ...], progress: ByteProgress | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield (algorithm, digest, name) of each tensor's bytes and, with an empty name, of all tensors in file order.

    Args:
        file: model to hash.
        algorithms: names of hashlib; ``uuid``, of all tensors only, as computed by gguf-hash of the package gguf; and
            ``xxh64``, as in llama-gguf-hash.
        progress: called with bytes done and total bytes.

    Raises:
        GGUFError: ``xxh64`` is requested and the package xxhash is not installed.
    """
    hashes = [name for name in algorithms if name != "uuid"]
    whole = {name: _new_hash(name) for name in hashes}
    identity = hashlib.sha1(MODEL_NAMESPACE.bytes)
    done, total = 0, sum(tensor.nbytes for tensor in file.tensors.values())
    for tensor in file.tensors.values():
        data = tensor.data.reshape(-1).data
        for name in hashes:
            own = _new_hash(name)
            own.update(data)
            yield name, own.hexdigest(), tensor.name
            whole[name].update(data)
        if "uuid" in algorithms:
            identity.update(data)
        done += tensor.nbytes
        tensor.release()
        if progress is not None:
            progress(done, total)
    for name in hashes:
        yield name, whole[name].hexdigest(), ""
    if "uuid" in algorithms:
        yield "uuid", str(uuid.UUID(bytes=identity.digest()[:16], version=5)), ""


def _new_hash(name: str) -> Any:
    """Return a new hash object with hashlib's interface."""
    if name != "xxh64":
        return hashlib.new(name)
    try:
        import xxhash
    except ImportError:
        raise GGUFError("xxh64 needs the package xxhash: pip install xxhash") from None
    return xxhash.xxh64()


def decoded_rows(tensor: ModelTensor) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield groups of decoded rows: the index of the first row, and float32 [rows, columns]."""
    rows = tensor.data.reshape(prod(tensor.shape[:-1]), -1)
    step = max(1, 8 * CHUNK // tensor.shape[-1])
    for start in range(0, len(rows), step):
        yield start, dequantize(rows[start : start + step], tensor.type)


def _largest_difference(a: ModelTensor, b: ModelTensor) -> float:
    with np.errstate(all="ignore"):
        return max(float(np.abs(x - y).max()) for (_, x), (_, y) in zip(decoded_rows(a), decoded_rows(b), strict=True))
