"""`AdaptedBuilder`: a builder that adds the changes of adapters to products and layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice.adapters.adapter import EMBEDDINGS, Adapter, Pair
from pumice.errors import ModelError
from pumice.graph import N_OUTPUTS, N_TOKENS, GraphBuilder, Operation, StepRows, Tensor, TensorSource, Weight
from pumice.graph.operation import P
from pumice.graph.shape import format_shape, row_size
from pumice.graph.taps import DIRECTIONS

SCALES = "adapter_scales"
"""Input with the scale of each adapter for each token: float32 ``[n_tokens, n_adapters]``."""


class AdaptedBuilder(GraphBuilder):
    """Traces a model with adapters. A batch without scales uses the adapters' defaults."""

    def __init__(
        self,
        adapters: Sequence[Adapter],
        tensors: Mapping[str, TensorSource],
        n_layer: int,
        n_ctx: int,
        shared: GraphBuilder | None = None,
    ) -> None:
        super().__init__(tensors, n_layer, n_ctx, shared)
        self._adapters = adapters
        self.adapted: set[tuple[int, str | int]] = shared.adapted if isinstance(shared, AdaptedBuilder) else set()

    def trace(self, operation: Operation[P], *args: P.args, **kwargs: P.kwargs) -> Tensor:
        result = super().trace(operation, *args, **kwargs)
        delta = _DELTAS.get(operation.name)
        operands, _ = operation.bind(*args, **kwargs)
        weight = operands.get("weight")
        if delta is None or not isinstance(weight, Weight):
            return result
        name = weight.name.partition("[")[0]  # a part of the rows has a suffix in brackets
        for index, adapter in enumerate(self._adapters):
            pair = adapter.pairs.get(name)
            if pair is not None and (name != EMBEDDINGS or operation.name == "embedding"):
                self.adapted.add((index, name))
                self._check(adapter, name, weight, pair)
                result = result + delta(self, index, weight, pair, operands)
        return result

    def layer_output(self, x: Tensor) -> Tensor:
        layer = len(self._layer_outputs)
        steering = {i: a.directions[layer] for i, a in enumerate(self._adapters) if layer in a.directions}
        if steering:
            self.adapted |= {(index, layer) for index in steering}
            x = x + self._steered(x, layer, steering)
        return super().layer_output(x)

    def check_all_adapted(self) -> None:
        """Raise ModelError if a pair or a direction of an adapter was not used by the traced graphs."""
        for index, adapter in enumerate(self._adapters):
            missing = [name for name in adapter.pairs if (index, name) not in self.adapted]
            if missing:
                raise ModelError(
                    f"{adapter.path}: changes {missing[0]!r}, which this model does not have or cannot adapt"
                )
            beyond = [layer for layer in adapter.directions if (index, layer) not in self.adapted]
            if beyond:
                raise ModelError(
                    f"{adapter.path}: changes layer {beyond[0]}, which this model does not have or cannot adapt"
                )

    def factor(self, index: int, name: str, array: NDArray[np.float32]) -> Weight:
        """Return a matrix of an adapter as a weight."""
        name = f"adapter {index}: {name}"
        return self._weights.get(name) or self.constant(name, array)

    def strength(self, x: Tensor, index: int) -> Tensor:
        """Multiply ``x [t, ..., r]``, rows of tokens or of outputs, by the scale of an adapter."""
        scale = self.slice(self._scales(x), index, index + 1)
        return x * scale.reshape(x.shape[0], *(1 for _ in x.shape[1:]))

    def _scales(self, x: Tensor) -> Tensor:
        """Return the scales ``[t, n_adapters]`` for the rows of ``x``, of tokens or of outputs."""
        defaults = [adapter.scale for adapter in self._adapters]
        fill = partial(_same_for_all, defaults)
        scales: Tensor = self.input(SCALES, (N_TOKENS, len(defaults)), fill=fill, of_sequences=True)
        return self.get_rows(scales, self.output_ids) if x.shape[0] == N_OUTPUTS else scales

    def _steered(self, x: Tensor, layer: int, directions: Mapping[int, NDArray[np.float32]]) -> Tensor:
        """Return what control vectors add to a layer's ``x``: scales times a matrix of ``directions``, by adapter.

        If there are several residual streams, the same is added to each of them.
        """
        matrix = np.zeros((row_size(x.shape), len(self._adapters)), np.float32)
        for index, direction in directions.items():
            matrix[:, index] = np.resize(direction, len(matrix))
        name = f"{DIRECTIONS}{layer}"
        y = self.linear(self._scales(x), self._weights.get(name) or self.constant(name, matrix))
        return y if y.shape == x.shape else y.reshape(*x.shape)

    def _check(self, adapter: Adapter, name: str, weight: Weight, pair: Pair) -> None:
        whole = weight.source.shape
        if not pair.fits(name, whole):
            shapes = " and ".join(format_shape(array.shape) for array in (pair.down, pair.up))
            raise ModelError(f"{adapter.path}: {name!r} {shapes} does not fit the weight {format_shape(whole)}")


def _same_for_all(scales: Sequence[float], batch: StepRows) -> NDArray[np.float32]:
    return np.tile(np.array(scales, np.float32), (len(batch.positions), 1))


Delta = Callable[[AdaptedBuilder, int, Weight, Pair, Mapping[str, Tensor]], Tensor]


def _linear(g: AdaptedBuilder, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    inner = g.linear(operands["x"], g.factor(index, f"{weight.name}.lora_a", pair.down))
    first = weight.first_row
    up = pair.up[first : first + int(weight.shape[0])]
    return g.linear(g.strength(inner, index), g.factor(index, f"{weight.name}.lora_b", up))


def _experts(g: AdaptedBuilder, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    ids = operands["ids"]
    inner = g.mul_mat_id(operands["x"], g.factor(index, f"{weight.name}.lora_a", pair.down), ids)
    return g.mul_mat_id(g.strength(inner, index), g.factor(index, f"{weight.name}.lora_b", pair.up), ids)


def _embedding(g: AdaptedBuilder, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    inner = g.embedding(g.factor(index, f"{weight.name}.lora_a", pair.down), operands["ids"])
    return g.linear(g.strength(inner, index), g.factor(index, f"{weight.name}.lora_b", pair.up))


_DELTAS: dict[str, Delta] = {"linear": _linear, "mul_mat_id": _experts, "embedding": _embedding}
