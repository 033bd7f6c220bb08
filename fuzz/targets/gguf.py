"""GGUF files: an error, or fully readable, equal after a round trip, and read equally by the package `gguf`."""

from collections.abc import Iterable
from mmap import mmap
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import gguf_bytes as raw
from fuzz.files import scratch
from fuzz.growth import chosen
from pumice.errors import GGUFError
from pumice.gguf.parser import ParsedFile, parse_buffer
from pumice.gguf.types import GGMLType
from pumice.gguf.writer import Writer

MODULES = (
    "pumice.gguf.cursor", "pumice.gguf.metadata", "pumice.gguf.parser", "pumice.gguf.tensors", "pumice.gguf.values",
    "pumice.gguf.writer",
)  # fmt: skip
PATH = Path("fuzzed.gguf")
TOKENS = (
    b"GGUF\3\0\0\0", b"general.alignment", b"general.architecture", b"\xff" * 8, bytes(8), b"\1" + bytes(7),
    b"\x20" + bytes(7), *(bytes([type, 0, 0, 0]) for type in (*range(14), 30, 39, 40)),
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    number = (1).to_bytes(4, "little")
    entries = [
        raw.entry("general.architecture", raw.STRING, raw.string("llama")),
        raw.entry("a", raw.U32, number),
        raw.entry("b", raw.BOOL, b"\1"),
        raw.entry("tokens", raw.ARRAY, raw.array(raw.STRING, 3, raw.string("<s>") + raw.string("") + raw.string("ü"))),
        raw.entry("scores", raw.ARRAY, raw.array(raw.F32, 2, bytes(8))),
        raw.entry("flags", raw.ARRAY, raw.array(raw.BOOL, 3, b"\0\1\0")),
        raw.entry("nested", raw.ARRAY, raw.array(raw.ARRAY, 1, raw.array(raw.ARRAY, 1, raw.array(raw.STRING, 0, b"")))),
    ]
    tensors = [
        raw.tensor("x", [3]),
        raw.tensor("blk.0.q", [32, 2], GGMLType.Q4_0, 32),
        raw.tensor("ids", [2, 2, 3], GGMLType.I32, 96),
    ]
    yield raw.gguf()
    yield raw.gguf(entries)
    yield raw.gguf([], tensors, bytes(256))
    yield raw.gguf(entries, tensors, bytes(range(256)))
    yield raw.gguf([raw.entry("general.alignment", raw.U32, b"\x08\0\0\0")], tensors[:1], bytes(64), alignment=8)
    for type in GGMLType:
        yield raw.gguf([], [raw.tensor("t", [256], type)], bytes(range(256)) * 8)


def check(data: bytes) -> None:
    try:
        file = parsed(data)
    except GGUFError as error:
        text = str(error)
        assert text.startswith(f"{PATH}: "), text
        assert text.isprintable(), text
        return
    values = {key: file.metadata[key] for key in file.metadata}
    _check_tensors(file, len(data))
    _check_written_again(file, values)
    if chosen(data, 16) and _package_can(file):
        _check_with_package(data, file, values)


def parsed(data: bytes) -> ParsedFile:
    """Parse the contents of a file without a file."""
    buffer = mmap(-1, max(len(data), 1))
    buffer.write(data)
    return parse_buffer(PATH, buffer)


def equal(left: Any, right: Any) -> bool:
    """Return True for equal metadata values of equal types; NaN equals NaN."""
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))


def _check_tensors(file: ParsedFile, n_bytes: int) -> None:
    size = 0
    for tensor in file.tensors.values():
        size += tensor.nbytes
        assert tensor.data.size == tensor.nbytes
        assert tensor.dequantize().shape == tensor.shape
    assert size <= n_bytes


def _check_written_again(file: ParsedFile, values: dict[str, Any]) -> None:
    entries = {key: file.metadata.encoded(key) for key in file.metadata}
    tensors = list(file.tensors.values())
    try:
        writer = Writer(PATH, entries, tensors, version=file.version)
    except GGUFError:
        return  # a name longer than llama.cpp's limit, or an alignment of another type than u32
    content = bytearray(writer.n_bytes)
    content[: len(writer.headers[0])] = writer.headers[0]
    for tensor, offset in zip(tensors, writer.offsets, strict=True):
        content[offset : offset + tensor.nbytes] = tensor.data.tobytes()
    again = parsed(bytes(content))
    assert (again.version, again.alignment) == (file.version, file.alignment)
    assert list(again.metadata) == list(values)
    assert all(equal(again.metadata[key], value) for key, value in values.items())
    assert list(again.tensors) == list(file.tensors)
    for tensor in tensors:
        other = again.tensors[tensor.name]
        assert (other.type, other.shape) == (tensor.type, tensor.shape)
        assert other.data.tobytes() == tensor.data.tobytes()


def _package_can(file: ParsedFile) -> bool:
    """Return True if the package `gguf` can read the file: no nested or empty arrays, no unknown types.

    Its blocks of Q8_1 have 40 bytes, ggml's have 36.
    """
    kinds = {type.value for type in gguf.GGMLQuantizationType} - {GGMLType.Q8_1}
    own = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count")
    alignment = file.metadata.get("general.alignment", 32)
    return (
        all(key not in own and _is_plain(file.metadata[key]) for key in file.metadata)
        and all(tensor.type in kinds for tensor in file.tensors.values())
        and ("general.alignment" not in file.metadata or file.metadata.encoded("general.alignment").type == raw.U32)
        and 0 < alignment < 1 << 20
    )


def _is_plain(value: Any) -> bool:
    if isinstance(value, np.ndarray | list):
        return len(value) > 0 and not (isinstance(value, list) and isinstance(value[0], list | np.ndarray))
    return True


def _check_with_package(data: bytes, file: ParsedFile, values: dict[str, Any]) -> None:
    reader = gguf.GGUFReader(scratch("file.gguf", data))
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(fields) == list(values)
    for key, field in fields.items():
        _check_field(field, values[key])
    assert [tensor.name for tensor in reader.tensors] == list(file.tensors)
    for other, tensor in zip(reader.tensors, file.tensors.values(), strict=True):
        assert int(other.tensor_type) == int(tensor.type)
        assert tuple(int(size) for size in other.shape) == tensor.shape[::-1]
        assert (other.data_offset, other.n_bytes) == (tensor.offset, tensor.nbytes)


def _check_field(field: gguf.ReaderField, value: Any) -> None:
    parts = [field.parts[index] for index in field.data]
    if isinstance(value, str):
        assert bytes(parts[0]).decode(errors="replace") == value
    elif isinstance(value, list):
        assert [bytes(part).decode(errors="surrogateescape") for part in parts] == value
    elif isinstance(value, np.ndarray):
        assert b"".join(part.tobytes() for part in parts) == value.tobytes()
    else:
        assert equal(parts[0].tolist()[0], value)
