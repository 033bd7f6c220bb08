"""Convolutions of each channel over the rows around a row."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.nn import blocks


class Around:
    """The rows that a convolution of ``n_taps`` rows sees, the row in its middle."""

    def __init__(self, n_taps: int) -> None:
        self._distances = range(-(n_taps // 2), n_taps - n_taps // 2)

    def inputs(self, n: int, n_valid: int) -> dict[str, NDArray[Any]]:
        """Return the inputs for ``n`` rows, of which those from ``n_valid`` on count as zero."""
        rows = np.arange(n, dtype=np.int32)
        inputs: dict[str, NDArray[Any]] = {}
        for distance in self._distances:
            near = rows + np.int32(distance)
            inputs[f"at {distance}"] = np.clip(near, 0, n - 1).astype(np.int32)
            inputs[f"has {distance}"] = ((near >= 0) & (near < n_valid)).astype(np.float32)[:, None]
        return inputs

    def convolved(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Apply the kernel ``{name}.weight``, and its bias if there is one, to each channel."""
        n, total = blocks.width(x), []
        kernel = g.weight(f"{name}.weight", (n, len(self._distances)))
        for i, distance in enumerate(self._distances):
            weight = g.derived(f"{name}.tap{i}", (n,), functools.partial(_column, n, i), kernel)
            rows = g.get_rows(x, g.input(f"at {distance}", (N_TOKENS,), "i32"))
            total.append(rows * g.input(f"has {distance}", (N_TOKENS, 1)) * weight)
        y, bias = functools.reduce(Tensor.__add__, total), g.find_weight(f"{name}.bias", (n,))
        return y + bias if bias else y


def _column(n: int, number: int, kernel: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(kernel.reshape(n, -1)[:, number])
