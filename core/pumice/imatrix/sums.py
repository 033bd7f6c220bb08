"""`ActivationSums`: sums of squares of the inputs of matrices, with numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError

CHUNK_SIZE = 512  # default number of tokens per chunk


@dataclass
class TensorSums:
    """The sums of one tensor: ``squares`` float64 [matrices, columns] over ``counts`` [matrices] rows.

    Experts have separate counts. The matrices of heads, which all get every row, are stored as one long row.
    """

    squares: NDArray[np.float64]
    counts: NDArray[np.float64]

    @property
    def means(self) -> NDArray[np.float32]:
        """Return the mean squares, float32 [matrices, columns]; 1 for experts that no token reached."""
        counts = self.counts[:, None]
        means = np.divide(self.squares, counts, out=np.ones_like(self.squares), where=counts > 0)
        return means.astype(np.float32)

    def add(self, other: TensorSums, name: str) -> None:
        """Add the sums of another text. Raises QuantizeError, naming the tensor, if the shapes differ."""
        wide, narrow = (self, other) if len(self.counts) >= len(other.counts) else (other, self)
        if self.squares.size != other.squares.size or len(narrow.counts) not in (1, len(wide.counts)):
            raise QuantizeError(
                f"the sums of {name!r} have shapes {list(other.squares.shape)} and {list(self.squares.shape)}; they "
                f"come from different models"
            )
        self.squares = wide.squares + narrow.squares.reshape(wide.squares.shape)
        self.counts = wide.counts + narrow.counts


@dataclass
class ActivationSums:
    """The sums of all tensors, by name.

    Attributes:
        datasets: texts that were read.
        chunk_size: tokens per chunk.
        n_chunks: number of chunks, by the tensor with the most rows.
    """

    tensors: dict[str, TensorSums] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    chunk_size: int = CHUNK_SIZE
    n_chunks: int = 0

    def add(self, name: str, squares: NDArray[np.float64], counts: Sequence[float] | NDArray[np.float64]) -> None:
        """Add ``squares`` [matrices, columns] over ``counts`` [matrices] rows to the sums of a tensor."""
        sums = TensorSums(squares, np.asarray(counts, np.float64))
        if name in self.tensors:
            self.tensors[name].add(sums, name)
        else:
            self.tensors[name] = sums
        self.n_chunks = max(self.n_chunks, int(self.tensors[name].counts.max()) // self.chunk_size)

    @property
    def unreached(self) -> dict[str, int]:
        """Return the number of experts without tokens, whose columns are weighted equally, by tensor name."""
        counts = {name: int((sums.counts == 0).sum()) for name, sums in self.tensors.items()}
        return {name: count for name, count in counts.items() if count}

    def merge(self, other: ActivationSums) -> None:
        """Add the sums of other texts."""
        for name, sums in other.tensors.items():
            self.add(name, sums.squares, sums.counts)
        self.datasets += other.datasets
