"""Where a grammar begins in free text, and the tokens that would begin it with what it does not allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.sampler.mask import from_tokens, n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from pumice.grammar.compiler import Compiler
    from pumice.tokenizers import Tokenizer

NO_TOKEN = -1  # in a token's place, for text that the prompt has written, or that is the end of a token

Seen = Sequence[tuple[int, bytes]]  # tokens and their texts


def tokens_from(seen: Seen, place: int, vocabulary: LLTokenizer) -> list[int]:
    """The tokens of the text from ``place`` on: those that came, if one of them begins there but for white space."""
    tokens, before = list(seen), 0
    while before + len(tokens[0][1]) <= place:
        before += len(tokens.pop(0)[1])
    text = b"".join(text for _, text in tokens)
    if text[: place - before].strip() or tokens[0][0] == NO_TOKEN:
        return vocabulary.tokenize_bytes(text[place - before :])
    return [token for token, _ in tokens]


def spellings(text: str, tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of a text where it begins an answer and where it follows another one.

    None of a text that is no token, and has no special one: models that were not taught it do not write it.
    """
    tokens = tokenizer.tokenize(text, add_special=False)
    marks = tokenizer.vocabulary.control | tokenizer.vocabulary.user_defined
    if not tokens or (len(tokens) > 1 and not marks.intersection(tokens)):
        return []
    ways = [tokens, tokenizer.tokenize_following(text)]
    return [list(way) for way in dict.fromkeys(map(tuple, ways))]


class Starts:
    """The texts that begin a grammar anywhere.

    A token may hold the end of such a text and go on: it is allowed where the grammar goes on so.
    """

    def __init__(self, begins: Sequence[bytes], start: LLMatcher | None, compiler: Compiler) -> None:
        """``start``: the grammar at its beginning; None: it begins behind those texts, and newlines."""
        self._begins = begins
        self._start = start
        self._compiler = compiler
        if begins:
            _ = compiler.sorted_texts  # made in the thread that asks, and not between two steps
        self._known: dict[tuple[tuple[int, ...], bytes], NDArray[np.uint32] | None] = {}

    def allowed(self, seen: Seen) -> NDArray[np.uint32] | None:
        """The mask of what may follow free text: uint32 [ceil(n_vocab / 32)]; None: everything."""
        text = b"".join(text for _, text in seen)
        masks = [mask for place, rest in self._begun(text) if (mask := self._mask(seen, place, rest)) is not None]
        return reduce(np.bitwise_and, masks) if masks else None

    def _begun(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        """Where a beginning has begun, with which ``text`` ends, and what is missing of it."""
        for mark in self._begins:
            place = text.find(mark[:1], max(len(text) - len(mark) + 1, 0))
            while place >= 0:
                if mark.startswith(text[place:]):
                    yield place, mark[len(text) - place :]
                place = text.find(mark[:1], place + 1)

    def _mask(self, seen: Seen, place: int, rest: bytes) -> NDArray[np.uint32] | None:
        tokens = tokens_from(seen, place, self._compiler.vocabulary)
        key = tuple(tokens), rest
        if key not in self._known:
            longer = self._compiler.longer(rest)
            if self._start is None:
                longer = [token for token in longer if self._compiler.texts[token][len(rest) :].strip(b"\n")]
            self._known[key] = self._make_mask(tokens, longer) if longer else None
        return self._known[key]

    def _make_mask(self, tokens: list[int], longer: Sequence[int]) -> NDArray[np.uint32] | None:
        """All but those of ``longer`` that the grammar does not allow after ``tokens``."""
        if self._start is None:
            return ~from_tokens(longer, self._compiler.n_vocab)
        matcher = self._start.deep_copy()
        if matcher.try_consume_tokens(tokens) < len(tokens):
            return None
        allowed = np.empty(n_words(self._compiler.n_vocab), np.uint32)
        matcher.unsafe_compute_mask_ptr(allowed.ctypes.data, allowed.nbytes)
        return ~from_tokens(longer, self._compiler.n_vocab) | allowed


class Firsts:
    """The texts that begin a grammar only where the answer begins; white space does not matter in them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = ["".join(text.split()).encode() for text in texts]
        self._tokens: list[int] = []
        self._text = b""

    def take(self, token: int, text: bytes) -> list[int]:
        """Go on by a token of free text. All tokens so far where they begin the grammar; else none."""
        if not self._texts:
            return []
        self._tokens.append(token)
        self._text += b"".join(text.split())
        if self._text.startswith(tuple(self._texts)):
            self._texts = []
            return self._tokens
        self._texts = [each for each in self._texts if each.startswith(self._text)]
        return []
