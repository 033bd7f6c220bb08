"""The list of tokens and their types, as GGUF stores it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pumice.convert.folder import Folder
from pumice.errors import ConvertError
from pumice.gguf import EncodedValue, encode

logger = logging.getLogger("pumice")

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
PAD_SCORE, ADDED_SCORE = -10000.0, -1000.0  # SentencePiece log-probabilities of padding and of added tokens

MAX_TOKENS = 1 << 22  # of a vocabulary; the largest published ones have a sixteenth as many

# Control tokens that some files do not mark as such.
_CONTROL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)


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
    """Tokens by id; ids that are not set are padding. Raises ConvertError for too many tokens."""

    n: int
    scored: bool = False
    tokens: list[bytes] = field(init=False)
    types: list[int] = field(init=False)
    scores: list[float] = field(init=False)
    left_out: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.n > MAX_TOKENS:
            raise ConvertError(f"a vocabulary of {self.n} tokens exceeds the limit of {MAX_TOKENS}")
        self.tokens = [b"[PAD%d]" % i for i in range(self.n)]
        self.types = [TokenType.UNUSED] * self.n
        self.scores = [PAD_SCORE] * self.n

    def set(self, id: int, text: str, type: TokenType, score: float = ADDED_SCORE) -> None:
        """Set a token. Ids beyond the list, for which the model has no row, are left out."""
        if 0 <= id < self.n:
            self.tokens[id], self.types[id], self.scores[id] = text.encode("utf-8", "surrogateescape"), type, score
        else:
            self.left_out[id] = text

    def add(self, id: int, text: str, special: bool) -> None:
        """Set an added token: a control token, or text that is always one token."""
        if special or _CONTROL.fullmatch(text):
            self.set(id, text, TokenType.CONTROL)
        else:
            self.set(id, text.replace(SPACE, " "), TokenType.USER_DEFINED)

    def add_control(self, texts: Mapping[int, str]) -> None:
        """Set control tokens by id."""
        for id, text in texts.items():
            self.set(id, text, TokenType.CONTROL)

    def metadata(self, model: str, pre: str) -> dict[str, Any]:
        """Return the keys ``tokenizer.ggml.*``."""
        if self.left_out:
            id, text = next(iter(self.left_out.items()))
            logger.warning("%d tokens of the tokenizer are left out, since the model has only %d; the first is %d, %r",
                           len(self.left_out), self.n, id, text)  # fmt: skip
        keys: dict[str, EncodedValue] = {
            "tokenizer.ggml.model": encode(model),
            "tokenizer.ggml.pre": encode(pre),
            "tokenizer.ggml.tokens": encode(self.tokens, "str[]"),
        }
        if self.scored:
            keys["tokenizer.ggml.scores"] = encode([float(score) for score in self.scores], "f32[]")
        keys["tokenizer.ggml.token_type"] = encode([int(type) for type in self.types], "i32[]")
        return dict(keys)


def added_ids(folder: Folder) -> dict[str, int]:
    """Return ids by text of the tokens added to a vocabulary."""
    added = folder.optional_json("tokenizer.json").get("added_tokens")
    ids = {str(entry.get("content")): entry.get("id") for entry in added or () if isinstance(entry, dict)}
    ids |= {text: id for id, text, _ in added_tokens(folder.optional_json("tokenizer_config.json"))}
    return {text: id for text, id in ids.items() if isinstance(id, int)}


def added_tokens(config: Mapping[str, Any]) -> list[tuple[int, str, bool]]:
    """Return id, text and special flag of each token that ``tokenizer_config.json`` adds."""
    entries = config.get("added_tokens_decoder")
    rows = []
    for id, entry in entries.items() if isinstance(entries, dict) else ():
        if str(id).isdigit() and isinstance(entry, dict) and isinstance(entry.get("content"), str):
            rows.append((int(id), entry["content"], bool(entry.get("special"))))
    return rows
