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


@runtime_checkable
class LayerFunction(Protocol):
    """A function that sees the rows of a layer."""

    def __call__(self, rows: NDArray[np.float32], positions: NDArray[np.int32]) -> NDArray[np.float32] | None:
        """Return the rows to go on with, of the same shape, or None to leave them as they are.

        Args:
            rows: float32 ``[n, n_embd]``, those of the tokens of one step: of the prompt, in parts, and then of each
                new token.
            positions: int32 ``[n]``, the positions of these tokens in the sequence, from 0.
        """
