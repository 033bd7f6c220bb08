"""WordPiece (GGUF's tokenizer model "bert"): greedy longest match within words, from left to right.

Devlin et al., "BERT", 2018 (https://arxiv.org/abs/1810.04805). GGUF prefixes tokens at the start of a word with ``▁``,
and omits BERT's ``##`` of the others.
"""

import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, value

_WORD_START = "▁"

_CACHE_SIZE = 1 << 16
_MAX_WORD = 100  # characters; longer words are unknown in transformers

# Ideographs, each of which is a word, unlike kana and Hangul. From BERT's tokenization.py.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WPMTokenizer(Tokenizer):
    """Splits text at white space and punctuation, then matches greedily; a word that does not match is unknown."""

    kind: ClassVar[str] = "wpm"

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        cls = value(metadata, "cls_token_id", int, 101)
        special = SpecialTokens.from_metadata(metadata, vocabulary, bos=cls, sep=102, unk=100)
        super().__init__(metadata, vocabulary, special=special, add_bos=True, add_sep=True, space_prefix=True)
        for name, token in {"bos": self.bos, "seperator": self.sep, "unknown": self.unk}.items():
            if token is None:
                raise TokenizerError(f"{PREFIX}{name}_token_id is missing; WordPiece needs it")
        lowercase = value(metadata, "normalizer.lowercase", bool, True)
        strip_accents = value(metadata, "normalizer.strip_accents", bool, lowercase)
        self._normalized = _Normalization(lowercase, strip_accents)
        self._longest = max(map(len, vocabulary.tokens))
        self._words: dict[str, list[int]] = {}

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in text.translate(self._normalized).split():
            tokens = self._words.get(word)
            if tokens is None:
                tokens = self._word_ids(_WORD_START + word) if len(word) <= _MAX_WORD else self._unknown
                if len(self._words) < _CACHE_SIZE:
                    self._words[word] = tokens
            ids += tokens
        return ids

    def _word_ids(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start, -1)
            end = next((end for end in ends if word[start:end] in self.vocabulary.ids), None)
            if end is None:
                return self._unknown
            ids.append(self.vocabulary.ids[word[start:end]])
            start = end
        return ids

    @property
    def _unknown(self) -> list[int]:
        return [] if self.unk is None else [self.unk]

    def _before(self) -> list[int]:
        return [] if self.bos is None else [self.bos]

    def _after(self) -> list[int]:
        return [] if self.sep is None else [self.sep]

    def _decode(self, text: str) -> bytes:
        text = text.replace(_WORD_START, " ")
        return (text[1:] if text in (" .", " ,", " ?", " !") else text).encode()


class _Normalization(dict[int, str]):
    """A table for ``str.translate``, computed on first use, that puts spaces around words.

    It follows transformers, whose ids models were trained with. llama.cpp keeps only the first character of a
    decomposition, such as that of a Hangul syllable, and strips every mark.
    """

    def __init__(self, lowercase: bool, strip_accents: bool) -> None:
        self._lowercase = lowercase
        self._strip_accents = strip_accents

    def __missing__(self, codepoint: int) -> str:
        self[codepoint] = normalized = self._normalize(chr(codepoint))
        return normalized

    def _normalize(self, char: str) -> str:
        if char not in "\t\n\r" and (char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co")):
            return ""
        if self._strip_accents:
            decomposed = unicodedata.normalize("NFD", char)
            char = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        if self._lowercase:
            char = char.lower()
        return "".join(f" {part} " if _is_word(part) else part for part in char)


def _is_word(char: str) -> bool:
    """Return True for a character that is always a word of its own."""
    category = unicodedata.category(char)
    return category.startswith("P") or (char.isascii() and category.startswith("S")) or _is_ideograph(char)


def _is_ideograph(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _IDEOGRAPHS)
