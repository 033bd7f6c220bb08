"""Statistics of an importance matrix, as in ``llama-imatrix --show-statistics``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.imatrix.sums import ActivationSums

ACTIVE = 1e-5  # minimum mean square of an active column


@dataclass(frozen=True)
class TensorStatistics:
    """Statistics of one tensor's mean squares.

    Attributes:
        layer: layer of the tensor; None without one.
        active: share of active columns.
        entropy: entropy of the normalized values in bits.
        entropy_share: entropy divided by its maximum.
        z_density: share of values more than a standard deviation above the mean (Dumitru et al. 2024,
            arXiv:2406.17415).
        similarity: cosine similarity to the same tensor of the previous layer.
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
    """Means over the tensors of a layer, weighted by their number of columns."""

    layer: int
    total: float
    z_density: float
    similarity: float


def tensor_statistics(sums: ActivationSums) -> list[TensorStatistics]:
    """Return the statistics of all counted tensors, sorted by name without the layer, then by decreasing sum."""
    statistics = []
    for name, of_tensor in sums.tensors.items():
        reached = of_tensor.counts > 0
        if reached.any():
            values = (of_tensor.squares[reached] / of_tensor.counts[reached, None]).reshape(-1)
            statistics.append(_statistics(name, values, _similarity(sums, name)))
    return sorted(statistics, key=lambda item: (_parts(item.name)[1], -item.total))


def layer_statistics(tensors: list[TensorStatistics]) -> list[LayerStatistics]:
    """Return the statistics of every layer, in order."""
    layers = sorted({tensor.layer for tensor in tensors if tensor.layer is not None})
    return [_layer(layer, [tensor for tensor in tensors if tensor.layer == layer]) for layer in layers]


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
    weights = [tensor.n for tensor in tensors]

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=weights))

    return LayerStatistics(
        layer,
        mean([tensor.total for tensor in tensors]),
        mean([tensor.z_density for tensor in tensors]),
        mean([tensor.similarity for tensor in tensors]),
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
    """Return the layer of a tensor, and the rest of its name."""
    pieces = name.split(".", 2)
    if len(pieces) == 3 and pieces[0] == "blk" and pieces[1].isdigit():
        return int(pieces[1]), pieces[2]
    return None, name
