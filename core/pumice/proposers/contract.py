"""The proposer contract: guess the next tokens of a sequence, which the model verifies in one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ProposerContext:
    """The context of a proposer's sequence.

    Attributes:
        n_vocab: Number of tokens in the model's vocabulary.
        salt: Sequences with different salts must not influence each other, not even the time that an answer takes.
        shared: Data of the model's proposers that outlives sequences, under keys of their own.
        prediction: Tokens of the text that the request expects, if it expects one.
    """

    n_vocab: int
    salt: bytes = b""
    shared: dict[Hashable, Any] = field(default_factory=dict)
    prediction: Sequence[int] = ()


class Proposer(ABC):
    """Proposes the next tokens of one sequence.

    Drafts affect the speed of generation, never the text: the sampler chain chooses each token from the model's
    logits, and uses verified rows as long as it chooses the drafted tokens. A subclass is a dataclass whose fields are
    its parameters, each with a default. The state of the sequence is created in ``start``.
    """

    def start(self, context: ProposerContext) -> None:  # noqa: B027 - some proposers have no state
        """Begin a sequence. The prompt's tokens follow through ``accept``."""

    def accept(self, tokens: Sequence[int]) -> None:  # noqa: B027 - some proposers have no memory
        """Append tokens of the sequence: the prompt, then all generated tokens, whether proposed or not.

        They come before the next ``propose``, together those of all steps in which the proposer rested, up to about
        a thousand.
        """

    @abstractmethod
    def propose(self, n: int) -> Sequence[int]:
        """Return at most ``n`` tokens that may follow the accepted ones; none if there is no guess."""

    def judge(self, tokens: Sequence[int], n_accepted: int) -> None:  # noqa: B027 - few proposers adapt
        """Learn that the first ``n_accepted`` of the verified ``tokens`` were right."""

    def close(self) -> None:  # noqa: B027 - most proposers hold no resources
        """End the sequence."""
