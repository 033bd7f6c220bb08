"""The vocabulary of a GGUF file: its tokens, their kinds and scores, checked before use.

The keys are those of the GGUF specification, section "Tokenizer"
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.errors import TokenizerError

PREFIX = "tokenizer.ggml."

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass
class Vocabulary:
    """Tokens by id, ids by token, and the ids of each special kind.

    Of several tokens with the same text, which a few published files have, ``ids`` has the lowest.
    A token may be both control and user-defined; control takes precedence.
    """

    tokens: list[str]
    ids: dict[str, int]
    unknown: set[int] = field(default_factory=set)
    control: set[int] = field(default_factory=set)
    user_defined: set[int] = field(default_factory=set)
    byte: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    """Unused tokens and those of unknown kinds, which have no text."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Vocabulary":
        """Read ``tokenizer.ggml.tokens`` and ``token_type``, without which all tokens are normal."""
        tokens = strings(metadata, "tokens")
        if not tokens:
            raise TokenizerError(f"{PREFIX}tokens is empty: the file has no vocabulary")
        if "" in tokens:
            tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
        ids: dict[str, int] = {}
        for i, text in enumerate(tokens):
            ids.setdefault(text, i)
        vocabulary = cls(tokens, ids)
        kinds = numbers(metadata, "token_type", len(tokens))
        if kinds is not None:
            sets = {
                UNKNOWN: vocabulary.unknown,
                CONTROL: vocabulary.control,
                USER_DEFINED: vocabulary.user_defined,
                BYTE: vocabulary.byte,
            }
            for i, kind in enumerate(kinds):
                if kind != NORMAL:
                    sets.get(kind, vocabulary.silent).add(i)
            for i in vocabulary.byte:
                if not re.fullmatch("<0x[0-9A-Fa-f]{2}>", tokens[i]):
                    raise TokenizerError(f"{PREFIX}tokens: byte token {i} is {tokens[i]!r}, expected the form <0xNN>")
        return vocabulary

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def hidden(self) -> set[int]:
        """Control tokens and the unknown token, whose spelling is not part of a text."""
        return self.control | self.unknown

    @property
    def special(self) -> set[int]:
        """Tokens whose spelling is recognized in text before it is tokenized."""
        return self.hidden | self.user_defined


def byte_token(byte: int) -> str:
    """Return the spelling of a byte's token."""
    return f"<0x{byte:02X}>"


def value(metadata: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Return the value of ``tokenizer.ggml.<key>``, or ``default``.

    Raises TokenizerError unless its type is ``kind``.
    """
    item = metadata.get(PREFIX + key)
    if item is None:
        return default
    if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
        raise TokenizerError(f"{PREFIX}{key} is of type {type(item).__name__}, not {kind.__name__}")
    return item


def strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of strings ``tokenizer.ggml.<key>``. Raises TokenizerError."""
    items = metadata.get(PREFIX + key)
    if items is None:
        raise TokenizerError(f"{PREFIX}{key} is missing: the description of the tokenizer is incomplete")
    if not isinstance(items, Sequence) or isinstance(items, str) or set(map(type, items)) - {str}:
        raise TokenizerError(f"{PREFIX}{key} is not an array of strings")
    return check_unicode(list(items), PREFIX + key)


def numbers(metadata: Mapping[str, Any], key: str, n: int) -> list[Any] | None:
    """Return the array ``tokenizer.ggml.<key>`` of ``n`` numbers, or None if it is missing. Raises TokenizerError."""
    array = metadata.get(PREFIX + key)
    if array is None:
        return None
    try:
        values = array.tolist() if hasattr(array, "tolist") else list(array)
    except TypeError:
        values = [None]
    if not isinstance(values, list) or set(map(type, values)) - {int, float}:
        raise TokenizerError(f"{PREFIX}{key} is not an array of numbers")
    if len(values) != n:
        raise TokenizerError(f"{PREFIX}{key} has {len(values)} values for {n} tokens")
    return values


def check_unicode(texts: list[str], where: str) -> list[str]:
    """Return ``texts``. Raises TokenizerError if one contains a lone surrogate."""
    if not is_unicode("".join(texts)):
        bad = next(i for i, text in enumerate(texts) if not is_unicode(text))
        raise TokenizerError(f"{where}: text {bad} ({texts[bad]!a}) is not valid Unicode")
    return texts


def is_unicode(text: str) -> bool:
    """Return True if ``text`` has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
