"""The budget of reasoning: after so many tokens it is ended for the model, and the answer follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.grammar.constraint import Constraint
from pumice.sampler.contract import MaskSampler
from pumice.sampler.mask import from_tokens
from pumice.tokenizers import Tokenizer


@dataclass(frozen=True)
class Budget:
    """How long a model may reason. Plain data.

    Attributes:
        n_tokens: most tokens of reasoning, in all parts of it together.
        closing: tokens that are written once those have come, and end the reasoning.
        begin, end: texts between which the model reasons.
        reasons: the prompt has begun the reasoning.
    """

    n_tokens: int
    closing: Sequence[int]
    begin: str
    end: str
    reasons: bool = False


class BudgetedReasoning(MaskSampler):
    """The sampler that keeps one sequence to a ``Budget``, and to a ``Constraint`` where there is one."""

    def __init__(
        self,
        budget: Budget,
        tokenizer: Tokenizer,
        n_vocab: int,
        n_prompt: int = 0,
        constraint: Constraint | None = None,
    ) -> None:
        """The first ``n_prompt`` tokens that are accepted are the prompt's. Raises RequestError for an empty mark."""
        if not (budget.begin and budget.end):
            raise RequestError("a budget of reasoning needs the texts that begin and end it")
        self._budget = budget
        self._tokenizer = tokenizer
        self._n_vocab = n_vocab
        self._n_prompt = n_prompt
        self._constraint = constraint
        self._marks = budget.begin.encode(), budget.end.encode()
        self._n_left = budget.n_tokens
        self._reasons = budget.reasons
        self._text = b""  # the last of it, in which a mark may have begun
        self._closing = self._due()

    def mask(self) -> NDArray[np.uint32] | None:
        if self._closing:
            return from_tokens(self._closing[:1], self._n_vocab)
        return self._constraint.mask() if self._constraint else None

    def forced(self) -> Sequence[int]:
        return self._closing or (self._constraint.forced() if self._constraint else ())

    @property
    def is_closing(self) -> bool:
        """Whether the next token is one that ends the reasoning for the model."""
        return bool(self._closing)

    @classmethod
    def make_masks(cls, samplers: Sequence[BudgetedReasoning]) -> None:
        Constraint.make_masks([each._constraint for each in samplers if each._constraint and not each._closing])

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
        """What is to be written now."""
        return self._budget.closing if self._reasons and self._n_left <= 0 else ()

    def _answer(self) -> None:
        """The reasoning has been ended."""
        self._reasons, self._text = False, b""
        if self._constraint:
            self._constraint.answer()

    def _look(self, spelt: bytes) -> None:
        """Find where reasoning begins and ends in the text so far and what follows it."""
        self._text += spelt
        while (place := self._text.find(mark := self._marks[self._reasons])) >= 0:
            self._text = self._text[place + len(mark) :]
            self._reasons = not self._reasons
        self._text = self._text[-max(map(len, self._marks)) :]
