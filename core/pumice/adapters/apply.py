"""Add the changes of adapters to the products and layers of traced graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pumice.adapters.adapter import EMBEDDINGS, Adapter, Pair
from pumice.errors import ModelError
from pumice.graph import N_OUTPUTS, N_TOKENS, Graph, GraphBuilder, Input, Node, StepRows, Tensor, Weight
from pumice.graph.shape import format_shape, row_size
from pumice.graph.taps import DIRECTIONS

SCALES = "adapter_scales"
"""Input with the scale of each adapter for each token: float32 ``[n_tokens, n_adapters]``."""


@dataclass(frozen=True)
class AdaptedGraphs:
    """A model's graphs by name, and the adapters that requests may use by key."""

    plain: Mapping[str, Graph]
    adapters: Mapping[str, Adapter] = field(default_factory=dict)

    @cached_property
    def graphs(self) -> Mapping[str, Graph]:
        """The graphs with the adapters. Raises ModelError for an adapter that does not fit."""
        return with_adapters(self.plain, self.adapters.values())


def with_adapters(graphs: Mapping[str, Graph], adapters: Collection[Adapter]) -> dict[str, Graph]:
    """Return a model's graphs with the changes of adapters, as strong as each batch says; see ``Batch.adapters``.

    Values keep their tensors, so nodes, weights and states of the given graphs can be found in these. Graphs of another
    model, which drafts, stay as they are. Raises ModelError for an adapter that does not fit the model.
    """
    if not adapters:
        return dict(graphs)
    adapters, adapted = [*adapters], set[tuple[int, str | int]]()
    changed = {name: _adapted(graph, adapters, adapted) for name, graph in graphs.items()}
    for index, adapter in enumerate(adapters):
        for part in (*adapter.pairs, *adapter.directions):
            if (index, part) not in adapted:
                shown = f"layer {part}" if isinstance(part, int) else repr(part)
                raise ModelError(f"{adapter.path}: changes {shown}, which this model does not have or cannot adapt")
    return changed


def _adapted(graph: Graph, adapters: Sequence[Adapter], adapted: set[tuple[int, str | int]]) -> Graph:
    g = graph.nodes[0].output.builder if graph.nodes else None
    if not isinstance(g, GraphBuilder) or g.is_of_draft:
        return graph
    deltas = _Deltas(g, adapters, adapted)
    layers = defaultdict(list)
    for layer, value in enumerate(graph.layer_outputs):
        layers[value].append(layer)
    nodes: list[Node] = []
    for node in graph.nodes:
        with g.collecting() as added:
            before = Tensor(f"{node.output.name} before adapters", node.output.shape, node.output.dtype, builder=g)
            value = deltas.of_weight(node, before)
            for layer in layers[node.output]:
                value = deltas.of_layer(layer, value)
        if value is before:
            nodes.append(node)
            continue
        parts = [replace(part, layer=node.layer) for part in added]
        nodes += [node.giving(before), *parts[:-1], parts[-1].giving(node.output)]
    inputs = {**graph.inputs, SCALES: deltas.scales, g.output_ids.name: g.output_ids}
    return replace(graph, nodes=nodes, inputs=inputs).only(graph.outputs)


class _Deltas:
    """Adds changes to values of one graph. ``adapted`` gets the number of an adapter with each part that was used."""

    def __init__(self, g: GraphBuilder, adapters: Sequence[Adapter], adapted: set[tuple[int, str | int]]) -> None:
        self.g = g
        self._adapters = adapters
        self._adapted = adapted
        shape = (N_TOKENS, len(adapters))
        self.scales = Input(SCALES, shape, "f32", builder=g, fill=_scales(adapters), of_sequences=True)

    def of_weight(self, node: Node, value: Tensor) -> Tensor:
        """Return the result ``value`` of a node with the changes of its weight."""
        delta, weight = _DELTAS.get(node.op), node.inputs.get("weight")
        if delta is None or not isinstance(weight, Weight):
            return value
        name = weight.name.partition("[")[0]  # a part of the rows has a suffix in brackets
        for index, adapter in enumerate(self._adapters):
            pair = adapter.pairs.get(name)
            if pair is not None and (name != EMBEDDINGS or node.op == "embedding"):
                self._adapted.add((index, name))
                _check(adapter, name, weight, pair)
                value = value + delta(self, index, weight, pair, node.inputs)
        return value

    def of_layer(self, layer: int, value: Tensor) -> Tensor:
        """Return the residual stream after a layer with control vectors; several streams get the same."""
        for index, adapter in enumerate(self._adapters):
            if layer in adapter.directions:
                self._adapted.add((index, layer))
                column = np.resize(adapter.directions[layer], (row_size(value.shape), 1))
                vector = self.factor(index, f"{DIRECTIONS}{layer}", column)
                added = self.g.linear(self._scale(value, index), vector)
                value = value + (added if added.shape == value.shape else added.reshape(*value.shape))
        return value

    def factor(self, index: int, name: str, array: NDArray[np.float32]) -> Weight:
        """Return a matrix of an adapter as a weight, which graphs share."""
        return self.g.derived(f"{name} of adapter {self._adapters[index].key}", array.shape, lambda: array)

    def strength(self, x: Tensor, index: int) -> Tensor:
        """Multiply ``x [t, ..., r]``, rows of tokens or of outputs, by the scale of an adapter."""
        return x * self._scale(x, index).reshape(x.shape[0], *(1 for _ in x.shape[1:]))

    def _scale(self, x: Tensor, index: int) -> Tensor:
        """Return the scales ``[t, 1]`` of an adapter for the rows of ``x``, of tokens or of outputs."""
        g = self.g
        scales = g.get_rows(self.scales, g.output_ids) if x.shape[0] == N_OUTPUTS else self.scales
        return g.slice(scales, index, index + 1)


def _scales(adapters: Sequence[Adapter]) -> Callable[[StepRows], NDArray[np.float32]]:
    columns = {adapter.key: index for index, adapter in enumerate(adapters)}

    def fill(batch: StepRows) -> NDArray[np.float32]:
        scales = np.zeros((len(batch.positions), len(adapters)), np.float32)
        for asked, first, end in zip(batch.adapters, batch.seq_starts, batch.seq_starts[1:], strict=False):
            for key, scale in asked:
                scales[first:end, columns[key]] = scale  # an unknown key is a mistake of the engine
        return scales

    return fill


def _check(adapter: Adapter, name: str, weight: Weight, pair: Pair) -> None:
    whole = weight.source.shape
    if not pair.fits(name, whole):
        shapes = " and ".join(format_shape(array.shape) for array in (pair.down, pair.up))
        raise ModelError(f"{adapter.path}: {name!r} {shapes} do not fit the weight {format_shape(whole)}")


Delta = Callable[[_Deltas, int, Weight, Pair, Mapping[str, Tensor]], Tensor]


def _linear(deltas: _Deltas, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    inner = deltas.g.linear(operands["x"], deltas.factor(index, f"{weight.name}.lora_a", pair.down))
    first = weight.first_row
    up = pair.up[first : first + int(weight.shape[0])]
    return deltas.g.linear(deltas.strength(inner, index), deltas.factor(index, f"{weight.name}.lora_b", up))


def _experts(deltas: _Deltas, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    g, ids = deltas.g, operands["ids"]
    inner = g.mul_mat_id(operands["x"], deltas.factor(index, f"{weight.name}.lora_a", pair.down), ids)
    return g.mul_mat_id(deltas.strength(inner, index), deltas.factor(index, f"{weight.name}.lora_b", pair.up), ids)


def _embedding(deltas: _Deltas, index: int, weight: Weight, pair: Pair, operands: Mapping[str, Tensor]) -> Tensor:
    inner = deltas.g.embedding(deltas.factor(index, f"{weight.name}.lora_a", pair.down), operands["ids"])
    return deltas.g.linear(deltas.strength(inner, index), deltas.factor(index, f"{weight.name}.lora_b", pair.up))


_DELTAS: dict[str, Delta] = {"linear": _linear, "mul_mat_id": _experts, "embedding": _embedding}
