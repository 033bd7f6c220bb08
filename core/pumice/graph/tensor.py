"""What a graph is made of: tensors, and the nodes that compute them.

Every activation is float32 or int32 and row-major with tokens first: ``[n_tokens, ...]``. The only
dimensions unknown at tracing time are the number of tokens in a step and the number of rows whose
logits are wanted, written as the symbols ``N_TOKENS`` and ``N_OUTPUTS``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.gguf import GGMLType, GGUFTensor
    from pumice.graph.builder import GraphBuilder

N_TOKENS = "n_tokens"
N_OUTPUTS = "n_outputs"

Dim = int | str
Shape = tuple[Dim, ...]


def format_shape(shape: Shape) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def concrete(shape: Shape, n_tokens: int, n_outputs: int) -> tuple[int, ...]:
    """The shape with both symbols replaced by numbers."""
    sizes = {N_TOKENS: n_tokens, N_OUTPUTS: n_outputs}
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)


@dataclass(eq=False)
class Tensor:
    """A value in the graph. Arithmetic on it adds nodes: ``x + y``, ``x * y``, ``x * 0.5``, ``x / y``."""

    name: str
    shape: Shape
    dtype: str = "f32"  # "f32" or "i32"
    builder: GraphBuilder | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.name} {format_shape(self.shape)}"

    def _ops(self) -> GraphBuilder:
        assert self.builder is not None, f"{self.name} does not belong to a graph being built"
        return self.builder

    def __add__(self, other: Tensor) -> Tensor:
        return self._ops().add(self, other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self._ops().mul(self, other)
        return self if other == 1.0 else self._ops().scale(self, other)

    def __truediv__(self, other: Tensor) -> Tensor:
        return self._ops().div(self, other)

    def reshape(self, *shape: Dim) -> Tensor:
        return self._ops().reshape(self, shape)


@dataclass(eq=False)
class Input(Tensor):
    """A value the engine fills before every step."""


@dataclass(eq=False)
class Weight(Tensor):
    """A tensor of the model file, or a range of its rows; ``shape`` is that of the range.

    ``data`` and ``dequantize`` touch the file's pages only when called.
    """

    source: GGUFTensor = None  # type: ignore[assignment]
    first_row: int = 0  # along axis 0

    @property
    def type(self) -> GGMLType:
        """The GGML type of the stored blocks."""
        return self.source.type

    @property
    def data(self) -> Any:
        """uint8 view ``[*shape[:-1], row_bytes]`` of the mapped file."""
        if len(self.shape) == 1:
            return self.source.data  # one row; never sliced (see rows)
        return self.source.data[self.first_row : self.first_row + int(self.shape[0])]

    def dequantize(self) -> Any:
        """The values as float32 of ``shape``."""
        from pumice.gguf import dequantize

        if len(self.shape) == 1:
            return self.source.dequantize()[self.first_row : self.first_row + int(self.shape[0])]
        return dequantize(self.data, self.type)

    def rows(self, start: int, stop: int) -> Weight:
        """Rows ``start`` to ``stop`` along axis 0: how a fused qkv or gate-up matrix is taken apart, free of cost."""
        assert 0 <= start < stop <= int(self.shape[0]), f"rows {start}:{stop} of {self}"
        return Weight(
            f"{self.name}[{start}:{stop}]",
            (stop - start, *self.shape[1:]),
            builder=self.builder,
            source=self.source,
            first_row=self.first_row + start,
        )


@dataclass(eq=False)
class State(Tensor):
    """Memory that outlives a step. Each backend lays out the states of the nodes it owns as it likes."""


@dataclass(eq=False)
class KVState(State):
    """The keys and values of one attention layer, in blocks that block tables address.

    A layer whose values are a prefix of its keys (multi-head latent attention) stores keys only and
    has ``v_dim`` 0. Layers with the same ``window`` share block tables; 0 means the whole context.
    """

    n_head_kv: int = 0
    k_dim: int = 0
    v_dim: int = 0
    window: int = 0


@dataclass(eq=False)
class RecurrentState(State):
    """A float32 array of ``shape`` for each sequence slot, zero at position 0 of a sequence."""


@dataclass(eq=False)
class Node:
    """One operation. ``inputs`` has a fixed place for each operand; an absent optional operand is None."""

    op: str
    inputs: tuple[Tensor | None, ...]
    output: Tensor
    attrs: dict[str, Any]
    layer: int  # -1: before the first layer; n_layer: after the last

    def operands(self) -> list[Tensor]:
        return [tensor for tensor in self.inputs if tensor is not None]


@dataclass
class Graph:
    """A traced model: ``nodes`` in an order they can run in, ``output`` the logits ``[n_outputs, n_vocab]``."""

    nodes: list[Node]
    inputs: list[Input]
    output: Tensor
    n_layer: int

    @property
    def states(self) -> list[State]:
        """Every distinct state, in order of first use."""
        found = [tensor for node in self.nodes for tensor in node.operands() if isinstance(tensor, State)]
        return list(dict.fromkeys(found))
