"""A model's vocabulary as llguidance has it, and one of few words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from pumice.tokenizers import Tokenizer

_SPECIAL = b"\xff"  # by which llguidance knows a token that stands for no text
_BREAK = "\x02"  # a character that no token goes across
_TOKEN_SIZE = 64  # bytes of a token that is looked for by its text
_TEXTS, _TEXT_SIZE = 2048, 256  # texts whose tokens are kept, and characters of the longest of them
_SPACE = r"[ \n\r\t]+"
_PLAIN = r'[^"\\\x00-\x1F\x7F]'  # a character that stands in JSON for itself
_SLICES = (2, 4, 6, 8, 10, 14, 20, 30)  # characters; a text that may have so many more may have all shorter tokens


def whole_vocabulary(tokenizer: Tokenizer, texts: list[bytes], n_vocab: int) -> LLTokenizer:
    """``texts``: what each token adds to a text; ``n_vocab``: rows of logits, which may be more."""
    from llguidance import LLTokenizer

    wrapper = _Wrapper(tokenizer, texts, n_vocab)
    slices = [_SPACE, *(f"{_PLAIN}{{1,{n}}}" for n in _SLICES), f"{_PLAIN}+"]
    return LLTokenizer(wrapper, eos_token=sorted(tokenizer.eog), slices=slices)  # type: ignore[arg-type]


def few_words(words: Sequence[bytes]) -> LLTokenizer:
    """A vocabulary of these words, through which llguidance walks in little time.

    Behind them are all the bytes that texts are made of, and a token that ends a text.
    """
    from llguidance import LLTokenizer

    wrapper = _Few(words)
    return LLTokenizer(wrapper, eos_token=wrapper.eos_token_id, slices=[])  # type: ignore[arg-type]


class _Wrapper:
    """What llguidance wants to know of a tokenizer."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer, texts: list[bytes], n_vocab: int) -> None:
        self.eos_token_id = min(tokenizer.eog)
        self.bos_token_id = tokenizer.bos
        self.special_token_ids = [token for token, text in enumerate(texts) if not text]
        self.tokens = [
            text or _SPECIAL + tokenizer.token_text(token).encode("utf-8", "replace")
            for token, text in enumerate(texts)
        ]
        self.tokens += [_SPECIAL + b"[row %d]" % row for row in range(len(texts), n_vocab)]
        self._texts = texts
        self._whole = tokenizer.vocabulary.user_defined
        self._ids = partial(tokenizer.tokenize, add_special=False, parse_special=False)
        self._before = len(self._ids(_BREAK))
        self._kept = lru_cache(_TEXTS)(self._following)

    def __call__(self, text: str) -> list[int]:
        """The ids of a text that follows another one. A grammar's own texts come again and again."""
        return self._kept(text) if len(text) <= _TEXT_SIZE else self._following(text)

    def _following(self, text: str) -> list[int]:
        """No space is put before it, nor after a user-defined token in it, where some tokenizers put one."""
        ids = self._ids(_BREAK + text)[self._before :]
        if self._bytes(ids) == text.encode():
            return ids
        marks = {self._texts[token].decode() for token in self._whole.intersection(ids)}
        parts = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else []
        if len(parts) > 1:
            return [token for part in parts if part for token in self._following(part)]
        return self._longest(text.encode())

    def _longest(self, text: bytes) -> list[int]:
        """Each token as long as it can be, for a tokenizer that cannot write a text at all."""
        ids = list[int]()
        while text:
            size = next((size for size in range(min(len(text), _TOKEN_SIZE), 1, -1) if text[:size] in self._spelt), 1)
            ids += self._spelt.get(text[:size], [])
            text = text[size:]
        return ids

    @cached_property
    def _spelt(self) -> dict[bytes, list[int]]:
        return {text: [token] for token, text in enumerate(self._texts) if text}

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._texts[token] for token in ids)


class _Few:
    """What llguidance wants to know of a tokenizer of few words."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, words: Sequence[bytes]) -> None:
        self.tokens = [*words, *(bytes([byte]) for byte in range(256)), _SPECIAL + b"[end]"]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]
        self._n_words = len(words)

    def __call__(self, text: str) -> list[int]:
        return [self._n_words + byte for byte in text.encode()]
