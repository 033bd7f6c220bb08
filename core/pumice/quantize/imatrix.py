"""Importance matrices for quantizers: weights for the errors in the columns of a matrix."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.imatrix import read_sums


@dataclass(frozen=True)
class ImportanceMatrix:
    """Weights of columns by tensor name.

    Attributes:
        path: path of the file, for messages.
        weights: finite float32 [matrices * columns] by tensor name.
        datasets: texts on which the weights were measured.
        n_chunks: number of chunks of text; 0 if unknown.
    """

    path: Path
    weights: dict[str, NDArray[np.float32]]
    datasets: list[str] = field(default_factory=list)
    n_chunks: int = 0

    def only(self, keep: Callable[[str], bool]) -> "ImportanceMatrix":
        """Return the weights of the tensors for which ``keep`` is true."""
        weights = {name: values for name, values in self.weights.items() if keep(name)}
        return ImportanceMatrix(self.path, weights, self.datasets, self.n_chunks)


def read_imatrix(path: str | os.PathLike[str]) -> ImportanceMatrix:
    """Read a file in one of llama-imatrix's formats. Raises QuantizeError if it is invalid or has non-finite values."""
    sums = read_sums(path)
    weights = {name: of_tensor.means.reshape(-1) for name, of_tensor in sums.tensors.items()}
    return ImportanceMatrix(Path(path), weights, sums.datasets, sums.n_chunks)
