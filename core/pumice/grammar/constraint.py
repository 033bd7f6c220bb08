"""Apply a grammar to one sequence: which tokens are allowed, from where the grammar starts to where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.matcher import Matcher
from pumice.grammar.starts import NO_TOKEN, Firsts, Starts, spellings, tokens_from
from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import allow

if TYPE_CHECKING:
    from pumice.grammar.compiler import Compiler


@dataclass(frozen=True)
class Grammar:
    """The structure of an answer, as plain data.

    Attributes:
        source: grammar in llguidance's form (``grammar_source``).
        begins: trigger texts: the answer is unconstrained until one of them, with which the grammar starts. If empty,
            the grammar starts at once. With ``again`` the grammar allows white space before them.
        first: trigger texts that count only where the answer begins; white space in them is ignored.
        opening: beginning of the answer in the prompt, which belongs to the grammar or to one of ``begins``.
        again: after the grammar has ended, the answer is unconstrained until the next trigger; otherwise it ends.
        reasoning: start and end texts of reasoning, which is unconstrained. If the grammar starts at once, reasoning
            may precede it, provided that tokens for its start text exist.
        reasons: True if the prompt ends inside reasoning.
    """

    source: str
    begins: Sequence[str] = ()
    first: Sequence[str] = ()
    opening: str = ""
    again: bool = False
    reasoning: tuple[str, str] = ("", "")
    reasons: bool = False


_NEWLINES = 2  # maximum between reasoning and answer


class _State(Enum):
    REASONING = "everything is allowed until the reasoning ends"
    OPENING = "the grammar decides, but reasoning may begin"
    BEGINNING = "reasoning has begun, with the first tokens of its mark"
    FREE = "everything is allowed until the grammar begins"
    INSIDE = "the grammar decides"


class Constraint(MaskSampler):
    """Sampler that enforces a ``Grammar`` on one sequence."""

    def __init__(self, grammar: Grammar, compiler: Compiler, n_prompt: int = 0) -> None:
        """``n_prompt``: accepted tokens that belong to the prompt. Raises RequestError for an invalid grammar."""
        self._n_prompt = n_prompt
        self._grammar = grammar
        self._texts = compiler.texts
        self._spelt = partial(compiler.tokenizer.token_bytes, special=True)
        self._vocabulary = compiler.vocabulary
        self._end, self._others = compiler.end, compiler.others
        self._matcher = Matcher(grammar.source, compiler)
        self._begins = [text.encode() for text in grammar.begins]
        self._firsts = Firsts(grammar.first)
        self._starts = Starts(self._begins, self._matcher.lexer.matcher, compiler, grammar.again)
        self._reasoning = [text.encode() for text in grammar.reasoning]
        ends = self._reasoning[1:] if self._answering() is _State.INSIDE else []
        self._ends = Starts([end for end in ends if end], None, compiler)
        self._longest = max(1, *map(len, [*self._begins, *self._reasoning]))
        self._seen: list[tuple[int, bytes]] = []  # last tokens and their texts, which may contain the start of a mark
        self._opening = spellings(grammar.reasoning[0], compiler.tokenizer)  # tokens of the start of reasoning
        self._newlines = [token for token, n in compiler.newlines.items() if n <= _NEWLINES]
        self._state = self._answering() if not grammar.reasons else _State.REASONING
        if self._state is _State.INSIDE and self._opening:
            self._state = _State.OPENING
        self._open(grammar.opening.encode())
        self._fresh = 0  # newlines still allowed between reasoning and grammar

    def mask(self) -> NDArray[np.uint32] | None:
        """Return ``allowed``, but of several tokens with the same text only the tokenizer's choice; None allows all.

        Tokens that end the text are such tokens, too: a complete form ends whatever other samplers say of them.
        """
        if self._free:
            return self._starts.allowed(self._seen) if self._state is _State.FREE else self._ends.allowed(self._seen)
        if forced := self.forced():
            return self._matcher.only(forced[0])
        mask = self.allowed()
        return mask if np.any(mask & self._others) else self._matcher.only(self._end)

    def forced(self) -> Sequence[int]:
        return self._matcher.forced() if self._state is _State.INSIDE and not self._fresh else ()

    def n_allowed(self, tokens: Sequence[int]) -> int:
        inside = self._state is _State.INSIDE and not self._fresh
        return self._matcher.n_allowed(tokens) if inside else len(tokens)

    def fork(self) -> Constraint:
        other = copy(self)
        other._matcher, other._firsts, other._seen = self._matcher.fork(), self._firsts.fork(), list(self._seen)
        return other

    def allowed(self) -> NDArray[np.uint32]:
        """Return the mask of allowed tokens: uint32 [ceil(n_vocab / 32)], one bit per token, lowest bit first.

        The mask is valid until the next call. Raises RequestError if the grammar exceeds its limit of work.
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
        Matcher.fill(sampler._matcher for sampler in samplers if sampler._state in (_State.OPENING, _State.INSIDE))

    def accept(self, token: int) -> None:
        """Advance by one of the allowed tokens."""
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
        """Continue after reasoning that another sampler has ended."""
        self._end_reasoning(b"")
        self._fresh = 0

    @property
    def may_reason(self) -> bool:
        """True if reasoning is active or may begin; inside the grammar its marks are text."""
        return self._state is not _State.INSIDE

    @property
    def _free(self) -> bool:
        return self._state in (_State.REASONING, _State.FREE)

    def _answering(self) -> _State:
        """Return the state outside of reasoning."""
        return _State.FREE if self._begins or self._grammar.first else _State.INSIDE

    def _open(self, opening: bytes) -> None:
        """Advance by the beginning of the answer in the prompt."""
        if opening and self._state is _State.FREE:
            self._look(NO_TOKEN, opening)
        elif opening and self._state is not _State.REASONING:
            self._matcher.take(self._vocabulary.tokenize_bytes(opening))

    @property
    def _first_opening(self) -> list[int]:
        """Tokens that begin or continue the start text of reasoning."""
        return [tokens[0] for tokens in self._opening]

    def _opens(self, token: int) -> bool:
        """Advance by a token of reasoning's start text.

        Return False if it is none, or completes it and fits the grammar.
        """
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
        """Advance by a token of unconstrained text, in which reasoning may begin or end, or the grammar begin."""
        self._seen.append((token, spelt))
        text = b"".join(text for _, text in self._seen)
        begin, end = self._reasoning
        if self._state is _State.REASONING:
            if (position := text.find(end)) >= 0:
                self._end_reasoning(text[position + len(end) :].lstrip(b"\n"))
                return
        elif begin and (position := text.find(begin)) >= 0:
            self._state, self._seen = _State.REASONING, []
            return
        else:
            positions = [position for mark in self._begins if (position := text.find(mark)) >= 0]
            if positions:
                self._begin(tokens_from(self._seen, min(positions), self._vocabulary, self._grammar.again))
                return
            first = self._firsts.take(token, spelt) if token != NO_TOKEN else []
            if first:
                self._begin(first)
                return
        while len(text) - len(self._seen[0][1]) >= self._longest:
            text = text[len(self._seen.pop(0)[1]) :]

    def _end_reasoning(self, rest: bytes) -> None:
        """Leave reasoning; ``rest``, the remaining text of its last token, belongs to the answer."""
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
        """Start the grammar with tokens that were already generated."""
        self._seen = []
        self._matcher.restart()
        self._state = _State.INSIDE
        self._take(tokens)

    def _take(self, tokens: list[int]) -> None:
        """Advance the grammar by generated tokens; if they do not fit, the text stays unconstrained where possible."""
        if self._matcher.take(tokens):
            return
        if not self._grammar.again:
            text = self._vocabulary.decode_str(tokens)
            raise RequestError(f"the model wrote {text[:40]!r} where the grammar begins, which does not allow it")
        self._state = _State.FREE
