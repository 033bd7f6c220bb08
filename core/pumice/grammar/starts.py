"""Detect where a grammar begins in unconstrained text, and mask tokens that would begin it invalidly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.mask import from_tokens, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pumice.grammar.compiler import Compiler
    from pumice.tokenizers import Tokenizer

NO_TOKEN = -1  # stands for text of the prompt, or for the end of a token

TokenTexts = Sequence[tuple[int, bytes]]  # tokens and their texts


def tokens_from(seen: TokenTexts, start: int, vocabulary: LLTokenizer, spaced: bool = True) -> list[int]:
    """Return the tokens of the text from ``start`` on: the generated ones, if nothing in them precedes it.

    ``spaced``: white space may precede it.
    """
    tokens, before = list(seen), 0
    while before + len(tokens[0][1]) <= start:
        before += len(tokens.pop(0)[1])
    text = b"".join(text for _, text in tokens)
    before_text = text[: start - before]
    if (before_text.strip() if spaced else before_text) or tokens[0][0] == NO_TOKEN:
        return vocabulary.tokenize_bytes(text[start - before :])
    return [token for token, _ in tokens]


def spellings(text: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokenizations of a text at the start of an answer and after other text.

    The list is empty if the text is several tokens without a special one: the model was not trained to write it.
    """
    tokens = tokenizer.tokenize(text, add_special=False)
    marks = tokenizer.vocabulary.control | tokenizer.vocabulary.user_defined
    if not tokens or (len(tokens) > 1 and not marks.intersection(tokens)):
        return []
    ways = [tokens, tokenizer.tokenize_following(text)]
    return [list(way) for way in dict.fromkeys(map(tuple, ways))]


class Starts:
    """Trigger texts that begin a grammar anywhere.

    A token that contains the end of a trigger and more text is allowed if the grammar allows that text.
    """

    def __init__(
        self, begins: Sequence[bytes], start: LLMatcher | None, compiler: Compiler, spaced: bool = True
    ) -> None:
        """``start``: matcher at the grammar's start; None: the grammar starts after the trigger and newlines.

        ``spaced``: the grammar allows white space before the trigger.
        """
        self._spaced = spaced
        self._begins = begins
        self._start = start
        self._compiler = compiler
        if begins:
            _ = compiler.sorted_texts  # computed in this thread rather than between two steps of the engine
        self._masks: dict[tuple[tuple[int, ...], bytes], NDArray[np.uint32] | None] = {}

    def allowed(self, seen: TokenTexts) -> NDArray[np.uint32] | None:
        """Return the mask of tokens allowed after unconstrained text: uint32 [ceil(n_vocab / 32)]; None allows all."""
        text = b"".join(text for _, text in seen)
        masks = [mask for start, rest in self._begun(text) if (mask := self._mask(seen, start, rest)) is not None]
        return reduce(np.bitwise_and, masks) if masks else None

    def _begun(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the start of each incomplete trigger at the end of ``text``, and the missing rest of the trigger."""
        for mark in self._begins:
            start = text.find(mark[:1], max(len(text) - len(mark) + 1, 0))
            while start >= 0:
                if mark.startswith(text[start:]):
                    yield start, mark[len(text) - start :]
                start = text.find(mark[:1], start + 1)

    def _mask(self, seen: TokenTexts, start: int, rest: bytes) -> NDArray[np.uint32] | None:
        tokens = tokens_from(seen, start, self._compiler.vocabulary, self._spaced)
        key = tuple(tokens), rest
        if key not in self._masks:
            longer = self._compiler.longer(rest)
            if self._start is None:
                longer = [token for token in longer if self._compiler.texts[token][len(rest) :].strip(b"\n")]
            self._masks[key] = self._make_mask(tokens, longer) if longer else None
        return self._masks[key]

    def _make_mask(self, tokens: list[int], longer: Sequence[int]) -> NDArray[np.uint32] | None:
        """Return the mask of all tokens except those of ``longer`` that the grammar forbids after ``tokens``."""
        if self._start is None:
            return ~from_tokens(longer, self._compiler.n_vocab)
        matcher = self._start.deep_copy()
        if matcher.try_consume_tokens(tokens) < len(tokens):
            return None
        allowed = np.empty(n_words(self._compiler.n_vocab), np.uint32)
        matcher.unsafe_compute_mask_ptr(allowed.ctypes.data, allowed.nbytes)
        return ~from_tokens(longer, self._compiler.n_vocab) | allowed


class Firsts:
    """Trigger texts that begin a grammar only at the start of the answer; white space in them is ignored."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = ["".join(text.split()).encode() for text in texts]
        self._tokens: list[int] = []
        self._text = b""

    def fork(self) -> Firsts:
        """Return an independent copy."""
        other = copy(self)
        other._tokens = list(self._tokens)
        return other

    def take(self, token: int, text: bytes) -> list[int]:
        """Add a token of unconstrained text. Return all tokens so far if they begin the grammar; otherwise none."""
        if not self._texts:
            return []
        self._tokens.append(token)
        self._text += b"".join(text.split())
        if self._text.startswith(tuple(self._texts)):
            self._texts = []
            return self._tokens
        self._texts = [trigger for trigger in self._texts if trigger.startswith(self._text)]
        return []
