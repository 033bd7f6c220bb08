"""The parts of a graph: tensors, and the nodes that compute them.

Every activation is float32 or int32 and row-major with rows first, mostly tokens: ``[n_tokens, ...]``. Only the
first dimension may be a name (``shape.py``), whose number each step brings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.errors import ModelError
from pumice.gguf import GGMLType, TensorSource, dequantize, row_bytes
from pumice.graph.shape import Dim, Shape, fixed, format_shape
from pumice.graph.source import DerivedSource


class Recorder(Protocol):
    """The part of a builder that arithmetic on tensors uses."""

    def apply(self, op: str, *operands: Tensor, **attrs: Any) -> Tensor:
        """Add a node of the operation ``op`` and return its result."""


@dataclass(eq=False)
class Tensor:
    """A value in the graph. Arithmetic on it adds nodes: ``x + y``, ``x * y``, ``x * 0.5``, ``x / y``."""

    name: str
    shape: Shape
    dtype: str = "f32"  # "f32" or "i32"
    builder: Recorder | None = field(default=None, repr=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name} {format_shape(self.shape)}"

    def _apply(self, op: str, *others: Tensor, **attrs: Any) -> Tensor:
        assert self.builder is not None, f"{self.name} does not belong to a graph being built"
        return self.builder.apply(op, self, *others, **attrs)

    def __add__(self, other: Tensor) -> Tensor:
        return self._apply("add", other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self._apply("mul", other)
        return self if other == 1.0 else self._apply("scale", factor=other)

    def __truediv__(self, other: Tensor) -> Tensor:
        return self._apply("div", other)

    def reshape(self, *shape: Dim) -> Tensor:
        """Return the values in another shape of the same size, without a copy."""
        return self._apply("reshape", shape=shape)


class StepRows(Protocol):
    """The rows of a batch from which inputs are computed: tokens, consecutive for each sequence.

    Attributes:
        positions: int32 ``[n_tokens]``, each token's position in its sequence.
        seq_starts: int32 ``[n_seqs + 1]``, the first row of each sequence, then the number of tokens.
        slots: int32 ``[n_seqs]``, the slot of each sequence's recurrent state.
        adapters: of each sequence the adapters in use, by key, and their scales; empty if none has any.
    """

    @property
    def positions(self) -> NDArray[np.int32]: ...

    @property
    def seq_starts(self) -> NDArray[np.int32]: ...

    @property
    def slots(self) -> NDArray[np.int32]: ...

    @property
    def adapters(self) -> Sequence[Sequence[tuple[str, float]]]: ...


Fill: TypeAlias = Callable[[StepRows], NDArray[Any]]
"""Computes an input, of its dtype and concrete shape, from the rows of a step."""


@dataclass(eq=False)
class Input(Tensor):
    """A named value that every step brings.

    ``fill`` computes it from a batch that does not have it. If it is ``of_sequences``, all tokens of a sequence
    have the same rows, so that consecutive steps need it once. ``added``: each value is the position of its token plus
    this number; None: it is something else.
    """

    fill: Fill | None = field(default=None, repr=False, kw_only=True)
    of_sequences: bool = field(default=False, kw_only=True)
    added: int | None = field(default=None, kw_only=True)


@dataclass(eq=False)
class Weight(Tensor):
    """A stored tensor, or a range of its rows; ``shape`` is that of the range.

    ``data`` and ``dequantize`` touch the source's memory only when called.
    """

    source: TensorSource = field(kw_only=True)
    first_row: int = field(default=0, kw_only=True)  # along axis 0

    @property
    def type(self) -> GGMLType:
        """The GGML type of the stored blocks."""
        return self.source.type

    @property
    def data(self) -> NDArray[np.uint8]:
        """uint8 view ``[*shape[:-1], row_bytes]`` of the source."""
        if len(self.shape) == 1:
            return self.source.data  # one row; rows() never slices it
        return self.source.data[self.first_row : self.first_row + int(self.shape[0])]

    @property
    def is_derived(self) -> bool:
        """True if the weight is computed from other weights rather than stored in a file."""
        return isinstance(self.source, DerivedSource)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored blocks; reads no memory."""
        *rows, width = fixed(self.shape)
        return math.prod(rows) * row_bytes(self.type, width)

    def dequantize(self) -> NDArray[np.float32]:
        """Return the values as float32 of ``shape``."""
        if len(self.shape) == 1:
            return self.source.dequantize()[self.first_row : self.first_row + int(self.shape[0])]
        return dequantize(self.data, self.type)

    def rows(self, start: int, stop: int) -> Weight:
        """Return rows ``start`` to ``stop`` along axis 0, without a copy; splits fused qkv or gate-up matrices.

        Raises ModelError for rows that do not exist: architectures use the file's hyperparameters.
        """
        if not 0 <= start < stop <= int(self.shape[0]):
            raise ModelError(
                f"tensor {self.name!r} has {self.shape[0]} rows, but the architecture needs {start} to {stop}"
            )
        return Weight(
            f"{self.name}[{start}:{stop}]",
            (stop - start, *self.shape[1:]),
            builder=self.builder,
            source=self.source,
            first_row=self.first_row + start,
        )


@dataclass(eq=False)
class State:
    """Memory that outlives a step. Each backend chooses the layout of its nodes' states."""

    name: str

    def __str__(self) -> str:
        return f"state {self.name}"


@dataclass(eq=False)
class KVState(State):
    """The keys and values of one attention layer, in blocks that block tables address.

    A layer whose values are a prefix of its keys (multi-head latent attention) stores keys only and
    has ``v_dim`` 0. Layers with the same ``window`` share block tables; 0 means the whole context. ``is_memory``: one
    graph fills it and another reads it, by the block tables of the batch's memory.
    """

    n_head_kv: int
    k_dim: int
    v_dim: int
    window: int = 0
    is_memory: bool = False


@dataclass(eq=False)
class RecurrentState(State):
    """A float32 array of ``shape`` for each sequence slot, zero at position 0 of a sequence."""

    shape: tuple[int, ...]


SomeState = TypeVar("SomeState", bound=State)


@dataclass(eq=False)
class Node:
    """One operation: its operands by name (without absent optional ones), its result, and its memory, if any.

    ``expansion``: equivalent nodes of a composite operation. ``prompt_expansion``: equivalent nodes for steps in which
    every sequence begins, if they differ.
    """

    op: str
    inputs: Mapping[str, Tensor]
    output: Tensor
    attrs: Mapping[str, Any]
    layer: int  # -1: before the first layer; n_layer: after the last
    state: State | None = None
    expansion: tuple[Node, ...] = ()
    prompt_expansion: tuple[Node, ...] = ()

    def for_prompts(self) -> Node:
        """Return the node for steps in which every sequence begins."""
        parts = tuple(part.for_prompts() for part in self.prompt_expansion or self.expansion)
        return self if parts == self.expansion else replace(self, expansion=parts, prompt_expansion=())

    def giving(self, output: Tensor) -> Node:
        """Return the node with another tensor as its result."""
        expansions = (
            (*parts[:-1], parts[-1].giving(output)) if parts else ()
            for parts in (self.expansion, self.prompt_expansion)
        )
        expansion, prompt_expansion = expansions
        return replace(self, output=output, expansion=expansion, prompt_expansion=prompt_expansion)

    def parts(self) -> Iterator[Node]:
        """Yield the node, and all nodes that a composite one consists of, recursively."""
        yield self
        for part in self.expansion:
            yield from part.parts()

    def operands(self) -> list[Tensor]:
        """Return the present operands, in the order of the operation's parameters."""
        return list(self.inputs.values())

    def weights(self) -> list[Weight]:
        """Return the operands that are weights."""
        return [operand for operand in self.inputs.values() if isinstance(operand, Weight)]

    def weight(self, name: str) -> Weight:
        """Return an operand that must be a weight."""
        operand = self.inputs[name]
        assert isinstance(operand, Weight), f"{name} of {self.op} is {operand}, not a weight"
        return operand

    def state_of(self, kind: type[SomeState]) -> SomeState:
        """Return the node's memory, which must be of this kind."""
        assert isinstance(self.state, kind), f"{self.op} of {self.output} has {self.state}, not a {kind.__name__}"
        return self.state


@dataclass(frozen=True)
class DraftBlock:
    """How a draft model drafts several tokens in one step: after the last token of a text it reads mask tokens.

    Attributes:
        size: tokens of a block, the first of which is the last token of the text.
        mask: id of the mask token.
        first: index in the block of the first drafted token.
    """

    size: int
    mask: int
    first: int


@dataclass
class Graph:
    """A traced graph: ``nodes`` in an order they can run in, ``outputs`` by name.

    A language model's has the output ``logits [n_outputs, n_vocab]``. ``sizes`` has the largest number of each
    name in its shapes that the architecture brought itself. ``layer_outputs`` are the residual stream after each layer.
    ``block``: blocks of tokens that the graph drafts, if it does.
    """

    nodes: list[Node]
    inputs: dict[str, Input]
    outputs: dict[str, Tensor]
    n_layer: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    layer_outputs: Sequence[Tensor] = ()
    block: DraftBlock | None = None

    @property
    def states(self) -> list[State]:
        """Every distinct state, in order of first use."""
        return states_of(self.nodes)

    @property
    def needs_whole_sequences(self) -> bool:
        """True if a sequence must be in one step as a whole, since there is attention without a cache."""
        parts = (part for node in self.nodes for part in node.parts())
        return any(part.op == "attention" and part.state is None for part in parts)

    @property
    def reads_memory(self) -> bool:
        """True if there is attention to what another graph has stored, which ``Batch.memory`` places."""
        states = (part.state for node in self.nodes for part in node.parts() if part.op == "attention")
        return any(isinstance(state, KVState) and state.is_memory for state in states)

    def only(self, names: Iterable[str]) -> Graph:
        """Return the graph with these outputs only, without nodes that affect none of them and no state."""
        outputs = {name: self.outputs[name] for name in names}
        needed = set(outputs.values())
        nodes = []
        for node in reversed(self.nodes):
            if node.output in needed or node.op == "kv_store":
                needed.update(node.operands())
                nodes.append(node)
        inputs = {name: tensor for name, tensor in self.inputs.items() if tensor in needed}
        return replace(self, nodes=nodes[::-1], inputs=inputs, outputs=outputs)

    def for_prompts(self) -> Graph | None:
        """Return the graph for steps in which every sequence begins; None if it does not differ."""
        nodes = [node.for_prompts() for node in self.nodes]
        return None if nodes == self.nodes else replace(self, nodes=nodes)


def states_of(nodes: Iterable[Node]) -> list[State]:
    """Return every distinct state of nodes, including those inside composite nodes, in order of first use."""
    flat = [part for node in nodes for part in node.parts()]
    return list(dict.fromkeys(part.state for part in flat if part.state is not None))
