"""Importance matrices as quantizers take them: how much an error in each column of a matrix counts."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.imatrix import read_sums


@dataclass(frozen=True)
class ImportanceMatrix:
    """Weights of columns by the name of a tensor: float32 [matrices * columns], finite.

    datasets: the texts they were measured on. n_chunks: how many pieces of them; 0 if the file does not say.
    """

    path: Path
    weights: dict[str, NDArray[np.float32]]
    datasets: list[str] = field(default_factory=list)
    n_chunks: int = 0

    def only(self, keep: Callable[[str], bool]) -> "ImportanceMatrix":
        """Those of the tensors that ``keep`` wants."""
        kept = {name: values for name, values in self.weights.items() if keep(name)}
        return ImportanceMatrix(self.path, kept, self.datasets, self.n_chunks)


def read_imatrix(path: str | os.PathLike[str]) -> ImportanceMatrix:
    """Read a file of llama-imatrix's formats. QuantizeError if it is not one, or has numbers that are not finite."""
    sums = read_sums(path)
    weights = {name: of_tensor.means.reshape(-1) for name, of_tensor in sums.tensors.items()}
    return ImportanceMatrix(Path(path), weights, sums.datasets, sums.n_chunks)
