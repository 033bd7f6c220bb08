"""Functions that a request brings, which its engine calls while it generates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class LogitsProcessor(Protocol):
    """A function that changes the logits of the next token."""

    def __call__(self, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits to sample from.

        Args:
            ids: int32 ``[n]``, the tokens of the prompt and of the text so far.
            logits: float32 ``[n_vocab]``, which may be changed in place; -inf for tokens that cannot come.
        """


@runtime_checkable
class StoppingCriteria(Protocol):
    """A function that ends a text."""

    def __call__(self, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> bool:
        """Return True to end the text before its next token; the arguments are those of ``LogitsProcessor``."""
