"""Statistics of an importance matrix, as ``llama-imatrix --show-statistics`` counts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.imatrix.sums import ActivationSums

ACTIVE = 1e-5  # least mean square of a column that counts as used


@dataclass(frozen=True)
class TensorStatistics:
    """Of one tensor's mean squares.

    layer: None for a tensor of no layer. active: the share that is used at all. entropy: bits, of the values taken as
    probabilities; ``entropy_share``: of what it can be. z_density: the share more than a standard deviation above the
    mean (Dumitru et al. 2024, arXiv:2406.17415). similarity: the cosine to the same tensor one layer before.
    """

    name: str
    layer: int | None
    total: float
    low: float
    high: float
    mean: float
    deviation: float
    active: float
    n: int
    entropy: float
    z_density: float
    similarity: float

    @property
    def entropy_share(self) -> float:
        return self.entropy / float(np.log2(self.n)) if self.n > 1 else 0.0


@dataclass(frozen=True)
class LayerStatistics:
    """Means over the tensors of a layer, each as often as it has columns."""

    layer: int
    total: float
    z_density: float
    similarity: float


def tensor_statistics(sums: ActivationSums) -> list[TensorStatistics]:
    """Of every tensor that has seen a row: by name without the layer, then the largest sums first."""
    found = []
    for name, of_tensor in sums.tensors.items():
        reached = of_tensor.counts > 0
        if reached.any():
            values = (of_tensor.squares[reached] / of_tensor.counts[reached, None]).reshape(-1)
            found.append(_statistics(name, values, _similarity(sums, name)))
    return sorted(found, key=lambda each: (_parts(each.name)[1], -each.total))


def layer_statistics(tensors: list[TensorStatistics]) -> list[LayerStatistics]:
    """Of every layer, in order."""
    layers = sorted({each.layer for each in tensors if each.layer is not None})
    return [_layer(layer, [each for each in tensors if each.layer == layer]) for layer in layers]


def _statistics(name: str, values: NDArray[np.float64], similarity: float) -> TensorStatistics:
    total, mean = float(values.sum()), float(values.mean())
    deviation = float(np.sqrt(max(0.0, float((values**2).mean()) - mean**2)))
    shares = values[values > 0] / total if total > 0 else values[:0]
    return TensorStatistics(
        name=name,
        layer=_parts(name)[0],
        total=total,
        low=float(values.min()),
        high=float(values.max()),
        mean=mean,
        deviation=deviation,
        active=float((np.abs(values) > ACTIVE).mean()),
        n=values.size,
        entropy=float(-(shares * np.log2(shares)).sum()),
        z_density=float(((values - mean) / deviation > 1).mean()) if deviation > 0 else 0.0,
        similarity=similarity,
    )


def _layer(layer: int, tensors: list[TensorStatistics]) -> LayerStatistics:
    weights = [each.n for each in tensors]

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    return LayerStatistics(
        layer,
        mean([each.total for each in tensors]),
        mean([each.z_density for each in tensors]),
        mean([each.similarity for each in tensors]),
    )


def _similarity(sums: ActivationSums, name: str) -> float:
    layer, rest = _parts(name)
    before = sums.tensors.get(f"blk.{layer - 1}.{rest}") if layer is not None else None
    if before is None:
        return 0.0
    a, b = sums.tensors[name].squares.reshape(-1), before.squares.reshape(-1)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if a.size == b.size and norms > 0 else 0.0


def _parts(name: str) -> tuple[int | None, str]:
    """The layer, and the rest of a tensor's name."""
    pieces = name.split(".", 2)
    if len(pieces) == 3 and pieces[0] == "blk" and pieces[1].isdigit():
        return int(pieces[1]), pieces[2]
    return None, name
