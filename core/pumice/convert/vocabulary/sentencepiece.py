"""Convert SentencePiece from ``tokenizer.model``, or from a ``tokenizer.json`` derived from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import error as struct_error
from struct import unpack
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import FILE as FAST_FILE
from pumice.convert.vocabulary.bpe import load_fast
from pumice.convert.vocabulary.tokens import ADDED_SCORE, TokenList, TokenType, added_tokens
from pumice.convert.written import special_tokens
from pumice.errors import ConvertError

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

FILE = "tokenizer.model"
MAX_BYTES = 1 << 27  # of a tokenizer.model
# Field numbers and piece types of sentencepiece_model.proto (https://github.com/google/sentencepiece).
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARSMAP, _ADDS_SPACE, _JOINS_SPACES = 2, 3, 4
_TYPES = {
    1: TokenType.NORMAL, 2: TokenType.UNKNOWN, 3: TokenType.CONTROL, 5: TokenType.UNUSED, 6: TokenType.BYTE,
    4: TokenType.NORMAL,  # user-defined, which SentencePiece's own tokenizer treats as an ordinary token
}  # fmt: skip
_BYTE_TOKEN = "<0x{:02X}>"
GEMMA4_SHOWN = {
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>',
}  # fmt: skip


def sentencepiece(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of ``tokenizer.model``, or None without one."""
    if not folder.has(FILE):
        return None
    pieces = ModelFile(folder.path / FILE).pieces()
    tokens = TokenList(conversion.n_vocab(len(pieces)), scored=True)
    for id, (text, score, type) in enumerate(pieces):
        tokens.set(id, text, type, score)
    added_pieces(folder, tokens)
    return _metadata(folder, conversion, tokens)


def added_pieces(folder: Folder, tokens: TokenList) -> None:
    """Add the tokens of ``added_tokens.json``."""
    for text, id in folder.optional_json("added_tokens.json").items():
        if isinstance(id, int):
            tokens.set(id, text, TokenType.USER_DEFINED)


def fast_sentencepiece(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of a ``tokenizer.json`` with byte fallback, or None without one.

    Scores decrease in the order of the merges, so that merging by score equals merging by rank.
    """
    tokens = _fast_tokens(folder, conversion)
    return None if tokens is None else _metadata(folder, conversion, tokens)


def gemma4(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of Gemma 4's tokenizer: SentencePiece's pieces, merged by rank; marks of turns are text."""
    tokens = _fast_tokens(folder, conversion)
    if tokens is None:
        return None
    tokens.scores = [ADDED_SCORE] * tokens.n
    for id, text in enumerate(tokens.tokens):
        if text.decode("utf-8", "surrogateescape") in GEMMA4_SHOWN:
            tokens.types[id] = TokenType.USER_DEFINED
        elif tokens.types[id] == TokenType.UNKNOWN:
            tokens.types[id] = TokenType.CONTROL
    made = tokens.metadata("gemma4", "")
    del made["tokenizer.ggml.pre"]
    return made | special_tokens(folder.path, conversion.architecture, tokens.n, merges=True)


def _fast_tokens(folder: Folder, conversion: Conversion) -> TokenList | None:
    from tokenizers.models import BPE

    tokenizer = load_fast(folder)
    if tokenizer is None or not isinstance(tokenizer.model, BPE) or not tokenizer.model.byte_fallback:
        return None
    model = folder.json(FAST_FILE)["model"]
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=False)
    made = [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges", ())]
    ranks = {"".join(pair.split(" ", 1)): -float(rank) for rank, pair in reversed(list(enumerate(made, 1)))}
    tokens = TokenList(conversion.n_vocab(len(ids)), scored=True)
    bytes_ = {_BYTE_TOKEN.format(byte) for byte in range(256)}
    for text, id in ids.items():
        type = TokenType.BYTE if text in bytes_ else TokenType.NORMAL
        tokens.set(id, text, type, ranks.get(text, 0.0 if type is TokenType.BYTE else -float(len(made) + 1)))
    for id, token in tokenizer.get_added_tokens_decoder().items():
        if token.content == model.get("unk_token"):
            tokens.set(id, token.content, TokenType.UNKNOWN, 0.0)
        else:
            tokens.add(id, token.content, token.special)
    return tokens


def _metadata(folder: Folder, conversion: Conversion, tokens: TokenList) -> dict[str, Any]:
    for id, text, special in added_tokens(folder.optional_json("tokenizer_config.json")):
        tokens.add(id, text, special)
    return tokens.metadata("llama", "default") | special_tokens(
        folder.path, conversion.architecture, tokens.n, merges=False
    )


class ModelFile:
    """A SentencePiece model, a Protocol Buffers message. Raises ConvertError if it is invalid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
        with self._reading():
            self._fields = list(_fields(data))
            parts = dict(self._fields)
            trainer = dict(_fields(parts.get(_TRAINER, b"")))
            normalizer = dict(_fields(parts.get(_NORMALIZER, b"")))
            if not isinstance(normalizer.get(_CHARSMAP, b""), bytes):
                raise ValueError("its charsmap is not bytes")
        self.is_unigram = trainer.get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM
        self.charsmap: bytes = normalizer.get(_CHARSMAP, b"")
        self.adds_space = bool(normalizer.get(_ADDS_SPACE, True))
        self.joins_spaces = bool(normalizer.get(_JOINS_SPACES, True))

    def pieces(self) -> list[tuple[str, float, TokenType]]:
        """Return text, score and type of each piece."""
        rows = []
        with self._reading():
            for field, value in self._fields:
                if field == _PIECES:
                    piece = dict(_fields(value))
                    text, score = piece[_PIECE].decode("utf-8", "surrogateescape"), piece.get(_SCORE, bytes(4))
                    rows.append((text, unpack("<f", score)[0], _TYPES[piece.get(_TYPE, 1)]))
        return rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (IndexError, KeyError, AttributeError, ValueError, TypeError, struct_error) as error:
            raise ConvertError(f"{self.path}: not a SentencePiece model: {error or type(error).__name__}") from None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message (https://protobuf.dev/programming-guides/encoding)."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(n: int) -> bytes:
        nonlocal position
        if n > len(data) - position:
            raise ValueError(f"a field of {n} bytes exceeds the file")
        position += n
        return data[position - n : position]

    while position < len(data):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                yield key >> 3, take(8)
            case 2:
                yield key >> 3, take(varint())
            case 5:
                yield key >> 3, take(4)
            case wire:
                raise ValueError(f"unknown wire type {wire}")
