"""A grammar at work on one sequence: which tokens may come next, from the text where it begins to where it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.compiler import Compiler
from pumice.grammar.starts import NO_TOKEN, Firsts, Starts, spellings, tokens_from
from pumice.grammar.strings import LONG
from pumice.pick import Pick
from pumice.sampler import Candidates, Sampler
from pumice.sampler.mask import n_words

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(frozen=True)
class Grammar:
    """What an answer has to look like. Plain data.

    Attributes:
        source: the grammar, in llguidance's form (``grammar_source``).
        begins: texts; everything is free until one of them, with which the grammar begins. None: it begins at once.
        first: texts that begin it too, but only where the answer begins; white space in it does not matter.
        opening: what the prompt has written already, of the grammar or of one of ``begins``.
        again: when the grammar has ended all is free again, until the next text of ``begins``; otherwise the answer
            ends there.
        reasoning: texts that begin and end reasoning, in which everything is free. Where the grammar begins at once
            it may come first, if there are tokens for its beginning.
        reasons: the prompt has begun the reasoning.
    """

    source: str
    begins: Sequence[str] = ()
    first: Sequence[str] = ()
    opening: str = ""
    again: bool = False
    reasoning: tuple[str, str] = ("", "")
    reasons: bool = False


_NEWLINES = 2  # that models write between reasoning and answer, at most


class _State(Enum):
    REASONING = "everything is allowed until the reasoning ends"
    OPENING = "the grammar decides, but reasoning may begin"
    BEGINNING = "reasoning has begun, with the first tokens of its mark"
    FREE = "everything is allowed until the grammar begins"
    INSIDE = "the grammar decides"


class Constraint(Sampler):
    """The sampler that keeps one sequence to a ``Grammar``: all it has is a mask."""

    def __init__(self, grammar: Grammar, compiler: Compiler, n_prompt: int = 0) -> None:
        """The first ``n_prompt`` tokens that are accepted are the prompt's. Raises RequestError for a wrong grammar."""
        self._n_prompt = n_prompt
        self._grammar = grammar
        self._texts = compiler.texts
        self._spelt = partial(compiler.tokenizer.token_bytes, special=True)
        self._vocabulary = compiler.vocabulary
        self._lexer = compiler.lexers.of(grammar.source, self)
        self._matcher: LLMatcher = self._lexer.matcher.deep_copy()
        self._threads = compiler.threads
        self._own = self._mask = np.empty(n_words(compiler.n_vocab), np.uint32)
        self._own_address = self._own.ctypes.data
        self._strings = compiler.string_masks(self._lexer)
        self._filled = False  # whether ``_mask`` is what the matcher allows now
        self._begins = [text.encode() for text in grammar.begins]
        self._firsts = Firsts(grammar.first)
        self._starts = Starts(self._begins, self._lexer.matcher, compiler)
        self._reasoning = [text.encode() for text in grammar.reasoning]
        self._longest = max(map(len, [*self._begins, *self._reasoning]))
        self._seen: list[tuple[int, bytes]] = []  # the last tokens and their texts, where one of those may have begun
        self._opening = spellings(grammar.reasoning[0], compiler.tokenizer)  # tokens with which reasoning may begin
        self._newlines = [token for token, n in compiler.newlines.items() if n <= _NEWLINES]
        self._state = self._answering() if not grammar.reasons else _State.REASONING
        if self._state is _State.INSIDE and self._opening:
            self._state = _State.OPENING
        self._open(grammar.opening.encode())
        self._forced: list[int] | None = None  # that come next in any case; None: not asked yet
        self._fresh = 0  # newlines that may come yet, between reasoning and grammar

    def mask(self) -> NDArray[np.uint32] | None:
        """As ``allowed``, but of several that make the same text only the one that the tokenizer would choose.

        None: all may come.
        """
        if self._free:
            return self._starts.allowed(self._seen) if self._state is _State.FREE else None
        if forced := self.forced():
            self._mask[:] = 0
            self._allow(forced[:1])
            return self._mask
        return self.allowed()

    def forced(self) -> Sequence[int]:
        if self._state is not _State.INSIDE or self._fresh or self._follows:
            return ()
        if self._forced is None:
            self._forced = self._matcher.compute_ff_tokens()
        return self._forced

    def allowed(self) -> NDArray[np.uint32]:
        """The tokens that may come next, a bit each: uint32 [ceil(n_vocab / 32)], lowest bit first.

        Valid until the next call. Raises RequestError if the grammar needs more work than is allowed.
        """
        if self._free:
            mask = self.mask()
            self._mask[:] = ~np.uint32(0) if mask is None else mask
            return self._mask
        if self._state is _State.BEGINNING:
            self._mask[:] = 0
            self._allow([tokens[0] for tokens in self._opening])
            return self._mask
        if self._strings and self._follows:
            self._mask = self._own
            self._strings.follow(self._mask)
            return self._mask
        long = self._filled or self._fill() > LONG
        self._filled = False
        self._check()
        if self._strings and long and self._state is _State.INSIDE and not self._fresh:
            self._strings.look(self._matcher, self._mask)
        if self._state is _State.OPENING:
            self._allow([tokens[0] for tokens in self._opening])
        elif self._fresh:
            self._allow(self._newlines)
        return self._mask

    def _fill(self) -> float:
        """Have the matcher write the mask; the seconds that it took."""
        started = time.perf_counter()
        self._mask = self._own
        self._matcher.unsafe_compute_mask_ptr(self._own_address, self._own.nbytes)
        seconds = time.perf_counter() - started
        self._lexer.took(seconds)
        return seconds

    @classmethod
    def make_masks(cls, samplers: Sequence[Constraint]) -> None:
        """Have the matchers of several sequences fill their masks at once, where that is worth it."""
        waiting = [each for each in samplers if each._asks and not each._follows and not each.forced()]
        waiting.sort(key=lambda each: id(each._lexer))
        lexers = [each._lexer for each in waiting]
        if waiting and waiting[0]._threads.worth(lexers):
            masks = np.empty((len(waiting), len(waiting[0]._own)), np.uint32)
            waiting[0]._threads.fill(lexers, [each._matcher for each in waiting], masks)
            for each, mask in zip(waiting, masks, strict=True):
                each._mask, each._filled = mask, True

    @property
    def lowers(self) -> bool:
        return True

    def guess(self, pick: Pick) -> Pick:
        return pick

    def apply(self, candidates: Candidates) -> None:
        """Nothing: what is not in the mask is no candidate."""

    def accept(self, token: int) -> None:
        """Go on by one token, one of those that are allowed."""
        self._filled = False
        if self._n_prompt:
            self._n_prompt -= 1
        elif self._free:
            self._look(token, self._spelt(token))
        elif self._state in (_State.OPENING, _State.BEGINNING) and self._opens(token):
            pass
        elif self._fresh and token in self._newlines:
            self._state = _State.INSIDE
            self._fresh = max(self._fresh - len(self._texts[token]), 0)
        else:
            self._state, self._fresh = _State.INSIDE, 0
            self._forced = self._forced[1:] or None if self._forced and self._forced[0] == token else None
            if self._strings:
                self._strings.accept(token)
            if not self._matcher.consume_token(token):
                self._check()
            if self._grammar.again and self._matcher.is_stopped():
                self._state = _State.FREE

    @property
    def _follows(self) -> bool:
        """Whether the mask follows from the one before."""
        return self._strings is not None and self._strings.follows

    @property
    def _asks(self) -> bool:
        """Whether the mask is the matcher's."""
        return self._state in (_State.OPENING, _State.INSIDE)

    @property
    def _free(self) -> bool:
        return self._state in (_State.REASONING, _State.FREE)

    def _answering(self) -> _State:
        """The state where no reasoning is on."""
        return _State.FREE if self._begins or self._grammar.first else _State.INSIDE

    def _open(self, opening: bytes) -> None:
        """Go on from what the prompt has written of the answer."""
        if opening and self._state is _State.FREE:
            self._look(NO_TOKEN, opening)
        elif opening and self._state is not _State.REASONING:
            tokens = self._vocabulary.tokenize_bytes(opening)
            if self._matcher.validate_tokens(tokens) == len(tokens):
                self._matcher.consume_tokens(tokens)

    def _opens(self, token: int) -> bool:
        """Go on by a token with which reasoning may begin; False: it is none, or the last and the grammar's too."""
        fits = self._state is _State.OPENING and self._matcher.validate_tokens([token]) == 1
        self._opening = [tokens[1:] for tokens in self._opening if tokens[0] == token]
        has_begun = [] in self._opening
        if not self._opening or (fits and has_begun):
            return False
        if fits:
            self._matcher.consume_token(token)
        else:
            self._state = _State.REASONING if has_begun else _State.BEGINNING
        return True

    def _look(self, token: int, spelt: bytes) -> None:
        """Go on by a token of free text: reasoning may begin or end in it, or the grammar begin."""
        self._seen.append((token, spelt))
        text = b"".join(text for _, text in self._seen)
        begin, end = self._reasoning
        if self._state is _State.REASONING:
            if (place := text.find(end)) >= 0:
                self._end_reasoning(text[place + len(end) :].lstrip(b"\n"))
                return
        elif begin and (place := text.find(begin)) >= 0:
            self._state, self._seen = _State.REASONING, []
            return
        else:
            places = [place for mark in self._begins if (place := text.find(mark)) >= 0]
            if places:
                self._begin(tokens_from(self._seen, min(places), self._vocabulary))
                return
            first = self._firsts.take(token, spelt) if token != NO_TOKEN else []
            if first:
                self._begin(first)
                return
        while len(text) - len(self._seen[0][1]) >= self._longest:
            text = text[len(self._seen.pop(0)[1]) :]

    def _end_reasoning(self, rest: bytes) -> None:
        """``rest`` came in the token that ended it, and is part of the answer."""
        self._seen = []
        self._firsts = Firsts(self._grammar.first)
        self._state = self._answering()
        self._matcher = self._lexer.matcher.deep_copy()
        if self._state is _State.INSIDE:
            self._take(self._vocabulary.tokenize_bytes(rest) if rest else [])
            self._fresh = 0 if rest else _NEWLINES
        elif rest:
            self._look(NO_TOKEN, rest)

    def _begin(self, tokens: list[int]) -> None:
        """The grammar begins with tokens that came already."""
        self._seen = []
        self._matcher = self._lexer.matcher.deep_copy()
        self._state = _State.INSIDE
        self._take(tokens)

    def _take(self, tokens: list[int]) -> None:
        """Begin the grammar with tokens that came already; what does not fit stays free text, if it may."""
        if self._matcher.try_consume_tokens(tokens) == len(tokens):
            return
        if not self._grammar.again:
            text = self._vocabulary.decode_str(tokens)
            raise RequestError(f"the model went on with {text[:40]!r} where the grammar begins")
        self._state = _State.FREE

    def _allow(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._mask[token >> 5] |= np.uint32(1 << (token & 31))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RequestError(f"the grammar cannot go on: {' '.join(self._matcher.get_error().split())[:300]}")
