r"""RWKV's tokenizer (GGUF's tokenizer model "rwkv"): greedy longest match over bytes.

Tokens are bytes in Python's escaped notation: ``\t``, ``\n``, ``\r``, ``\\``, ``\x1b``.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)
_CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}

# Number of bytes by which the possible lengths of a token are looked up.
_HEAD = 2


class RWKVTokenizer(Tokenizer):
    """Greedy longest match over bytes; text is not normalized, and no tokens are added around it."""

    kind: ClassVar[str] = "rwkv"

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        special = SpecialTokens.from_metadata(metadata, vocabulary)
        super().__init__(metadata, vocabulary, special=special, add_bos=False)

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Token ids by their bytes, except control tokens; of several spellings the last one counts."""
        control = self.vocabulary.control
        return {self._decode(text): i for text, i in self.vocabulary.ids.items() if i not in control}

    @cached_property
    def _lengths(self) -> dict[bytes, list[int]]:
        """Lengths of the tokens with the given first bytes, longest first."""
        lengths: defaultdict[bytes, set[int]] = defaultdict(set)
        for piece in self._ids:
            lengths[piece[:_HEAD]].add(len(piece))
        return {head: sorted(sizes, reverse=True) for head, sizes in lengths.items()}

    def _encode(self, text: str) -> list[int]:
        data, vocabulary, lengths = text.encode(), self._ids, self._lengths
        ids: list[int] = []
        start = 0
        while start < len(data):
            for length in lengths.get(data[start : start + _HEAD], ()):
                token = vocabulary.get(data[start : start + length])
                if token is not None:
                    break
            else:
                token, length = vocabulary.get(data[start : start + 1], self.unk), 1
            if token is not None:
                ids.append(token)
            start += length
        return ids

    def _before(self) -> list[int]:
        return []

    def _after(self) -> list[int]:
        return []

    def _render(self, token: int) -> bytes:
        return self._decode(self.token_text(token))

    def _decode(self, text: str) -> bytes:
        return _ESCAPE.sub(_unescaped, text.encode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    code, char = match.groups()
    if code:
        return bytes.fromhex(code.decode())
    if char == b"x":
        raise TokenizerError(f"{PREFIX}tokens: {match.string.decode()!r} has an escape that is not \\xNN")
    return _CONTROLS.get(char, char)
