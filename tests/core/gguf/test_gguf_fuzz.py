"""Damaged files: GGUFError, or an object all of which can be read; never anything else."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.errors import GGUFError
from pumice.gguf import GGMLType, GGUFFile

Edit = Callable[[bytes], bytes]


def write(path: Path, split_max_tensors: int = 0) -> None:
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split_max_tensors)
    writer.add_custom_alignment(64)
    writer.add_bool("a.bool", True)
    writer.add_float64("a.double", 0.25)
    writer.add_array("tokens", ["<s>", "", "ü", "abc"])
    writer.add_array("scores", [0.5, 1.0, 2.0])
    writer.add_array("flags", [True, False])
    writer.add_array("nested", [["x"], ["y", "z"]])
    rng = np.random.default_rng(0)
    writer.add_tensor("vector", rng.standard_normal(3).astype(np.float32))
    for type in (GGMLType.Q4_0, GGMLType.BF16, GGMLType.Q8_0):
        blocks = gguf.quants.quantize(rng.standard_normal((2, 32)).astype(np.float32), type)
        writer.add_tensor(f"blk.0.{type.name}", blocks, raw_dtype=type)
    writer.add_tensor("ids", np.arange(12, dtype=np.int32).reshape(3, 2, 2))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "valid.gguf"
    write(path)
    return path


def read_all(path: Path) -> bool:
    """Whether the file is valid; then everything in it has been touched."""
    try:
        file = GGUFFile.open(path)
    except GGUFError as error:
        check_message(path, str(error))
        return False
    for key in file.metadata:
        _ = file.metadata[key]
    size = 0
    for tensor in file.tensors.values():
        size += int(tensor.data.size)
        assert tensor.data.size == tensor.nbytes
        assert tensor.dequantize().shape == tensor.shape
    assert size <= file.n_bytes
    return True


def check_message(path: Path, message: str) -> None:
    assert message.startswith(str(path.parent))
    assert "\n" not in message


def truncate(at: int) -> Edit:
    return lambda content: content[: at % (len(content) + 1)]


def flip(at: int, bit: int) -> Edit:
    def edit(content: bytes) -> bytes:
        changed = bytearray(content)
        if changed:
            changed[at % len(changed)] ^= 1 << bit
        return bytes(changed)

    return edit


def splice(at: int, remove: int, insert: bytes) -> Edit:
    def edit(content: bytes) -> bytes:
        start = at % (len(content) + 1)
        return content[:start] + insert + content[start + remove :]

    return edit


def duplicate(source: int, n: int, at: int) -> Edit:
    def edit(content: bytes) -> bytes:
        start = source % (len(content) + 1)
        return splice(at, n, content[start : start + n])(content)

    return edit


# Most bytes of the files are data; what can go wrong is in the first kilobyte.
places = st.integers(0, 1000) | st.integers(0, 1 << 14)
words = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 64)
numbers = st.builds(lambda word: pack("<Q", word), words) | st.builds(lambda word: pack("<I", word % 2**32), words)
edits = st.one_of(
    st.builds(truncate, places),
    st.builds(flip, places, st.integers(0, 7)),
    st.builds(lambda at, number: splice(at, len(number), number), places, numbers),
    st.builds(splice, places, st.integers(0, 40), st.binary(max_size=40)),
    st.builds(duplicate, places, st.integers(1, 200), places),
)


def test_every_truncation_is_an_error(valid: Path) -> None:
    content = valid.read_bytes()
    last = max(tensor.offset + tensor.nbytes for tensor in GGUFFile.open(valid).tensors.values())
    cut = valid.with_name("cut.gguf")
    for n in range(4, last):
        cut.write_bytes(content[:n])
        with pytest.raises(GGUFError, match=r"^[^\n]*; is the file complete\? \(at byte \d+\)$"):
            GGUFFile.open(cut)
    cut.write_bytes(content[:last])
    assert read_all(cut), "the padding after the last tensor is not needed"


def test_every_flipped_bit(valid: Path) -> None:
    content = valid.read_bytes()
    flipped = valid.with_name("flipped.gguf")
    for at in range(GGUFFile.open(valid).tensors["vector"].offset):
        flipped.write_bytes(flip(at, at % 8)(content))
        read_all(flipped)


@given(st.lists(edits, min_size=1, max_size=4))
def test_edits(valid: Path, changes: list[Edit]) -> None:
    content = valid.read_bytes()
    for change in changes:
        content = change(content)
    edited = valid.with_name("edited.gguf")
    edited.write_bytes(content)
    read_all(edited)
