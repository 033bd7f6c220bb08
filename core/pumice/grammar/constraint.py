"""A grammar at work on one sequence: which tokens may come next, from the text where it begins to where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.compiler import Compiler
from pumice.grammar.matcher import Matcher
from pumice.grammar.starts import NO_TOKEN, Firsts, Starts, spellings, tokens_from
from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import allow


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


class Constraint(MaskSampler):
    """The sampler that keeps one sequence to a ``Grammar``."""

    def __init__(self, grammar: Grammar, compiler: Compiler, n_prompt: int = 0) -> None:
        """The first ``n_prompt`` tokens that are accepted are the prompt's. Raises RequestError for a wrong grammar."""
        self._n_prompt = n_prompt
        self._grammar = grammar
        self._texts = compiler.texts
        self._spelt = partial(compiler.tokenizer.token_bytes, special=True)
        self._vocabulary = compiler.vocabulary
        self._matcher = Matcher(grammar.source, compiler)
        self._begins = [text.encode() for text in grammar.begins]
        self._firsts = Firsts(grammar.first)
        self._starts = Starts(self._begins, self._matcher.lexer.matcher, compiler)
        self._reasoning = [text.encode() for text in grammar.reasoning]
        ends = self._reasoning[1:] if self._answering() is _State.INSIDE else []
        self._ends = Starts([end for end in ends if end], None, compiler)
        self._longest = max(1, *map(len, [*self._begins, *self._reasoning]))
        self._seen: list[tuple[int, bytes]] = []  # the last tokens and their texts, where one of those may have begun
        self._opening = spellings(grammar.reasoning[0], compiler.tokenizer)  # tokens with which reasoning may begin
        self._newlines = [token for token, n in compiler.newlines.items() if n <= _NEWLINES]
        self._state = self._answering() if not grammar.reasons else _State.REASONING
        if self._state is _State.INSIDE and self._opening:
            self._state = _State.OPENING
        self._open(grammar.opening.encode())
        self._fresh = 0  # newlines that may come yet, between reasoning and grammar

    def mask(self) -> NDArray[np.uint32] | None:
        """As ``allowed``, but of several that make the same text only the one that the tokenizer would choose.

        None: all may come.
        """
        if self._free:
            return self._starts.allowed(self._seen) if self._state is _State.FREE else self._ends.allowed(self._seen)
        forced = self.forced()
        return self._matcher.only(forced[0]) if forced else self.allowed()

    def forced(self) -> Sequence[int]:
        return self._matcher.forced() if self._state is _State.INSIDE and not self._fresh else ()

    def allowed(self) -> NDArray[np.uint32]:
        """The tokens that may come next, a bit each: uint32 [ceil(n_vocab / 32)], lowest bit first.

        Valid until the next call. Raises RequestError if the grammar needs more work than is allowed.
        """
        if self._free:
            mask = self.mask()
            return self._matcher.everything() if mask is None else mask
        if self._state is _State.BEGINNING:
            return self._matcher.only(*self._first_opening)
        mask = self._matcher.mask()
        if self._state is _State.OPENING:
            allow(mask, self._first_opening)
        elif self._fresh:
            allow(mask, self._newlines)
        return mask

    @classmethod
    def make_masks(cls, samplers: Sequence[Constraint]) -> None:
        Matcher.fill(each._matcher for each in samplers if each._state in (_State.OPENING, _State.INSIDE))

    def accept(self, token: int) -> None:
        """Go on by one token, one of those that are allowed."""
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
            self._matcher.accept(token)
            if self._grammar.again and self._matcher.is_stopped:
                self._state = _State.FREE

    def answer(self) -> None:
        """Go on where the reasoning has been ended by others."""
        self._end_reasoning(b"")
        self._fresh = 0

    @property
    def may_reason(self) -> bool:
        """Whether reasoning is on or may begin: within the grammar its marks are text."""
        return self._state is not _State.INSIDE

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
            self._matcher.take(self._vocabulary.tokenize_bytes(opening))

    @property
    def _first_opening(self) -> list[int]:
        """Tokens with which reasoning may begin, or go on in its mark."""
        return [tokens[0] for tokens in self._opening]

    def _opens(self, token: int) -> bool:
        """Go on by a token with which reasoning may begin; False: it is none, or the last and the grammar's too."""
        fits = self._state is _State.OPENING and self._matcher.allows(token)
        self._opening = [tokens[1:] for tokens in self._opening if tokens[0] == token]
        has_begun = [] in self._opening
        if not self._opening or (fits and has_begun):
            return False
        if fits:
            self._matcher.accept(token)
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
        self._matcher.restart()
        if self._state is _State.INSIDE:
            self._take(self._vocabulary.tokenize_bytes(rest) if rest else [])
            self._fresh = 0 if rest else _NEWLINES
        elif rest:
            self._look(NO_TOKEN, rest)

    def _begin(self, tokens: list[int]) -> None:
        """The grammar begins with tokens that came already."""
        self._seen = []
        self._matcher.restart()
        self._state = _State.INSIDE
        self._take(tokens)

    def _take(self, tokens: list[int]) -> None:
        """Begin the grammar with tokens that came already; what does not fit stays free text, if it may."""
        if self._matcher.take(tokens):
            return
        if not self._grammar.again:
            text = self._vocabulary.decode_str(tokens)
            raise RequestError(f"the model went on with {text[:40]!r} where the grammar begins")
        self._state = _State.FREE
