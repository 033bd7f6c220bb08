"""Wrong and hostile files: one clear line, soon, and without taking memory."""

import os
import tracemalloc
from pathlib import Path
from struct import pack

import pytest

import gguf_bytes as raw
from pumice.errors import GGUFError
from pumice.gguf import GGMLType, GGUFFile, metadata
from waiting import seconds_of

HUGE = 2**63
FLOAT = pack("<f", 1)


def entry(type: int, value: bytes) -> bytes:
    return raw.gguf([raw.entry("key", type, value)])


def nested(depth: int) -> bytes:
    return pack("<IQ", raw.ARRAY, 1) * depth + raw.array(raw.U8, 1, b"\0")


def tensors(*infos: bytes, data: bytes = bytes(256)) -> bytes:
    return raw.gguf(tensors=infos, data=data)


CASES = {
    "not gguf": (b"PK\x03\x04" + bytes(60), "header: not a GGUF file"),
    "only magic": (b"GGUF", "version takes 4 bytes but the file ends after 0; is the file complete? (at byte 4)"),
    "version 1": (raw.gguf(version=1), "version 1 is no longer in use"),
    "version 4": (raw.gguf(version=4), "unknown version 4"),
    "version 0": (raw.gguf(version=0), "unknown version 0"),
    "big-endian": (b"GGUF" + pack(">IQQ", 3, 0, 0), "big-endian; convert it with gguf-convert-endian"),
    "tensor count": (raw.gguf(n_tensors=HUGE), f"number of tensors is {HUGE}, more than"),
    "tensor count beyond file": (raw.gguf(n_tensors=100), "number of tensors is 100, but only"),
    "entry count": (raw.gguf(n_entries=2**64 - 1), "number of metadata entries is"),
    "entry count beyond file": (raw.gguf(n_entries=100), "number of metadata entries is 100, but only"),
    "key length": (raw.gguf([pack("<Q", HUGE) + bytes(90)]), "metadata entry 0: length of key is"),
    "key empty": (raw.gguf([raw.entry("", raw.U8, b"\0")]), "metadata entry 0: key is empty (at byte 24)"),
    "key not text": (raw.gguf([raw.entry(b"\xff", raw.U8, b"\0")]), "key is not valid UTF-8"),
    "key twice": (raw.gguf([raw.entry("k", raw.U8, b"\0")] * 2), "metadata key 'k': appears twice"),
    "value type": (entry(13, bytes(64)), "metadata key 'key': unknown value type 13 (at byte 35)"),
    "bool": (entry(raw.BOOL, b"\x02"), "a bool is 2, expected 0 or 1 (at byte 39)"),
    "bool in array": (entry(raw.ARRAY, raw.array(raw.BOOL, 3, b"\0\1\7")), "a bool is 7, expected 0 or 1"),
    "string length": (entry(raw.STRING, pack("<Q", 10**6)), "length of string is 1000000, but only"),
    "array length": (entry(raw.ARRAY, raw.array(raw.F32, 10**9, b"")), "array length is 1000000000, but only"),
    "array length overflow": (entry(raw.ARRAY, raw.array(raw.F64, 2**61, b"")), "array length is"),
    "string array length": (entry(raw.ARRAY, raw.array(raw.STRING, 10**9, b"")), "array length is"),
    "string in array": (
        entry(raw.ARRAY, raw.array(raw.STRING, 2, raw.string("ab") + pack("<Q", HUGE))),
        f"string 1 of 2 takes {HUGE} bytes, past the end",
    ),
    "array cut short": (
        entry(raw.ARRAY, raw.array(raw.STRING, 3, raw.string("a" * 30)))[:-2],
        "metadata key 'key': string 1 of 3 begins after the end of the file",
    ),
    "array cut short by a byte": (
        raw.gguf([raw.entry("k", raw.ARRAY, raw.array(raw.STRING, 1, raw.string("abc")))], alignment=1)[:-1],
        "string 0 of 1 takes 3 bytes, past the end of the file",
    ),
    "array type": (entry(raw.ARRAY, raw.array(99, 1, bytes(64))), "unknown array element type 99"),
    "arrays in arrays": (entry(raw.ARRAY, nested(100_000)), "nested deeper than 4 levels"),
    "alignment zero": (
        raw.gguf([raw.entry("general.alignment", raw.U32, bytes(4))]),
        "metadata key 'general.alignment': 0 is not a power of two",
    ),
    "alignment 24": (raw.gguf([raw.entry("general.alignment", raw.U32, pack("<I", 24))]), "24 is not a power of two"),
    "alignment type": (raw.gguf([raw.entry("general.alignment", raw.STRING, raw.string("32"))]), "'32' is not a power"),
    "alignment beyond file": (
        raw.gguf([raw.entry("general.alignment", raw.U64, pack("<Q", HUGE))], [raw.tensor("t", [1])], FLOAT),
        "tensor 't': its 4 bytes exceed the file's",
    ),
    "tensor name length": (tensors(raw.tensor("n" * 128, [1])), "tensor 0: length of name is 128, more than"),
    "tensor name empty": (tensors(raw.tensor("", [1])), "tensor 0: name is empty"),
    "tensor name not text": (tensors(raw.tensor(b"\x80", [1])), "tensor 0: name is not valid UTF-8"),
    "tensor twice": (tensors(raw.tensor("t", [1]), raw.tensor("t", [1], 0, 32)), "tensor 't': appears twice"),
    "no dimensions": (tensors(raw.tensor("t", [])), "tensor 't': 0 dimensions, expected 1 to 4"),
    "too many dimensions": (tensors(raw.tensor("t", [1] * 5)), "5 dimensions"),
    "huge number of dimensions": (tensors(raw.tensor("t", [1], n_dims=2**32 - 1)), "4294967295 dimensions"),
    "dimension zero": (tensors(raw.tensor("t", [4, 0])), "a dimension of 4 x 0 is zero"),
    "size overflow": (tensors(raw.tensor("t", [2**32, 2**32, 2**32])), "; is the file complete?"),
    "size wraps to zero": (tensors(raw.tensor("t", [2**62, 4])), "more than the file"),
    "tensor type": (tensors(raw.tensor("t", [32], type=4)), "tensor 't': unknown tensor type 4"),
    "part of a block": (tensors(raw.tensor("t", [33], GGMLType.Q4_0)), "33 is not a whole number of Q4_0 blocks of 32"),
    "offset unaligned": (tensors(raw.tensor("t", [1], offset=4)), "offset 4 is not a multiple of the alignment"),
    "offset beyond file": (tensors(raw.tensor("t", [1], offset=2**64 - 32)), "exceed the file's"),
    "data cut short": (tensors(raw.tensor("t", [64]), data=bytes(255)), "is the file complete?"),
    "overlap": (tensors(raw.tensor("a", [9], offset=32), raw.tensor("b", [9])), "tensor 'a': overlaps tensor 'b'"),
    "same data twice": (tensors(raw.tensor("a", [1]), raw.tensor("b", [1])), "tensor 'b': overlaps tensor 'a'"),
    "control characters": (tensors(raw.tensor("a\n\x1b[2J", [1], 4)), r"tensor 'a\n\x1b[2J': unknown"),
}


@pytest.mark.parametrize(("content", "message"), CASES.values(), ids=CASES.keys())
def test_wrong_content(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError) as caught:
        GGUFFile.open(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert message in text
    assert " (at byte " in text
    assert "\n" not in text


N = 1 << 16
LARGE = {  # as much as a file of a megabyte or so can ask for; the wrong part comes last
    "empty strings": raw.gguf([raw.entry("k", raw.ARRAY, raw.array(raw.STRING, N + 9, bytes(8 * N)))]),
    "strings in many arrays": raw.gguf(
        [raw.entry(f"k{i}", raw.ARRAY, raw.array(raw.STRING, 999, bytes(8 * 999))) for i in range(100)] + [b"end"]
    ),
    "arrays": raw.gguf([raw.entry("k", raw.ARRAY, raw.array(raw.ARRAY, N, pack("<IQ", raw.U8, 0) * N)), b"end"]),
    "entries": raw.gguf([raw.entry(pack("<H", i), raw.U8, b"\0") for i in range(128)] * 500),
    "numbers": raw.gguf([raw.entry("k", raw.ARRAY, raw.array(raw.U8, 1 << 20, bytes(1 << 20))), b"end"]),
    "tensors": tensors(*(raw.tensor(f"{i}", [1], 0, 32 * i) for i in range(20_000))),
    "overlapping tensors": tensors(*(raw.tensor(f"{i}", [1]) for i in range(20_000))),
}


@pytest.mark.parametrize("content", LARGE.values(), ids=LARGE.keys())
def test_large_wrong_files_cost_little(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(content)

    def refuse() -> None:
        with pytest.raises(GGUFError):
            GGUFFile.open(path)

    assert seconds_of(refuse, 1.0) < 1.0
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError):
            GGUFFile.open(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(content) + (1 << 20)


def test_too_many_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_STRINGS", 9)
    path = tmp_path / "strings.gguf"
    five = raw.array(raw.STRING, 5, bytes(8 * 5))
    path.write_bytes(raw.gguf([raw.entry("a", raw.ARRAY, five), raw.entry("b", raw.ARRAY, five)]))
    with pytest.raises(GGUFError, match="metadata key 'b': more than 9 strings in arrays"):
        GGUFFile.open(path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, message in [
        ("missing.gguf", "no such file"),
        ("empty.gguf", "expected a GGUF file, but this file is empty"),
        ("", "expected a GGUF file, but this is a directory"),
        ("pipe", "not a regular file"),
        ("empty.gguf/inside", "not a directory"),
        ("n" * 300, "file name too long"),
    ]:
        with pytest.raises(GGUFError) as caught:
            GGUFFile.open(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {message}"
    with pytest.raises(GGUFError, match="null"):
        GGUFFile.open("a\0b")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_permission_denied(tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(raw.gguf())
    path.chmod(0)
    with pytest.raises(GGUFError, match="permission denied"):
        GGUFFile.open(path)


def test_architecture_missing(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(raw.gguf())
    with pytest.raises(GGUFError, match=r"general\.architecture"):
        _ = GGUFFile.open(path).architecture
