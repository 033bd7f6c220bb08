"""Trace graphs: an architecture calls operations on a builder, which returns the graph."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import ArrayLike, NDArray

from pumice.errors import ModelError
from pumice.gguf.tensors import TensorSource
from pumice.graph.fuse import join_gates
from pumice.graph.operation import Operation, P
from pumice.graph.ops import OPERATIONS, Ops
from pumice.graph.shape import N_OUTPUTS, N_SEQS, N_TOKENS, Shape, fixed, format_shape
from pumice.graph.source import ArraySource, DerivedSource, ReshapedSource, differ_by_ones
from pumice.graph.tensor import DraftBlock, Fill, Graph, Input, KVState, Node, State, Tensor, Weight, states_of

_OF_BLOCK = re.compile(
    r"(?P<block>(?P<kind>.*\bblk\.)(?P<number>\d+)\.)(?P<part>\D.*)", re.DOTALL
)  # the name of a tensor
STEP_SIZES = (N_TOKENS, N_OUTPUTS, N_SEQS)  # the sizes that every step has


class NoTargetError(ModelError):
    """Raised for a draft model without its target model."""


class GraphBuilder(Ops):
    """Collects the nodes of one graph.

    ``n_ctx`` is the context length the graph will run with: some models choose their RoPE factors by it. Graphs of
    one model share weights and caches: ``shared`` is the builder of one traced before. Those of a draft may read
    weights and caches of another model: ``target`` is the builder of that one's last graph. ``is_draft``: backends run
    the model beside its target model.

    Attributes:
        is_of_draft: the graph is that of a draft model.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorSource],
        n_layer: int,
        n_ctx: int,
        shared: GraphBuilder | None = None,
        target: GraphBuilder | None = None,
        is_draft: bool = False,
    ) -> None:
        self.n_layer = n_layer
        self.n_ctx = n_ctx
        self._tensors = tensors
        self._target = target
        self.is_of_draft = bool(target or is_draft)
        self._prefix = "draft " if self.is_of_draft else ""  # names differ among models that run together
        self._weights: dict[str, Weight] = shared._weights if shared else {}
        self._read: set[str] = shared._read if shared else set()  # names of tensors
        base = shared or target
        earlier = shared._states.earlier | shared._states.caches if shared else {}
        self._states: _States = _States(base._states.named if base else {}, earlier)
        self._inputs: dict[str, Input] = {}
        self._outputs: dict[str, Tensor] = {}
        self._layer_outputs: list[Tensor] = []
        self._block: DraftBlock | None = None
        self._sizes: dict[str, int] = {}
        self._not_found: list[str] = []  # optional tensors
        self._nodes: list[Node] = []
        self._n_values = 0
        self._layer = -1

    # --- inputs and outputs

    @property
    def tokens(self) -> Input:
        """int32 ``[n_tokens]``: the token ids of the step."""
        return self.input("tokens", (N_TOKENS,), "i32")

    @property
    def positions(self) -> Input:
        """int32 ``[n_tokens]``: each token's position in its sequence."""
        return self.input("positions", (N_TOKENS,), "i32")

    @property
    def output_ids(self) -> Input:
        """int32 ``[n_outputs]``: the rows for which logits are computed."""
        return self.input("output_ids", (N_OUTPUTS,), "i32")

    def later_positions(self, n: int) -> Input:
        """int32 ``[n_tokens]``: the position of each token plus ``n``."""
        value = self.input(f"positions_plus_{n}", (N_TOKENS,), "i32", fill=lambda batch: batch.positions + n)
        value.added = n
        return value

    def input(
        self,
        name: str,
        shape: Shape,
        dtype: str = "f32",
        fill: Fill | None = None,
        of_sequences: bool = False,
    ) -> Input:
        """Return an input: a value that each batch has under ``name``, or that ``fill`` computes from the batch.

        ``of_sequences``: all tokens of a sequence have the same rows.

        ``fill`` must not read the tokens, which may not be known yet.
        """
        if name not in self._inputs:
            _check_sizes(name, shape, (*STEP_SIZES, *self._sizes))
            self._inputs[name] = Input(name, shape, dtype, builder=self, fill=fill, of_sequences=of_sequences)
        value = self._inputs[name]
        if (value.shape, value.dtype) != (shape, dtype):
            raise ModelError(f"input {value} of {value.dtype} is also used as {format_shape(shape)} of {dtype}")
        return value

    def size(self, name: str, most: int) -> str:
        """Return a name for a dimension whose size each step brings; ``most`` is its maximum."""
        if name in STEP_SIZES or self._sizes.get(name, most) != most:
            raise ModelError(f"the size {name} already exists; choose another name")
        self._sizes[name] = most
        return name

    def output(self, name: str, tensor: Tensor) -> None:
        """Add a value to the graph's outputs: ``logits``, ``embedding``, ``hidden``, ..."""
        if self._outputs.get(name, tensor) is not tensor:
            raise ModelError(f"output {name} is given twice, as {self._outputs[name]} and {tensor}")
        self._outputs[name] = tensor

    # --- weights and states

    @property
    def target(self) -> GraphBuilder:
        """The builder of the target model, whose ``weight`` and ``cache`` a draft model can read."""
        if self._target is None:
            raise NoTargetError("this is a draft model; load its target model, with this file as `draft`")
        return self._target

    def weight(self, name: str, shape: Sequence[int] | None = None) -> Weight:
        """Return the tensor ``name`` of the file. Raises ModelError if it is missing or does not have ``shape``."""
        weight = self.find_weight(name, shape)
        if weight is None:
            raise ModelError(f"tensor {name} is missing from the file")
        return weight

    def find_weight(self, name: str, shape: Sequence[int] | None = None) -> Weight | None:
        """Like ``weight``, but return None for a missing tensor. Dimensions of 1 may be missing or added."""
        if name not in self._tensors:
            self._not_found.append(name)
            return None
        self._read.add(name)
        source, key = self._tensors[name], name
        if shape is not None and source.shape != tuple(shape):
            needed = format_shape(tuple(shape))
            if not differ_by_ones(source, tuple(shape)):
                raise ModelError(f"tensor {name} has shape {format_shape(source.shape)}, but the model needs {needed}")
            source, key = ReshapedSource(source, tuple(shape)), f"{name}[as {needed}]"
        return self._weights.setdefault(key, Weight(self._prefix + key, source.shape, builder=self, source=source))

    def check_blocks(self, differing: Collection[str] = ()) -> None:
        """Raise ModelError if a block of a damaged file lacks an optional tensor that another block has.

        ``differing``: what only some blocks have, by names behind the number of the block.
        """
        blocks: set[str] = set()
        parts: set[tuple[str, str]] = set()  # kinds of blocks and names behind the number of the block
        for match in filter(None, map(_OF_BLOCK.fullmatch, self._tensors)):
            blocks.add(match["block"])
            parts.add((match["kind"], match["part"]))
        for match in filter(None, map(_OF_BLOCK.fullmatch, self._not_found)):
            kind, part = match["kind"], match["part"]
            if match["block"] in blocks and (kind, part) in parts and not part.startswith(tuple(differing)):
                raise ModelError(f"tensor {match[0]} is missing from the file, which has it in other blocks")

    def all_rows(self, name: str) -> Weight:
        """Return the tensor ``name [..., k]`` as one matrix of all its rows, without a copy."""
        weight = self.weight(name)
        *counts, width = fixed(weight.shape)
        shape = (math.prod(counts), width)
        key = f"{name}[as {format_shape(shape)}]"
        source = ReshapedSource(weight.source, shape)
        return self._weights.setdefault(key, Weight(self._prefix + key, shape, builder=self, source=source))

    def constant(self, name: str, array: ArrayLike) -> Weight:
        """Return an array as a float32 weight; ``name`` must be unique."""
        if name in self._tensors or name in self._weights:
            raise ModelError(f"the constant {name} has the same name as a tensor")
        source = ArraySource(array)
        self._weights[name] = Weight(self._prefix + name, source.shape, builder=self, source=source)
        return self._weights[name]

    def derived(self, name: str, shape: Sequence[int], make: Callable[..., NDArray[Any]], *of: Weight) -> Weight:
        """Return a weight ``[*shape]`` that ``make`` computes on first use from whole float32 weights.

        It is float32 if all of them are, else float16. ``name`` must be unique.
        """
        if name not in self._weights:
            source = DerivedSource(tuple(shape), make, [weight.source for weight in of])
            self._weights[name] = Weight(self._prefix + name, source.shape, builder=self, source=source)
        return self._weights[name]

    def cache(self, layer: int) -> KVState:
        """Return the cache of an attention layer traced before, in this graph or an earlier one of the model."""
        cache = self._states.caches.get(layer, self._states.earlier.get(layer))
        if cache is None:
            raise ModelError(f"layer {layer} has no cache for another layer to read")
        return cache

    def memory(self, name: str) -> KVState:
        """Return the cache that ``kv_store`` fills under ``name`` in a graph traced before."""
        state = self._states.named.get(name)
        if not isinstance(state, KVState) or not state.is_memory:
            raise ModelError(f"no earlier graph stores the memory {name}")
        return state

    @contextmanager
    def layer(self, index: int) -> Iterator[str]:
        """Assign nodes added in this context to layer ``index``; yields the prefix of its tensors, ``blk.{index}.``."""
        self._layer = index
        yield f"blk.{index}."
        self._layer = self.n_layer

    def layer_output(self, x: Tensor) -> Tensor:
        """Return the residual stream for the next layer, to which control vectors are added.

        Layers are counted as they run: a layer that runs twice counts twice.
        """
        self._layer_outputs.append(x)
        return x

    def drafts_block(self, block: DraftBlock) -> None:
        """Declare that the graph drafts blocks of tokens."""
        self._block = block

    # --- nodes

    def apply(self, op: str, *operands: Tensor, **attrs: Any) -> Tensor:
        """Add a node of the operation with this name."""
        return self.trace(OPERATIONS[op], *operands, **attrs)

    def trace(self, operation: Operation[P], *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Add a node of an operation and return its result."""
        inputs, attrs = operation.bind(*args, **kwargs)
        result = operation.rule(*args, **kwargs)
        output = Tensor(f"%{self._n_values}", result.shape, result.dtype, builder=self)
        self._n_values += 1
        state = self._states.known(result.state, self._layer) if result.state else None
        node = Node(operation.name, inputs, output, attrs, self._layer, state)
        if operation.expand:
            node.expansion = _expanded(self, operation.expand, node, args, kwargs)
        if operation.expand_prompt:
            self._states.again = states_of(node.expansion)
            node.prompt_expansion = _expanded(self, operation.expand_prompt, node, args, kwargs)
            self._states.again = []
        self._nodes.append(node)
        return output

    def finish(self, logits: Tensor | None = None) -> Graph:
        """Return the traced graph, without nodes that affect no output and no state.

        ``logits`` is added to the outputs.
        """
        if logits is not None:
            self.output("logits", logits)
        if not self._outputs:
            raise ModelError("the architecture has no output; return the logits, or add outputs with g.output")
        made = self._nodes, self._inputs, self._outputs, self.n_layer, dict(self._sizes), self._layer_outputs
        graph = Graph(*made, self._block)
        graph = graph.only(self._outputs)
        return replace(graph, nodes=join_gates(graph.nodes, graph.outputs))

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The outputs added so far."""
        return self._outputs

    @contextmanager
    def collecting(self) -> Iterator[list[Node]]:
        """Collect the nodes added in this context in the yielded list instead of the graph."""
        outside, self._nodes = self._nodes, []
        try:
            yield self._nodes
        finally:
            self._nodes = outside


@dataclass
class _States:
    """The states of a model's graphs.

    Attributes:
        named: all of them by name.
        earlier: caches of the layers of earlier graphs.
        caches: those of layers of this graph.
        again: states that a second expansion of a node reuses.
    """

    named: dict[str, State]
    earlier: dict[int, KVState]
    caches: dict[int, KVState] = field(default_factory=dict)
    again: list[State] = field(default_factory=list)

    def known(self, state: State, layer: int) -> State:
        """Return the model's state; a new one gets a name with its layer."""
        if self.again and state not in self.named.values():
            return self.again.pop(0)
        if state not in self.named.values():
            if not (isinstance(state, KVState) and state.is_memory):
                state.name = f"{state.name}.{layer}"
            while state.name in self.named:
                state.name += "'"
            self.named[state.name] = state
        if isinstance(state, KVState) and not state.name.startswith("index"):  # that of an indexer is its own
            self.caches.setdefault(layer, state)
        return state


def _expanded(g: GraphBuilder, expand: Callable[..., Tensor], node: Node, args: Any, kwargs: Any) -> tuple[Node, ...]:
    """Trace the expansion of a composite operation; its last node gives the result."""
    with g.collecting() as nodes:
        result = expand(g, *args, **kwargs)
    *first, last = nodes
    shape = node.output.shape
    if last.output is not result or result.shape != shape:
        raise ModelError(f"the expansion of {node.op} must end with its result {format_shape(shape)}")
    return (*first, last.giving(node.output))


def _check_sizes(name: str, shape: Shape, sizes: Collection[str]) -> None:
    """Raise ModelError unless the first dimension of an input is a known size, and the others are numbers."""
    shown = f"input {name} {format_shape(shape)}"
    if any(isinstance(dim, str) for dim in shape[1:]):
        raise ModelError(f"{shown}: only the first dimension can be a named size")
    if not isinstance(shape[0], str):
        raise ModelError(f"{shown}: the first dimension must be a size of the step; name it with g.size")
    if shape[0] not in sizes:
        raise ModelError(f"input {name}: declare the size {shape[0]} with g.size")


def unread_tensors(builder: GraphBuilder, n_blocks: int) -> list[str]:
    """Return the names of tensors that neither a builder's graph nor those that share its weights have read.

    Left out are tensors of blocks that differ: the same part of another block has been read. ``n_blocks`` is the number
    of the model's blocks; further blocks of the file are unread.
    """
    read = {(match["kind"], match["part"]) for match in filter(None, map(_OF_BLOCK.fullmatch, builder._read))}
    unread = []
    for name in builder._tensors.keys() - builder._read:
        match = _OF_BLOCK.fullmatch(name)
        if not match or (match["kind"], match["part"]) not in read or int(match["number"]) >= n_blocks:
            unread.append(name)
    return unread
