"""Tokens that a string cannot tell apart are one word: llguidance looks at few words instead of all tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.alphabet import Alphabet, representatives
from pumice.grammar.vocabulary import few_words
from pumice.sampler.mask import from_bits, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

_HEAD = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')  # characters that a JSON string has as they are
_SIZES = {lead: 2 + (lead >= 0xE0) + (lead >= 0xF0) for lead in range(0xC2, 0xF5)}  # bytes of characters, by the first
_BREAK = "\n"  # none of those
_MASKS = 128  # that are kept


class Texts:
    """The texts of a vocabulary's tokens, each cut where the string may end, or a character is not whole."""

    def __init__(self, texts: Sequence[bytes], n_vocab: int) -> None:
        self.n_vocab = n_vocab
        decoded = [text.decode("utf-8", "surrogateescape") for text in texts]
        sizes = [len(_HEAD.match(text)[0]) for text in decoded]  # type: ignore[index]
        heads = _BREAK.join(text[:size] for text, size in zip(decoded, sizes, strict=True))
        self._codes = np.frombuffer(heads.encode("utf-32-le", "surrogatepass"), "<u4")
        self._tails = [text[size:] for text, size in zip(decoded, sizes, strict=True)]
        self._begun = {tail: codes for tail in set(self._tails) if (codes := _completions(tail))}

    def words(self, alphabet: Alphabet) -> list[str]:
        """Of each token, with the same character for all that cannot be told apart."""
        table = representatives(alphabet)
        codes = table[self._codes].astype("<u4")
        heads = codes.tobytes().decode("utf-32-le", "surrogatepass").split(_BREAK)
        begun = {
            tail: chr(table[low]) for tail, (low, high) in self._begun.items() if np.ptp(table[low : high + 1]) == 0
        }
        return [head + begun.get(tail, tail) for head, tail in zip(heads, self._tails, strict=True)]


def _completions(text: str) -> tuple[int, int] | None:
    """The first and last code points that begin with these bytes. None if it is not the beginning of a character."""
    data = text.encode("utf-8", "surrogateescape")
    missing = next((n for n in (1, 2, 3) if data and _SIZES.get(data[0], 0) == len(data) + n), 0)
    try:
        low, high = ((data + byte * missing).decode() for byte in (b"\x80", b"\xbf"))
        return (ord(low), ord(high)) if missing else None
    except UnicodeDecodeError:
        return None


class Words:
    """The words of a vocabulary: texts, of which each stands for the tokens that a string cannot tell apart.

    Attributes:
        vocabulary: the words, and behind them all bytes, by which it goes on.
    """

    def __init__(self, texts: Texts, alphabet: Alphabet) -> None:
        words = texts.words(alphabet)
        places = {word: place for place, word in enumerate(dict.fromkeys(filter(None, words)))}
        self._n = len(places)
        self._places = np.full(texts.n_vocab, self._n)
        self._places[: len(words)] = [places.get(word, self._n) for word in words]
        self.vocabulary = few_words([word.encode("utf-8", "surrogateescape") for word in places])
        self._n_words = n_words(self.vocabulary.vocab_size)
        self._tokens_of = lru_cache(_MASKS)(self._expand)

    def accept(self, matcher: LLMatcher, text: bytes) -> None:
        """Have a matcher of these words go on by any text."""
        matcher.consume_tokens([self._n + byte for byte in text])

    def mask(self, matcher: LLMatcher) -> NDArray[np.uint32] | None:
        """The tokens that may come next, of the words that may. None if there are none: a text is forced."""
        found = np.empty(self._n_words, np.uint32)
        matcher.unsafe_compute_mask_ptr(found.ctypes.data, found.nbytes)
        return None if matcher.is_error() else self._tokens_of(found.tobytes())

    def _expand(self, found: bytes) -> NDArray[np.uint32] | None:
        bits = np.unpackbits(np.frombuffer(found, np.uint8), count=self._n + 1, bitorder="little").view(np.bool_)
        bits[self._n] = False  # a byte, and where those tokens are that have no text
        return from_bits(bits[self._places]) if bits.any() else None
