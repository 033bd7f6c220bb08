"""A list of tokens with their types, as GGUF has it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pumice.convert.folder import Folder
from pumice.errors import ConvertError
from pumice.gguf import Encoded, encode

logger = logging.getLogger("pumice")

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
PAD_SCORE, ADDED_SCORE = -10000.0, -1000.0  # of SentencePiece, logarithms: of no token, of one added later

MOST_TOKENS = 1 << 22  # of a vocabulary; the field's largest have a sixteenth as many

# Tokens that steer, though some files do not say so.
_STEERING = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass
class TokenList:
    """Tokens by id; those that nobody sets are padding. ConvertError for more than any vocabulary has."""

    n: int
    scored: bool = False
    tokens: list[bytes] = field(init=False)
    types: list[int] = field(init=False)
    scores: list[float] = field(init=False)
    left_out: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.n > MOST_TOKENS:
            raise ConvertError(f"a vocabulary of {self.n} tokens is too large: at most {MOST_TOKENS}")
        self.tokens = [b"[PAD%d]" % i for i in range(self.n)]
        self.types = [TokenType.UNUSED] * self.n
        self.scores = [PAD_SCORE] * self.n

    def set(self, id: int, text: str, type: TokenType, score: float = ADDED_SCORE) -> None:
        """One token; ids beyond the list, which the model has no row for, are left out."""
        if 0 <= id < self.n:
            self.tokens[id], self.types[id], self.scores[id] = text.encode("utf-8", "surrogateescape"), type, score
        else:
            self.left_out[id] = text

    def add(self, id: int, text: str, special: bool) -> None:
        """One that was added to the vocabulary: it steers, or is text that is always one token."""
        if special or _STEERING.fullmatch(text):
            self.set(id, text, TokenType.CONTROL)
        else:
            self.set(id, text.replace(SPACE, " "), TokenType.USER_DEFINED)

    def add_control(self, texts: Mapping[int, str]) -> None:
        """Those that steer, by id."""
        for id, text in texts.items():
            self.set(id, text, TokenType.CONTROL)

    def metadata(self, model: str, pre: str) -> dict[str, Any]:
        """Keys ``tokenizer.ggml.*``."""
        if self.left_out:
            id, text = next(iter(self.left_out.items()))
            logger.warning("%d tokens of the tokenizer are left out, as the model has %d: %d, %r, is the first",
                           len(self.left_out), self.n, id, text)  # fmt: skip
        found: dict[str, Encoded] = {
            "tokenizer.ggml.model": encode(model),
            "tokenizer.ggml.pre": encode(pre),
            "tokenizer.ggml.tokens": encode(self.tokens, "str[]"),
        }
        if self.scored:
            found["tokenizer.ggml.scores"] = encode([float(score) for score in self.scores], "f32[]")
        found["tokenizer.ggml.token_type"] = encode([int(type) for type in self.types], "i32[]")
        return dict(found)


def added_ids(folder: Folder) -> dict[str, int]:
    """Id by text of the tokens that were added to a vocabulary."""
    added = folder.optional_json("tokenizer.json").get("added_tokens")
    found = {str(each.get("content")): each.get("id") for each in added or () if isinstance(each, dict)}
    found |= {text: id for id, text, _ in added_tokens(folder.optional_json("tokenizer_config.json"))}
    return {text: id for text, id in found.items() if isinstance(id, int)}


def added_tokens(config: Mapping[str, Any]) -> list[tuple[int, str, bool]]:
    """Id, text and whether it is special of each token that ``tokenizer_config.json`` adds."""
    entries = config.get("added_tokens_decoder")
    found = []
    for id, entry in entries.items() if isinstance(entries, dict) else ():
        if str(id).isdigit() and isinstance(entry, dict) and isinstance(entry.get("content"), str):
            found.append((int(id), entry["content"], bool(entry.get("special"))))
    return found
