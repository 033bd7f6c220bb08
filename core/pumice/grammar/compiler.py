"""Compile grammars for a model's vocabulary by llguidance."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING

from pumice.errors import RequestError
from pumice.grammar.check import describe, form_name
from pumice.grammar.lengths import Lengths
from pumice.grammar.lexers import Lexer, Lexers
from pumice.grammar.limits import STACK_SIZE, parser_limits
from pumice.grammar.schema import strings_of
from pumice.grammar.stack import run_on_stack
from pumice.grammar.strings import StringMasks
from pumice.grammar.threads import MaskThreads
from pumice.grammar.vocabulary import whole_vocabulary
from pumice.grammar.words import SplitTexts, Words
from pumice.sampler.mask import Mask, without_tokens

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pumice.grammar.alphabet import Alphabet
    from pumice.tokenizers import Tokenizer

_ALPHABETS = 16  # alphabets whose words are cached


class Compiler:
    """Compiles grammars and caches the results. Threads may share it."""

    def __init__(self, load_tokenizer: Callable[[], Tokenizer | None], n_vocab: int) -> None:
        """``n_vocab``: number of logits per token, which may exceed the tokenizer's vocabulary."""
        self.n_vocab = n_vocab
        self.threads = MaskThreads()
        self.lexers = Lexers(self._compile)
        self._load_tokenizer = load_tokenizer
        self._words = lru_cache(_ALPHABETS)(Words)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises RequestError without one, or without an end-of-text token."""
        tokenizer = self._load_tokenizer()
        if tokenizer is None or not tokenizer.eog:
            missing = "end-of-text token" if tokenizer else "supported tokenizer"
            raise RequestError(f"structured output is not available: the model has no {missing}")
        return tokenizer

    @cached_property
    def texts(self) -> list[bytes]:
        """The bytes that each token adds to a text; empty for special tokens."""
        tokenizer = self.tokenizer
        return [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]

    @cached_property
    def sorted_texts(self) -> list[tuple[bytes, int]]:
        """Texts and ids of the tokens with a text, sorted by text."""
        return sorted((text, token) for token, text in enumerate(self.texts) if text)

    def longer(self, text: bytes) -> list[int]:
        """Return the tokens whose text begins with ``text`` and continues."""
        begin = bisect_left(self.sorted_texts, (text, self.n_vocab))
        same = itertools.takewhile(
            lambda item: item[0].startswith(text), itertools.islice(self.sorted_texts, begin, None)
        )
        return [token for _, token in same]

    @cached_property
    def newlines(self) -> dict[int, int]:
        """Tokens that consist of newlines, with the number of newlines."""
        return {token: len(text) for token, text in enumerate(self.texts) if text and not text.strip(b"\n")}

    @cached_property
    def end(self) -> int:
        """The token that ends a text."""
        tokenizer = self.tokenizer
        return tokenizer.eos if tokenizer.eos in tokenizer.eog else min(tokenizer.eog)

    @cached_property
    def others(self) -> Mask:
        """Mask of the tokens that do not end a text."""
        return without_tokens(self.tokenizer.eog, self.n_vocab)

    @cached_property
    def vocabulary(self) -> LLTokenizer:
        """The vocabulary in llguidance's form."""
        return whole_vocabulary(self.tokenizer, self.texts, self.n_vocab)

    @cached_property
    def _lengths(self) -> Lengths:
        return Lengths(self.texts, self.n_vocab)

    @cached_property
    def _cut_texts(self) -> SplitTexts:
        return SplitTexts(self.texts, self.n_vocab)

    def _compile(self, source: str) -> Lexer:
        matcher = _matcher(self.vocabulary, source)
        strings = strings_of(source)
        if strings is None:
            return Lexer(matcher)
        start = lru_cache(None)(partial(self._start, source, self._cut_texts))
        for alphabet in strings.alphabets:
            start(alphabet)  # computed in this thread rather than between two steps of the engine
        return Lexer(matcher, partial(StringMasks, strings, self._lengths, start))

    def _start(self, source: str, texts: SplitTexts, alphabet: Alphabet) -> tuple[Words, LLMatcher]:
        """Return the words of an alphabet, and their matcher at the start of the grammar."""
        words = self._words(texts, alphabet)
        return words, _matcher(words.vocabulary, source)


def _matcher(vocabulary: LLTokenizer, source: str) -> LLMatcher:
    """Compile a grammar, on a stack four times as large as that of its check."""
    from llguidance import LLMatcher

    limits = parser_limits()
    matcher = run_on_stack(STACK_SIZE, lambda: LLMatcher(vocabulary, source, log_level=0, limits=limits))
    if matcher.is_error():
        raise RequestError(f"{form_name(source)}: {describe(matcher.get_error())}")
    return matcher
