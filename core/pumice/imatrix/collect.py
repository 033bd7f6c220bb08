"""`Collector`: sum the squares of the inputs of a model's matrices while it reads a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.graph import Graph, Node, Tensor
from pumice.imatrix.sums import ActivationSums

PRODUCTS = ("linear", "batched_linear", "mul_mat_id")
LAYERS, OUTPUT = "blk.", "output.weight"


@dataclass(frozen=True)
class Product:
    """A product with a matrix: the tensor's name, the input, and the choice of experts, if any."""

    weight: str
    n_matrices: int
    columns: int
    x: Tensor
    ids: Tensor | None


class Collector:
    """An observer of a model's steps: pass it to ``pumice.load(..., observer=collector)``.

    It observes the matrices of all layers and, with ``process_output``, that of the output. ``sums`` has the sums so
    far. A step raises QuantizeError if an activation is not finite.
    """

    def __init__(self, sums: ActivationSums, process_output: bool = False) -> None:
        self.sums = sums
        self._process_output = process_output
        self._products: list[Product] = []

    def watch(self, graph: Graph) -> Graph:
        """Return the graph with the inputs of its matrices added to the outputs."""
        nodes = [part for node in graph.nodes for part in self._opened(node)]
        products: dict[tuple[str, Tensor], Product] = {}
        for node in nodes:
            if product := self._product(node):
                products.setdefault((product.weight, product.x), product)
        for part in (part for node in graph.nodes for part in node.parts() if part.op == "latent_attention"):
            weight, latent = part.weight("kv_b"), part.inputs["latent"]
            if not weight.is_derived:
                products[weight.name, latent] = Product(weight.name, 1, int(weight.shape[-1]), latent, None)
        self._products = list(products.values())
        outputs = dict(graph.outputs)
        for product in self._products:
            outputs |= {_key(tensor): tensor for tensor in (product.x, product.ids) if tensor is not None}
        return replace(graph, nodes=nodes, outputs=outputs)

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a step's outputs."""
        for product in self._products:
            x = outputs[_key(product.x)]
            if product.ids is None:
                rows = x.reshape(len(x), -1) if product.n_matrices > 1 else x.reshape(-1, x.shape[-1])
                squares, counts = (
                    np.einsum("ij,ij->j", rows, rows, dtype=np.float64)[None],
                    np.array([float(len(rows))]),
                )
            else:
                squares, counts = _of_experts(x, outputs[_key(product.ids)], product.n_matrices)
            if not np.isfinite(squares).all():
                raise QuantizeError(f"the input of {product.weight!r} is not finite, so the model cannot be measured")
            self.sums.add(product.weight, squares, counts)

    @property
    def n_bytes(self) -> int:
        """Size in bytes of the sums and counts in a file, once a model is watched."""
        values = {product.weight: product.n_matrices * (product.columns + 1) for product in self._products}
        return np.dtype(np.float32).itemsize * sum(values.values())

    def _opened(self, node: Node) -> Iterator[Node]:
        """Yield the node, or the parts of a composite node that contains matrices."""
        if any(self._product(part) for inner in node.expansion for part in inner.parts()):
            for inner in node.expansion:
                yield from self._opened(inner)
        else:
            yield node

    def _product(self, node: Node) -> Product | None:
        """Return the product of a node; None if it is no product with an observed matrix."""
        if node.op not in PRODUCTS or "weight" not in node.inputs:
            return None
        weight = node.weight("weight")
        if weight.is_derived:
            return None
        name = weight.name.partition("[")[0]  # a part of the rows has a suffix in brackets
        if not name.startswith(LAYERS) and not (self._process_output and name == OUTPUT):
            return None
        n_matrices = int(weight.shape[0]) if len(weight.shape) > 2 else 1
        return Product(name, n_matrices, int(weight.shape[-1]), node.inputs["x"], node.inputs.get("ids"))


def _key(tensor: Tensor) -> str:
    return f"activation {tensor.name}"


def _of_experts(
    x: NDArray[np.float32], ids: NDArray[np.int32], n_experts: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums [n_experts, k] of squares of ``x [t, k]`` or ``[t, e, k]`` by expert ``ids [t, e]``, and counts."""
    rows = np.broadcast_to(x[:, None] if x.ndim == 2 else x, (*ids.shape, x.shape[-1])).reshape(-1, x.shape[-1])
    order = np.argsort(ids, axis=None, kind="stable")
    counts = np.bincount(ids.reshape(-1), minlength=n_experts)
    squares = np.zeros((n_experts, x.shape[-1]))
    for expert, indices in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        squares[expert] = np.einsum("ij,ij->j", rows[indices], rows[indices], dtype=np.float64)
    return squares, counts.astype(np.float64)
