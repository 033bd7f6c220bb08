"""Valid files: what is read is what was written, as the gguf package writes and reads it."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import gguf
import numpy as np
import pytest

import gguf_bytes as raw
from pumice.gguf import GGUFFile


def test_arrays(written: Path) -> None:
    assert_same_as_the_gguf_package(written)
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
    for key in fields.keys() - {"test.nested"}:  # which the package makes flat
        value, field = ours.metadata[key], fields[key]
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), key
    assert len(ours.tensors) == len(theirs.tensors)
    for mine, other in zip(ours.tensors.values(), theirs.tensors, strict=True):
        assert (mine.name, mine.type, mine.offset) == (other.name, other.tensor_type, other.data_offset)
        assert mine.shape == tuple(reversed(other.shape.tolist()))
        assert mine.data.tobytes() == other.data.tobytes()
        assert not mine.data.flags.writeable


@pytest.mark.parametrize("type", ["Q8_0", "F16", "Q2_K"])
def test_same_as_the_gguf_package(demo_model: Callable[[str], Path], type: str) -> None:
    assert_same_as_the_gguf_package(demo_model(type))


def test_reference_models_are_the_same_as_in_the_gguf_package(shared: Path) -> None:
    for path in [shared / "models/stories260K.gguf", *sorted(shared.glob("archs/*.gguf"))[:3]]:
        assert_same_as_the_gguf_package(path)
