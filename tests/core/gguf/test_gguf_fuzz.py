"""Damaged files: GGUFError, or an object all of which can be read; never anything else."""

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.errors import GGUFError
from pumice.gguf import GGUFFile

Edit = Callable[[bytes], bytes]


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


def test_every_truncation_is_an_error(written: Path) -> None:
    content = written.read_bytes()
    last = max(tensor.offset + tensor.nbytes for tensor in GGUFFile.open(written).tensors.values())
    cut = written.with_name("cut.gguf")
    for n in range(4, last):
        cut.write_bytes(content[:n])
        with pytest.raises(GGUFError, match=r"^[^\n]*; is the file complete\? \(at byte \d+\)$"):
            GGUFFile.open(cut)
    cut.write_bytes(content[:last])
    assert read_all(cut), "the padding after the last tensor is not needed"


def test_every_flipped_bit(written: Path) -> None:
    content = written.read_bytes()
    flipped = written.with_name("flipped.gguf")
    for at in range(GGUFFile.open(written).tensors["vector"].offset):
        flipped.write_bytes(flip(at, at % 8)(content))
        read_all(flipped)


@given(st.lists(edits, min_size=1, max_size=4))
def test_edits(written: Path, changes: list[Edit]) -> None:
    content = written.read_bytes()
    for change in changes:
        content = change(content)
    edited = written.with_name("edited.gguf")
    edited.write_bytes(content)
    read_all(edited)
