"""Models in several files."""

from pathlib import Path
from struct import pack

import gguf
import numpy as np
import pytest

import gguf_bytes as raw
from pumice.errors import GGUFError
from pumice.gguf import GGUFFile


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three files with two tensors each, as the gguf package splits them."""
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    for i in range(6):
        writer.add_tensor(f"t{i}", np.full((2, 3), i, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("model-*-of-00003.gguf"))
    assert len(paths) == 3
    return paths


def part(no: int, count: int, *names: str, total: int | None = None) -> bytes:
    entries = [raw.entry("split.no", raw.U16, pack("<H", no)), raw.entry("split.count", raw.U16, pack("<H", count))]
    if total is not None:
        entries.append(raw.entry("split.tensors.count", raw.I32, pack("<i", total)))
    infos = [raw.tensor(name, [1], offset=32 * i) for i, name in enumerate(names)]
    return raw.gguf(entries, infos, bytes(32 * len(names)))


@pytest.mark.parametrize("index", range(3))
def test_any_part_opens_all(parts: list[Path], index: int) -> None:
    file = GGUFFile.open(parts[index])
    assert file.path == parts[0]
    assert file.architecture == "llama"
    assert file.n_bytes == sum(path.stat().st_size for path in parts)
    assert list(file.tensors) == [f"t{i}" for i in range(6)]
    assert [tensor.dequantize()[0, 0] for tensor in file.tensors.values()] == list(range(6))


@pytest.mark.parametrize("missing", range(3))
def test_missing_part(parts: list[Path], missing: int) -> None:
    parts[missing].unlink()
    with pytest.raises(GGUFError, match=f"no such file; it is part {missing + 1} of 3") as caught:
        GGUFFile.open(parts[missing - 1])
    assert str(caught.value).startswith(f"{parts[missing]}: ")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (part(0, 2, "a"), part(1, 2, "a"), "tensor 'a' is also in m-00001-of-00002.gguf"),
        (part(0, 2, "a", total=3), part(1, 2, "b"), "'split.tensors.count' is 3 but the parts together have 2"),
        (part(0, 2, "a"), part(1, 3, "b"), "'split.count' is 3 but its name and the other parts say 2"),
        (part(0, 2, "a"), part(0, 2, "b"), "'split.no' is 0 but its name and the other parts say 1"),
        (part(0, 2, "a"), raw.gguf(), "'split.no' is missing"),
        (part(0, 2, "a"), b"GGUF", "version takes 4 bytes"),
        (part(0, 65535, "a"), part(1, 2, "b"), "this is part 1 of 65535; name it like"),
        (raw.gguf([raw.entry("split.count", raw.STRING, raw.string("2"))]), b"", "'split.count' is '2'"),
        (raw.gguf([raw.entry("split.count", raw.U64, pack("<Q", 2**63))]), b"", "'split.no' is missing"),
    ],
)
def test_parts_that_disagree(tmp_path: Path, first: bytes, second: bytes, message: str) -> None:
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(first)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(GGUFError) as caught:
        GGUFFile.open(tmp_path / "m-00001-of-00002.gguf")
    assert message in str(caught.value)
