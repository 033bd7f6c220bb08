"""Merge tokens that a string's constraints do not distinguish into words, so that llguidance walks few of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.grammar.alphabet import Alphabet, representatives
from pumice.grammar.vocabulary import small_vocabulary
from pumice.sampler.mask import from_bits, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher

_HEAD = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')  # characters that JSON does not escape
_SIZES = {lead: 2 + (lead >= 0xE0) + (lead >= 0xF0) for lead in range(0xC2, 0xF5)}  # bytes per character, by first byte
_BREAK = "\n"  # separates heads, which do not contain it
_MASKS = 128  # cached masks


class SplitTexts:
    """The texts of a vocabulary's tokens, split where the string may end or a character is incomplete."""

    def __init__(self, texts: Sequence[bytes], n_vocab: int) -> None:
        self.n_vocab = n_vocab
        decoded = [text.decode("utf-8", "surrogateescape") for text in texts]
        sizes = [len(_HEAD.match(text)[0]) for text in decoded]  # type: ignore[index]
        heads = _BREAK.join(text[:size] for text, size in zip(decoded, sizes, strict=True))
        self._codes = np.frombuffer(heads.encode("utf-32-le", "surrogatepass"), "<u4")
        self._tails = [text[size:] for text, size in zip(decoded, sizes, strict=True)]
        self._begun = {tail: codes for tail in set(self._tails) if (codes := _completions(tail))}

    def words(self, alphabet: Alphabet) -> list[str]:
        """Return the word of each token: its text with each character replaced by the first equivalent one."""
        table = representatives(alphabet)
        codes = table[self._codes].astype("<u4")
        heads = codes.tobytes().decode("utf-32-le", "surrogatepass").split(_BREAK)
        begun = {
            tail: chr(table[low]) for tail, (low, high) in self._begun.items() if np.ptp(table[low : high + 1]) == 0
        }
        return [head + begun.get(tail, tail) for head, tail in zip(heads, self._tails, strict=True)]


def _completions(text: str) -> tuple[int, int] | None:
    """Return the first and last code points that begin with these bytes; None if they do not begin a character."""
    data = text.encode("utf-8", "surrogateescape")
    missing = next((n for n in (1, 2, 3) if data and _SIZES.get(data[0], 0) == len(data) + n), 0)
    try:
        low, high = ((data + byte * missing).decode() for byte in (b"\x80", b"\xbf"))
        return (ord(low), ord(high)) if missing else None
    except UnicodeDecodeError:
        return None


class Words:
    """The words of a vocabulary; each stands for the tokens that a string's constraints do not distinguish.

    Attributes:
        vocabulary: the words, followed by all single bytes, by which matchers advance.
    """

    def __init__(self, texts: SplitTexts, alphabet: Alphabet) -> None:
        words = texts.words(alphabet)
        numbers = {word: number for number, word in enumerate(dict.fromkeys(filter(None, words)))}
        self._n = len(numbers)
        self._numbers = np.full(texts.n_vocab, self._n)  # of each token's word
        self._numbers[: len(words)] = [numbers.get(word, self._n) for word in words]
        self.vocabulary = small_vocabulary([word.encode("utf-8", "surrogateescape") for word in numbers])
        self._n_words = n_words(self.vocabulary.vocab_size)
        self._tokens_of = lru_cache(_MASKS)(self._expand)

    def accept(self, matcher: LLMatcher, text: bytes) -> None:
        """Advance a matcher of these words by any text."""
        matcher.consume_tokens([self._n + byte for byte in text])

    def mask(self, matcher: LLMatcher) -> NDArray[np.uint32] | None:
        """Return the mask of the tokens of all allowed words; None if no word is allowed, since a text is forced."""
        words = np.empty(self._n_words, np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        return None if matcher.is_error() else self._tokens_of(words.tobytes())

    def _expand(self, words: bytes) -> NDArray[np.uint32] | None:
        bits = np.unpackbits(np.frombuffer(words, np.uint8), count=self._n + 1, bitorder="little").view(np.bool_)
        bits[self._n] = False  # stands for the first byte, and for tokens without a text
        return from_bits(bits[self._numbers]) if bits.any() else None
