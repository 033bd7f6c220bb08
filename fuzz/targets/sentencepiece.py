"""SentencePiece models (protocol buffers): an error, or pieces that survive a round trip."""

import struct
from collections.abc import Iterable
from pathlib import Path

from fuzz.files import scratch
from pumice.convert.vocabulary.sentencepiece import ModelFile
from pumice.errors import ConvertError

MODULES = ("pumice.convert.vocabulary.sentencepiece",)
TOKENS = (
    b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\2",
    b"\x12\2\x18\1",
    b"\x12\2\x18\2",
    b"\x1a\4\x12\2ab",
    b"\xff" * 9 + b"\1",
)
_FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "conversions"
MAX_LEN = 3000


def seeds() -> Iterable[bytes]:
    pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("<0x41>", 0.0, 6),
        ("\u2581a", -1.5, 1),
        ("b", -2.0, 4),
        ("", -3.0, 5),
    ]
    for model_type in (1, 2):
        yield written(pieces) + b"\x12\2\x18" + bytes([model_type]) + b"\x1a\x08\x12\2ab\x18\0\x20\1"
    yield (_FIXTURES / "spm" / "tokenizer.model").read_bytes()[:1500]
    yield (_FIXTURES / "unigram" / "spiece.model").read_bytes()[-2000:]


def written(pieces: Iterable[tuple[str, float, int]]) -> bytes:
    """Encode the pieces of a model as a protocol buffer message."""
    data = b""
    for text, score, kind in pieces:
        raw = text.encode("utf-8", "surrogateescape")
        piece = b"\x0a" + _varint(len(raw)) + raw + b"\x15" + struct.pack("<f", score) + b"\x18" + _varint(kind)
        data += b"\x0a" + _varint(len(piece)) + piece
    return data


def _varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def check(data: bytes) -> None:
    try:
        model = ModelFile(scratch("tokenizer.model", data))
        pieces = model.pieces()
    except ConvertError as error:
        assert str(error).isprintable(), str(error)
        return
    assert isinstance(model.charsmap, bytes)
    again = ModelFile(scratch("tokenizer.model", written(pieces))).pieces()
    assert [_comparable(piece) for piece in again] == [_comparable(piece) for piece in pieces]


def _comparable(piece: tuple[str, float, int]) -> tuple[str, bytes, int]:
    text, score, kind = piece
    return text, b"nan" if score != score else struct.pack("<f", score), kind
