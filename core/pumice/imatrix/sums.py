"""`ActivationSums`: the sums of squares of what went into matrices, and of how many rows they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError

CHUNK_SIZE = 512  # tokens a chunk, where a file or a run does not say


@dataclass
class Sums:
    """Of one tensor: ``squares`` float64 [matrices, columns], the sums over ``counts`` [matrices] rows.

    The matrices of experts have counts of their own; those of heads, which all get every row, are one long row here.
    """

    squares: NDArray[np.float64]
    counts: NDArray[np.float64]

    @property
    def means(self) -> NDArray[np.float32]:
        """Mean squares [matrices, columns], float32; 1 for experts that no token reached."""
        counts = self.counts[:, None]
        means = np.divide(self.squares, counts, out=np.ones_like(self.squares), where=counts > 0)
        return means.astype(np.float32)

    def add(self, other: Sums, name: str) -> None:
        """Add what another text gave. QuantizeError, with the tensor's ``name``, if it is of another shape."""
        wide, narrow = (self, other) if len(self.counts) >= len(other.counts) else (other, self)
        if self.squares.size != other.squares.size or len(narrow.counts) not in (1, len(wide.counts)):
            raise QuantizeError(
                f"the sums of {name!r} are {list(other.squares.shape)} and {list(self.squares.shape)}: they are of "
                f"different models"
            )
        self.squares = wide.squares + narrow.squares.reshape(wide.squares.shape)
        self.counts = wide.counts + narrow.counts


@dataclass
class ActivationSums:
    """By the name of a tensor.

    datasets: the texts they were measured on. chunk_size: tokens of a chunk of them. n_chunks: how many the tensor that
    saw most rows has seen.
    """

    tensors: dict[str, Sums] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    chunk_size: int = CHUNK_SIZE
    n_chunks: int = 0

    def add(self, name: str, squares: NDArray[np.float64], counts: Sequence[float] | NDArray[np.float64]) -> None:
        """Add sums ``squares`` [matrices, columns] over ``counts`` [matrices] rows to those of a tensor."""
        sums = Sums(squares, np.asarray(counts, np.float64))
        if name in self.tensors:
            self.tensors[name].add(sums, name)
        else:
            self.tensors[name] = sums
        self.n_chunks = max(self.n_chunks, int(self.tensors[name].counts.max()) // self.chunk_size)

    @property
    def unreached(self) -> dict[str, int]:
        """Experts that no token went to, by the name of a tensor that has any: their columns count alike."""
        counts = {name: int((sums.counts == 0).sum()) for name, sums in self.tensors.items()}
        return {name: count for name, count in counts.items() if count}

    def merge(self, other: ActivationSums) -> None:
        """Add what was measured on other texts."""
        for name, sums in other.tensors.items():
            self.add(name, sums.squares, sums.counts)
        self.datasets += other.datasets
