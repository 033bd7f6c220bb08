"""Tracing: an architecture calls operations on a builder, and a graph comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pumice.errors import ModelError
from pumice.gguf import GGUFTensor
from pumice.graph.ops import Ops
from pumice.graph.tensor import N_OUTPUTS, N_TOKENS, Graph, Input, Node, Shape, Tensor, Weight, format_shape


class GraphBuilder(Ops):
    """Collects the nodes of one model.

    ``tokens`` and ``positions`` are int32 ``[n_tokens]``; ``output_ids`` int32 ``[n_outputs]`` names the
    rows whose logits are wanted. ``n_ctx`` is the context length the graph will run with: some models
    choose their RoPE factors by it.
    """

    def __init__(self, tensors: Mapping[str, GGUFTensor], n_layer: int, n_ctx: int) -> None:
        self.n_layer = n_layer
        self.n_ctx = n_ctx
        self.tokens = Input("tokens", (N_TOKENS,), "i32", builder=self)
        self.positions = Input("positions", (N_TOKENS,), "i32", builder=self)
        self.output_ids = Input("output_ids", (N_OUTPUTS,), "i32", builder=self)
        self._tensors = tensors
        self._weights: dict[str, Weight] = {}
        self._nodes: list[Node] = []
        self._layer = -1

    def weight(self, name: str, shape: Sequence[int] | None = None) -> Weight:
        """The tensor ``name`` of the file; a ModelError if it is missing or does not have ``shape``."""
        found = self.find_weight(name, shape)
        if found is None:
            raise ModelError(f"tensor {name} is missing from the file")
        return found

    def find_weight(self, name: str, shape: Sequence[int] | None = None) -> Weight | None:
        """As ``weight``, but None if the file does not have it."""
        if name not in self._tensors:
            return None
        source = self._tensors[name]
        if shape is not None and source.shape != tuple(shape):
            raise ModelError(
                f"tensor {name} has shape {format_shape(source.shape)}, the model needs {format_shape(tuple(shape))}"
            )
        if name not in self._weights:
            self._weights[name] = Weight(name, source.shape, builder=self, source=source)
        return self._weights[name]

    @contextmanager
    def layer(self, index: int) -> Iterator[str]:
        """Nodes made inside belong to layer ``index``; gives the prefix of its tensor names, ``blk.{index}.``."""
        self._layer = index
        yield f"blk.{index}."
        self._layer = self.n_layer

    def finish(self, logits: Tensor) -> Graph:
        """The traced graph, without nodes that do not lead to ``logits``."""
        needed = {logits}
        kept = []
        for node in reversed(self._nodes):
            if node.output in needed:
                needed.update(node.operands())
                kept.append(node)
        inputs = [tensor for tensor in (self.tokens, self.positions, self.output_ids) if tensor in needed]
        return Graph(kept[::-1], inputs, logits, self.n_layer)

    def _node(self, op: str, inputs: Sequence[Tensor | None], shape: Shape, dtype: str = "f32", **attrs: Any) -> Tensor:
        output = Tensor(f"%{len(self._nodes)}", shape, dtype, builder=self)
        self._nodes.append(Node(op, tuple(inputs), output, attrs, self._layer))
        return output

    def _state_name(self, kind: str) -> str:
        return f"{kind}.{self._layer}"
