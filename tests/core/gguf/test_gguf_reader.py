"""Valid files: what is read is what was written, as the gguf package writes and reads it."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import gguf
import numpy as np
import pytest

import gguf_bytes as raw
from pumice.gguf import GGMLType, GGUFFile

SCALARS = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "float32": 0.5,
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float64": 0.1,
    "bool": True,
    "string": "日本 🙂",
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for kind, value in SCALARS.items():
        getattr(writer, f"add_{kind}")(f"test.{kind}", value)
    writer.add_array("test.strings", ["a", "", "ü", "long " * 100])
    writer.add_array("test.ints", [1, 2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    writer.add_array("test.bools", [True, False, True])
    writer.add_array("test.nested", [[1, 2], [3]])
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(12, dtype=np.float16).reshape(3, 4))
    writer.add_tensor("cube", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    blocks = gguf.quants.quantize(np.ones((2, 64), np.float32), GGMLType.Q4_0)
    writer.add_tensor("quantized", blocks, raw_dtype=GGMLType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_arrays(written: Path) -> None:
    metadata = GGUFFile.open(written).metadata
    assert metadata["test.strings"] == ["a", "", "ü", "long " * 100]
    assert metadata["test.strings"] is metadata["test.strings"], "decoded more than once"
    for key, dtype, values in [
        ("test.ints", np.int32, [1, 2, 3]),
        ("test.floats", np.float32, [0.5, -1.5]),
        ("test.bools", np.bool_, [True, False, True]),
    ]:
        assert metadata[key].dtype == dtype
        assert metadata[key].tolist() == values
        assert not metadata[key].flags.writeable
    assert [part.tolist() for part in metadata["test.nested"]] == [[1, 2], [3]]


def test_tensors(written: Path) -> None:
    file = GGUFFile.open(written)
    assert list(file.tensors) == ["vector", "matrix", "cube", "quantized"]
    cube = file.tensors["cube"]
    assert (cube.type, cube.shape, cube.nbytes) == (GGMLType.I32, (2, 3, 4), 96)
    assert cube.data.shape == (2, 3, 16)
    assert not cube.data.flags.writeable
    assert np.array_equal(cube.dequantize(), np.arange(24).reshape(2, 3, 4))
    assert file.tensors["vector"].data.shape == (20,)
    assert np.array_equal(file.tensors["matrix"].dequantize(), np.arange(12).reshape(3, 4))
    quantized = file.tensors["quantized"]
    assert (quantized.shape, quantized.data.shape) == ((2, 64), (2, 36))
    assert np.array_equal(quantized.dequantize(), np.ones((2, 64)))
    raw_bytes = written.read_bytes()
    for tensor in file.tensors.values():
        assert tensor.data.tobytes() == raw_bytes[tensor.offset : tensor.offset + tensor.nbytes]


def test_data_outlives_the_file_object(written: Path) -> None:
    with GGUFFile.open(written) as file:
        ints, data, metadata = file.metadata["test.ints"], file.tensors["cube"].data, file.metadata
    assert len(file.tensors) == 0
    assert ints.tolist() == [1, 2, 3]
    assert data.sum() == sum(range(24))
    assert metadata["test.strings"][2] == "ü"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [None, 1, 8, 4096])
def test_versions_and_alignments(tmp_path: Path, version: int, alignment: int | None) -> None:
    entries = [raw.entry("general.alignment", raw.U32, pack("<I", alignment))] if alignment else []
    content = raw.gguf(entries, [raw.tensor("t", [2])], pack("<2f", 1, 2), version=version, alignment=alignment or 32)
    path = tmp_path / "aligned.gguf"
    path.write_bytes(content)
    file = GGUFFile.open(path)
    assert (file.version, file.alignment) == (version, alignment or 32)
    assert file.tensors["t"].dequantize().tolist() == [1, 2]
    assert file.tensors["t"].dequantize().flags.aligned


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "bytes.gguf"
    strings = [b"\xff", b"\xfe", "é".encode()]
    path.write_bytes(
        raw.gguf(
            [
                raw.entry("tokens", raw.ARRAY, raw.array(raw.STRING, 3, b"".join(map(raw.string, strings)))),
                raw.entry("name", raw.STRING, raw.string(b"caf\xe9")),
            ]
        )
    )
    metadata = GGUFFile.open(path).metadata
    assert [token.encode("utf-8", "surrogateescape") for token in metadata["tokens"]] == strings
    assert metadata["name"] == "caf\N{REPLACEMENT CHARACTER}"


def assert_same_as_the_gguf_package(path: Path) -> None:
    ours, theirs = GGUFFile.open(path), gguf.GGUFReader(path)
    fields = {key: field for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for key, field in fields.items():
        value = ours.metadata[key]
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors)
    for mine, other in zip(ours.tensors.values(), theirs.tensors, strict=True):
        assert (mine.name, mine.type, mine.offset) == (other.name, other.tensor_type, other.data_offset)
        assert mine.shape == tuple(reversed(other.shape.tolist()))
        assert mine.data.tobytes() == other.data.tobytes()


@pytest.mark.parametrize("type", ["Q8_0", "F16", "Q2_K"])
def test_same_as_the_gguf_package(demo_model: Callable[[str], Path], type: str) -> None:
    assert_same_as_the_gguf_package(demo_model(type))


def test_reference_models_are_the_same_as_in_the_gguf_package(shared: Path) -> None:
    for path in [shared / "models/stories260K.gguf", *sorted(shared.glob("archs/*.gguf"))[:3]]:
        assert_same_as_the_gguf_package(path)
