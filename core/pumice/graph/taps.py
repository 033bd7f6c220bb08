"""Places of a graph where rows can be read or replaced: the residual stream, and what each layer adds to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pumice.graph.shape import N_TOKENS
from pumice.graph.tensor import Graph, Node, Tensor

EMBEDDINGS = "embeddings"
"""The residual stream before the first layer."""

TAP = "tap"

DIRECTIONS = "directions of layer "
"""The beginning of the name of a constant with a control vector."""


def sites_of(graph: Graph) -> dict[str, Tensor]:
    """Return the values that can be read and replaced, ``[n_tokens, ...]``, by name.

    ``embeddings`` is the residual stream before layer 0, ``3`` the one after layer 3, ``3.attention`` and ``3.ffn``
    what attention and feed-forward network of the layer add to it. The latter are missing in layers that add something
    else.
    """
    makers = {node.output: node for node in graph.nodes}
    before = _before_layers(graph)
    sites = {} if before is None else {EMBEDDINGS: before}
    for layer, after in enumerate(graph.layer_outputs):
        sites[str(layer)] = after
        added = _added(makers, after, before) if before is not None else None
        if added is not None and len(added := [value for value in added if not _steers(makers, value)]) == 2:
            sites |= {f"{layer}.attention": added[0], f"{layer}.ffn": added[1]}
        before = after
    return {name: value for name, value in sites.items() if value in makers and value.shape[0] == N_TOKENS}


def _before_layers(graph: Graph) -> Tensor | None:
    """Return the last value before layer 0 with the shape of that layer's output; others may be further inputs."""
    before = [node.output for node in graph.nodes if node.layer == -1]
    shapes = [value.shape for value in graph.layer_outputs[:1]]
    return next((value for value in reversed(before) if not shapes or value.shape in shapes), None)


def _added(makers: Mapping[Tensor, Node], after: Tensor, before: Tensor) -> list[Tensor] | None:
    """Return what is added to ``before`` on the way to ``after``; None if that is no sum."""
    if after is before:
        return []
    node = makers.get(after)
    if node is None or node.op != "add":
        return None
    first, second = node.operands()
    for stream, other in ((first, second), (second, first)):
        added = _added(makers, stream, before)
        if added is not None:
            return [*added, other]
    return None


def _steers(makers: Mapping[Tensor, Node], value: Tensor) -> bool:
    """Return True for what control vectors add."""
    node = makers.get(value)
    return node is not None and any(operand.name.startswith(DIRECTIONS) for operand in node.operands())


def with_outputs(graph: Graph, sites: Mapping[str, Tensor]) -> Graph:
    """Return the graph of these values only, up to the last of them."""
    wanted = set(sites.values())
    last = max(index for index, node in enumerate(graph.nodes) if node.output in wanted)
    return replace(graph, nodes=graph.nodes[: last + 1], outputs=dict(sites)).only(sites)


def with_taps(graph: Graph, sites: Mapping[str, Tensor]) -> Graph:
    """Return the graph with a node at each of these values, through which their rows pass."""
    at = {value: name for name, value in sites.items()}

    def nodes() -> Iterator[Node]:
        for node in graph.nodes:
            value = node.output
            if value not in at:
                yield node
                continue
            untapped = Tensor(f"{value.name} before {at[value]}", value.shape, value.dtype, builder=value.builder)
            yield node.giving(untapped)
            yield Node(TAP, {"x": untapped}, value, {"site": at[value]}, node.layer)

    return replace(graph, nodes=[*nodes()])
