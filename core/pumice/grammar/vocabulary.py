"""llguidance's view of a model's vocabulary, and of a small vocabulary of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from pumice.tokenizers import Tokenizer

_SPECIAL = b"\xff"  # prefix by which llguidance recognizes a special token
_BREAK = "\x02"  # a character that tokens do not cross
_TOKEN_SIZE = 64  # maximum bytes of a token that is looked up by its text
_TEXTS, _TEXT_SIZE = 2048, 256  # number of cached tokenizations, and maximum characters of their texts
_SPACE = r"[ \n\r\t]+"
_PLAIN = r'[^"\\\x00-\x1F\x7F]'  # a character that JSON does not escape
_SLICES = (2, 4, 6, 8, 10, 14, 20, 30)  # characters; a text with room for more allows all shorter tokens


def whole_vocabulary(tokenizer: Tokenizer, texts: list[bytes], n_vocab: int) -> LLTokenizer:
    """Return a model's vocabulary for llguidance.

    Args:
        tokenizer: tokenizer of the model.
        texts: bytes that each token adds to a text; empty for special tokens.
        n_vocab: number of logits per token, which may exceed the number of tokens.
    """
    from llguidance import LLTokenizer

    wrapper = _Wrapper(tokenizer, texts, n_vocab)
    slices = [_SPACE, *(f"{_PLAIN}{{1,{n}}}" for n in _SLICES), f"{_PLAIN}+"]
    return LLTokenizer(wrapper, eos_token=sorted(tokenizer.eog), slices=slices)  # type: ignore[arg-type]


def small_vocabulary(words: Sequence[bytes] = (), special: Sequence[str] = (), n_vocab: int = 0) -> LLTokenizer:
    """Return a vocabulary of words, small enough for fast walks.

    All single bytes, an end-of-text token, special tokens, and others up to ``n_vocab`` follow the words.
    """
    from llguidance import LLTokenizer

    wrapper = _Words(words, special, n_vocab)
    return LLTokenizer(wrapper, eos_token=wrapper.eos_token_id, slices=[])  # type: ignore[arg-type]


class _Wrapper:
    """llguidance's interface to a model's tokenizer."""

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
        """Return the tokens of a text that follows other text; cached, since grammars repeat their texts."""
        return self._kept(text) if len(text) <= _TEXT_SIZE else self._following(text)

    def _following(self, text: str) -> list[int]:
        """Tokenize without the spaces that some tokenizers insert before a text and after user-defined tokens."""
        ids = self._ids(_BREAK + text)[self._before :]
        if b"".join(self._texts[token] for token in ids) == text.encode():
            return ids
        marks = {self._texts[token].decode() for token in self._whole.intersection(ids)}
        parts = re.split(f"({'|'.join(map(re.escape, marks))})", text) if marks else []
        if len(parts) > 1:
            return [token for part in parts if part for token in self._following(part)]
        return self._longest(text.encode())

    def _longest(self, text: bytes) -> list[int]:
        """Tokenize greedily by the longest token, for texts that the tokenizer cannot encode."""
        ids = list[int]()
        while text:
            size = next((size for size in range(min(len(text), _TOKEN_SIZE), 1, -1) if text[:size] in self._spelt), 1)
            ids += self._spelt.get(text[:size], [])
            text = text[size:]
        return ids

    @cached_property
    def _spelt(self) -> dict[bytes, list[int]]:
        return {text: [token] for token, text in enumerate(self._texts) if text}


class _Words:
    """llguidance's interface to a tokenizer of words, bytes and special tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, words: Sequence[bytes], special: Sequence[str], n_vocab: int) -> None:
        self._n_words, self.eos_token_id = len(words), len(words) + 256
        names = [b"[end]", *(name.encode() for name in special)]
        names += [b"[%d]" % token for token in range(self.eos_token_id + len(names), n_vocab)]
        self.tokens = [*words, *(bytes([byte]) for byte in range(256)), *(_SPECIAL + name for name in names)]
        self.special_token_ids = list(range(self.eos_token_id, len(self.tokens)))

    def __call__(self, text: str) -> list[int]:
        return [self._n_words + byte for byte in text.encode()]
