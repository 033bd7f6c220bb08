"""Limit the tokens of reasoning: when they are used up, reasoning is closed and the answer follows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.constraint import Constraint
from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import from_tokens
from pumice.tokenizers import Tokenizer


@dataclass(frozen=True)
class ReasoningBudget:
    """A limit on the tokens of reasoning, as plain data.

    Attributes:
        n_tokens: maximum tokens of all reasoning of an answer.
        closing: tokens that are inserted when the limit is reached; they end the reasoning.
        begin: text that starts reasoning.
        end: text that ends reasoning.
        reasons: True if the prompt ends inside reasoning.
    """

    n_tokens: int
    closing: Sequence[int]
    begin: str
    end: str
    reasons: bool = False


class BudgetedReasoning(MaskSampler):
    """Sampler that enforces a ``ReasoningBudget``, and a ``Constraint`` if given, on one sequence."""

    def __init__(
        self,
        budget: ReasoningBudget,
        tokenizer: Tokenizer,
        n_vocab: int,
        n_prompt: int = 0,
        constraint: Constraint | None = None,
    ) -> None:
        """``n_prompt``: accepted tokens that belong to the prompt. Raises RequestError for an empty mark."""
        if not (budget.begin and budget.end):
            raise RequestError("budget: begin and end must not be empty")
        self._budget = budget
        self._tokenizer = tokenizer
        self._n_vocab = n_vocab
        self._n_prompt = n_prompt
        self._constraint = constraint
        self._marks = budget.begin.encode(), budget.end.encode()
        self._n_left = budget.n_tokens
        self._reasons = budget.reasons
        self._text = b""  # end of the text, which may contain the start of a mark
        self._closing = self._due()

    def mask(self) -> NDArray[np.uint32] | None:
        if self._closing:
            return from_tokens(self._closing[:1], self._n_vocab)
        return self._constraint.mask() if self._constraint else None

    def forced(self) -> Sequence[int]:
        return self._closing or (self._constraint.forced() if self._constraint else ())

    def n_allowed(self, tokens: Sequence[int]) -> int:
        return len(tokens) if self._closing or not self._constraint else self._constraint.n_allowed(tokens)

    def fork(self) -> BudgetedReasoning:
        other = copy(self)
        other._constraint = self._constraint and self._constraint.fork()
        return other

    def spend(self) -> None:
        """Spend the budget: reasoning that goes on now ends after the next token."""
        if self._reasons:
            self._n_left = 0

    @property
    def is_closing(self) -> bool:
        """True if the next token is one of the inserted tokens that end the reasoning."""
        return bool(self._closing)

    @classmethod
    def make_masks(cls, samplers: Sequence[BudgetedReasoning]) -> None:
        Constraint.make_masks(
            [sampler._constraint for sampler in samplers if sampler._constraint and not sampler._closing]
        )

    def accept(self, token: int) -> None:
        if self._closing and not self._n_prompt:
            self._closing = self._closing[1:]
            if not self._closing:
                self._answer()
            return
        if self._constraint:
            self._constraint.accept(token)
        if self._n_prompt:
            self._n_prompt -= 1
        elif self._constraint and not self._constraint.may_reason:
            self._n_left -= self._reasons
            self._reasons, self._text = False, b""
        else:
            self._n_left -= self._reasons
            self._look(self._tokenizer.token_bytes(token, special=True))
            self._closing = self._due()

    def _due(self) -> Sequence[int]:
        """Return the tokens to insert now."""
        return self._budget.closing if self._reasons and self._n_left <= 0 else ()

    def _answer(self) -> None:
        """Continue after the end of the reasoning."""
        self._reasons, self._text = False, b""
        if self._constraint:
            self._constraint.answer()

    def _look(self, spelt: bytes) -> None:
        """Update the state by the marks of reasoning in the text so far and ``spelt``."""
        self._text += spelt
        while (start := self._text.find(mark := self._marks[self._reasons])) >= 0:
            self._text = self._text[start + len(mark) :]
            self._reasons = not self._reasons
        self._text = self._text[-max(map(len, self._marks)) :]
