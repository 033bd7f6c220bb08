"""Grammars compiled for the vocabulary of one model, by llguidance."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from pumice.errors import RequestError
from pumice.grammar.lexers import Lexer, Lexers
from pumice.grammar.strings import Lengths, StringMasks
from pumice.grammar.threads import MaskThreads

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    from pumice.tokenizers import Tokenizer

_SPECIAL = b"\xff"  # by which llguidance knows a token that stands for no text
_BREAK = "\x02"  # a character that no token goes across
_TOKEN_SIZE = 64  # bytes of a token that is looked for by its text
_TEXTS, _TEXT_SIZE = 2048, 256  # texts whose tokens are kept, and characters of the longest of them
_SPACE = r"[ \n\r\t]+"
_PLAIN = r'[^"\\\x00-\x1F\x7F]'  # a character that stands in JSON for itself
_SLICES = (2, 4, 6, 8, 10, 14, 20, 30)  # characters; a text that may have so many more may have all shorter tokens


class Compiler:
    """Makes matchers, and keeps what it compiled. Several threads may use it at once."""

    def __init__(self, load_tokenizer: Callable[[], Tokenizer | None], n_vocab: int) -> None:
        """``n_vocab``: of the rows of logits, which may be more than the tokenizer has."""
        self.n_vocab = n_vocab
        self.threads = MaskThreads()
        self.lexers = Lexers(self._compile)
        self._load_tokenizer = load_tokenizer

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises RequestError for a model without one, or without a token that ends a text."""
        tokenizer = self._load_tokenizer()
        if tokenizer is None or not tokenizer.eog:
            missing = "token that ends a text" if tokenizer else "tokenizer that is known"
            raise RequestError(f"the model has no {missing}, which a grammar needs")
        return tokenizer

    @cached_property
    def texts(self) -> list[bytes]:
        """What each token adds to a text; nothing for those that are not part of it."""
        tokenizer = self.tokenizer
        return [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]

    def string_masks(self, lexer: Lexer) -> StringMasks | None:
        """For one sequence that keeps to a grammar, if that has strings whose characters are only counted."""
        if lexer.marker is None or not self._lengths.has(lexer.marker):
            return None
        return StringMasks(self._lengths, lexer.marker)

    @cached_property
    def _lengths(self) -> Lengths:
        return Lengths(self.texts, self.n_vocab)

    @cached_property
    def _sorted(self) -> list[tuple[bytes, int]]:
        return sorted((text, token) for token, text in enumerate(self.texts) if text)

    def longer(self, text: bytes) -> list[int]:
        """The tokens whose text begins with ``text`` and goes on."""
        begin = bisect_left(self._sorted, (text, self.n_vocab))
        same = itertools.takewhile(lambda each: each[0].startswith(text), itertools.islice(self._sorted, begin, None))
        return [token for _, token in same]

    @cached_property
    def newlines(self) -> dict[int, int]:
        """Tokens of newlines alone, and how many each has."""
        return {token: len(text) for token, text in enumerate(self.texts) if text and not text.strip(b"\n")}

    @cached_property
    def vocabulary(self) -> LLTokenizer:
        """The vocabulary as llguidance has it."""
        from llguidance import LLTokenizer

        wrapper = _Wrapper(self.tokenizer, self.texts, self.n_vocab)
        slices = [_SPACE, *(f"{_PLAIN}{{1,{n}}}" for n in _SLICES), f"{_PLAIN}+"]
        return LLTokenizer(wrapper, eos_token=sorted(self.tokenizer.eog), slices=slices)  # type: ignore[arg-type]

    def _compile(self, source: str) -> LLMatcher:
        from llguidance import LLMatcher

        matcher = LLMatcher(self.vocabulary, source, log_level=0, limits=_limits())
        if matcher.is_error():
            raise RequestError(f"grammar or schema: {' '.join(matcher.get_error().split())[:500]}")
        return matcher


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


def _limits() -> LLParserLimits:
    """Work and memory that a grammar may cost; beyond them it is an error, at once or at the step that needs more.

    The numbers are llguidance's own but for the states, of 1 to 2 KB each: 50 MB at most.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=25_000, verbose_errors=False)
