"""Products of the same activations computed as one: on a GPU a token takes the time to start its kernels.

The matrices of such products, as those of queries, keys and values, become parts of one matrix. Programs that compile
steps multiply it once in each step, and turn queries and keys by their positions together; others multiply the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import Node
from pumice_mlx.weights import Matrix, Weights


@dataclass(frozen=True)
class Product:
    """Linear nodes of the same activations. ``columns``: the first and the last column of each node's output."""

    matrix: Matrix
    columns: dict[Tensor, tuple[int, int]]


@dataclass(frozen=True)
class Turned:
    """Two nodes that turn neighbouring columns of a product by the same positions."""

    product: Product
    nodes: tuple[Node, Node]
    columns: tuple[int, int]


@dataclass
class Results:
    """The results of one step that are computed together, as far as they are."""

    products: dict[int, mx.array] = field(default_factory=dict)
    turned: dict[Tensor, mx.array] = field(default_factory=dict)


class Joins:
    """The nodes of a segment whose results are computed together."""

    def __init__(self, nodes: Sequence[Node], weights: Weights) -> None:
        self._products: dict[Tensor, Product] = {}
        for group in _groups(nodes):
            if joined := weights.join(
                [weight for node in group if isinstance(weight := node.inputs["weight"], Weight)]
            ):
                matrix, rows = joined
                product = Product(matrix, dict(zip((node.output for node in group), rows, strict=True)))
                self._products.update(dict.fromkeys(product.columns, product))
        self._turned = {node.output: turned for turned in self._pairs(nodes) for node in turned.nodes}

    def _pairs(self, nodes: Sequence[Node]) -> Iterator[Turned]:
        """Yield the pairs of nodes that turn neighbouring columns of a product."""
        makers = {node.output: node for node in nodes if node.op in ("linear", "reshape")}
        previous: tuple[Node, Product, tuple[int, int]] | None = None
        for node in nodes:
            if node.op != "rope":
                continue
            source = makers.get(node.inputs["x"])
            while source and source.op == "reshape":
                source = makers.get(source.inputs["x"])
            product = self._products.get(source.output) if source and "bias" not in source.inputs else None
            if not source or not product:
                previous = None
                continue
            first, last = product.columns[source.output]
            if previous and previous[1] is product and previous[2][1] == first and _is_alike(previous[0], node):
                yield Turned(product, (previous[0], node), (previous[2][0], last))
                previous = None
            else:
                previous = node, product, (first, last)

    def product(self, node: Node, x: mx.array, bias: mx.array | None, joined: Results) -> mx.array | None:
        """Return the result of a linear node, or None if it is computed alone."""
        product = self._products.get(node.output)
        if product is None:
            return None
        if id(product) not in joined.products:
            joined.products[id(product)] = product.matrix.product(x)
        first, last = product.columns[node.output]
        y = joined.products[id(product)][..., first:last]
        return y if bias is None else y + bias

    def turned(self, node: Node, turn: Callable[[mx.array], mx.array], joined: Results) -> mx.array | None:
        """Return the result of a node that turns columns with ``turn``, or None if it is computed alone.

        Also None if the product belongs to other results: those of nodes before an attention.
        """
        pair = self._turned.get(node.output)
        if pair is None or id(pair.product) not in joined.products:
            return None
        if node.output not in joined.turned:
            first, last = pair.columns
            width = pair.nodes[0].output.shape[-1]
            columns = joined.products[id(pair.product)][:, first:last]
            heads = turn(columns.reshape(len(columns), -1, width))
            n_first = pair.nodes[0].output.shape[1]
            for output, part in zip(
                (node.output for node in pair.nodes), (heads[:, :n_first], heads[:, n_first:]), strict=True
            ):
                joined.turned[output] = part
        return joined.turned[node.output]


def _groups(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield linear nodes of the same activations, without an attention between them."""
    groups: dict[Tensor, list[Node]] = {}
    for node in nodes:
        if node.op == "attention":
            yield from (group for group in groups.values() if len(group) > 1)
            groups = {}
        elif node.op == "linear" and isinstance(node.inputs["weight"], Weight):
            groups.setdefault(node.inputs["x"], []).append(node)
    yield from (group for group in groups.values() if len(group) > 1)


def _is_alike(a: Node, b: Node) -> bool:
    same_shape = len(a.output.shape) == len(b.output.shape) == 3 and a.output.shape[-1] == b.output.shape[-1]
    return same_shape and a.attrs == b.attrs and a.inputs["positions"] is b.inputs["positions"]
