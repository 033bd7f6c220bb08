"""Tracing: an architecture calls operations on a builder, and a graph comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pumice.errors import ModelError
from pumice.gguf.tensors import TensorSource
from pumice.graph.fuse import join_gates
from pumice.graph.operation import Operation, P
from pumice.graph.ops import OPERATIONS, Ops
from pumice.graph.shape import N_OUTPUTS, N_SEQS, N_TOKENS, Shape, format_shape
from pumice.graph.source import ArraySource, DerivedSource, ReshapedSource, differ_by_ones
from pumice.graph.tensor import Graph, Input, KVState, Node, State, Tensor, Weight, states_of

STEP_SIZES = (N_TOKENS, N_OUTPUTS, N_SEQS)  # the names that every step has a number for


class NoTargetError(ModelError):
    """What drafts for a model, without that model."""


class GraphBuilder(Ops):
    """Collects the nodes of one graph.

    ``n_ctx`` is the context length the graph will run with: some models choose their RoPE factors by it. Graphs of
    one model share weights and caches: ``shared`` is the builder of one traced before. Those of a draft may read
    weights and caches of another model: ``target`` is the builder of that one's last graph.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorSource],
        n_layer: int,
        n_ctx: int,
        shared: GraphBuilder | None = None,
        target: GraphBuilder | None = None,
    ) -> None:
        self.n_layer = n_layer
        self.n_ctx = n_ctx
        self._tensors = tensors
        self._target = target
        self._prefix = "draft " if target else ""  # of names of weights, which are distinct among all that run together
        self._weights: dict[str, Weight] = shared._weights if shared else {}
        known = shared or target
        self._states: dict[str, State] = known._states if known else {}
        self._caches: dict[int, KVState] = {}
        self._earlier_caches: dict[int, KVState] = shared._earlier_caches | shared._caches if shared else {}
        self._inputs: dict[str, Input] = {}
        self._outputs: dict[str, Tensor] = {}
        self._layer_outputs: list[Tensor] = []
        self._sizes: dict[str, int] = {}
        self._nodes: list[Node] = []
        self._n_values = 0
        self._layer = -1
        self._again: list[State] = []  # those that a second expansion of a node keeps too

    # --- inputs and outputs

    @property
    def tokens(self) -> Input:
        """int32 ``[n_tokens]``: the token ids of the step."""
        return self.input("tokens", (N_TOKENS,), "i32")

    @property
    def positions(self) -> Input:
        """int32 ``[n_tokens]``: each token's place in its sequence."""
        return self.input("positions", (N_TOKENS,), "i32")

    @property
    def output_ids(self) -> Input:
        """int32 ``[n_outputs]``: the rows whose logits are wanted."""
        return self.input("output_ids", (N_OUTPUTS,), "i32")

    def input(
        self,
        name: str,
        shape: Shape,
        dtype: str = "f32",
        fill: Callable[[Any], Any] | None = None,
        of_sequences: bool = False,
    ) -> Input:
        """A value that each step's batch brings under ``name``, or that ``fill`` makes of a batch that does not.

        ``of_sequences``: its rows are the same for all tokens of a sequence.

        ``fill`` looks at everything but the tokens, which may not be known yet.
        """
        if name not in self._inputs:
            self._check_sizes(name, shape)
            self._inputs[name] = Input(name, shape, dtype, builder=self, fill=fill, of_sequences=of_sequences)
        found = self._inputs[name]
        if (found.shape, found.dtype) != (shape, dtype):
            raise ModelError(f"input {found} of {found.dtype} cannot also be {format_shape(shape)} of {dtype}")
        return found

    def size(self, name: str, most: int) -> str:
        """A name for a dimension whose number is known in each step only, with the largest there will be."""
        if name in STEP_SIZES or self._sizes.get(name, most) != most:
            raise ModelError(f"the size {name} is taken; choose another name")
        self._sizes[name] = most
        return name

    def output(self, name: str, tensor: Tensor) -> None:
        """Make a value one of the graph's results: ``logits``, ``embedding``, ``hidden``, ..."""
        if self._outputs.get(name, tensor) is not tensor:
            raise ModelError(f"output {name} is given twice, as {self._outputs[name]} and {tensor}")
        self._outputs[name] = tensor

    # --- weights and states

    @property
    def target(self) -> GraphBuilder:
        """The builder of the model that this one drafts for, whose ``weight`` and ``cache`` can be read."""
        if self._target is None:
            raise NoTargetError("this is a draft, which needs its model: load that one, with this file as `draft`")
        return self._target

    def weight(self, name: str, shape: Sequence[int] | None = None) -> Weight:
        """The tensor ``name`` of the file; a ModelError if it is missing or does not have ``shape``."""
        found = self.find_weight(name, shape)
        if found is None:
            raise ModelError(f"tensor {name} is missing from the file")
        return found

    def find_weight(self, name: str, shape: Sequence[int] | None = None) -> Weight | None:
        """As ``weight``, but None if the file does not have it. Dimensions of 1 are as one likes."""
        if name not in self._tensors:
            return None
        source, key = self._tensors[name], name
        if shape is not None and source.shape != tuple(shape):
            needed = format_shape(tuple(shape))
            if not differ_by_ones(source, tuple(shape)):
                raise ModelError(f"tensor {name} has shape {format_shape(source.shape)}, the model needs {needed}")
            source, key = ReshapedSource(source, tuple(shape)), f"{name}[as {needed}]"
        return self._weights.setdefault(key, Weight(self._prefix + key, source.shape, builder=self, source=source))

    def constant(self, name: str, array: Any) -> Weight:
        """An array as a weight, float32; ``name`` belongs to it alone."""
        if name in self._tensors or name in self._weights:
            raise ModelError(f"the constant {name} has the name of a tensor")
        source = ArraySource(array)
        self._weights[name] = Weight(self._prefix + name, source.shape, builder=self, source=source)
        return self._weights[name]

    def derived(self, name: str, shape: Sequence[int], make: Callable[..., Any], *of: Weight) -> Weight:
        """A weight ``[*shape]`` that ``make`` computes of whole weights, given as float32 arrays, when it is wanted.

        It is float32 if they are, else float16. ``name`` belongs to it alone.
        """
        if name not in self._weights:
            source = DerivedSource(tuple(shape), make, [weight.source for weight in of])
            self._weights[name] = Weight(self._prefix + name, source.shape, builder=self, source=source)
        return self._weights[name]

    def cache(self, layer: int) -> KVState:
        """The cache that an attention layer traced before reads, in this graph or an earlier one of the model."""
        found = self._caches.get(layer, self._earlier_caches.get(layer))
        if found is None:
            raise ModelError(f"layer {layer} has no cache that another layer could read")
        return found

    def memory(self, name: str) -> KVState:
        """The cache that ``kv_store`` fills under ``name`` in a graph traced before."""
        state = self._states.get(name)
        if not isinstance(state, KVState) or not state.is_memory:
            raise ModelError(f"no graph traced before stores the memory {name}")
        return state

    @contextmanager
    def layer(self, index: int) -> Iterator[str]:
        """Nodes made inside belong to layer ``index``; gives the prefix of its tensor names, ``blk.{index}.``."""
        self._layer = index
        yield f"blk.{index}."
        self._layer = self.n_layer

    def layer_output(self, x: Tensor) -> Tensor:
        """The residual stream as a layer leaves it, with what control vectors add to it; what the next layer takes.

        Layers are counted as they run: one that runs twice is two.
        """
        self._layer_outputs.append(x)
        return x

    # --- nodes

    def apply(self, op: str, *operands: Tensor, **attrs: Any) -> Tensor:
        """Add a node of the operation of this name."""
        return self.trace(OPERATIONS[op], *operands, **attrs)

    def trace(self, operation: Operation[P], *args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Add a node of an operation; its result."""
        inputs, attrs = operation.bind(*args, **kwargs)
        result = operation.rule(*args, **kwargs)
        output = Tensor(f"%{self._n_values}", result.shape, result.dtype, builder=self)
        self._n_values += 1
        state = self._named(result.state) if result.state else None
        node = Node(operation.name, inputs, output, attrs, self._layer, state)
        if operation.expand:
            node.expansion = self._expand(operation.expand, node, args, kwargs)
        if operation.expand_prompt:
            self._again = states_of(node.expansion)
            node.prompt_expansion = self._expand(operation.expand_prompt, node, args, kwargs)
            self._again = []
        self._nodes.append(node)
        return output

    def finish(self, logits: Tensor | None = None) -> Graph:
        """The traced graph, without nodes that lead to no output and fill no memory. ``logits`` is that output."""
        if logits is not None:
            self.output("logits", logits)
        if not self._outputs:
            raise ModelError("the architecture gives no output: return the logits, or name outputs with g.output")
        graph = Graph(self._nodes, self._inputs, self._outputs, self.n_layer, dict(self._sizes), self._layer_outputs)
        graph = graph.only(self._outputs)
        return replace(graph, nodes=join_gates(graph.nodes, graph.outputs))

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        """The results named so far."""
        return self._outputs

    def _expand(self, expand: Callable[..., Tensor], node: Node, args: Any, kwargs: Any) -> tuple[Node, ...]:
        """The nodes of a composite operation; the last of them gives its result."""
        outside, self._nodes = self._nodes, []
        try:
            result = expand(self, *args, **kwargs)
            *first, last = self._nodes
        finally:
            self._nodes = outside
        shape = node.output.shape
        if last.output is not result or result.shape != shape:
            raise ModelError(f"the expansion of {node.op} must end with its result {format_shape(shape)}")
        return (*first, last.giving(node.output))

    def _named(self, state: State) -> State:
        """A state as it is in this model: a new one gets a name that tells its layer."""
        if self._again and state not in self._states.values():
            return self._again.pop(0)
        if state not in self._states.values():
            if not (isinstance(state, KVState) and state.is_memory):
                state.name = f"{state.name}.{self._layer}"
            while state.name in self._states:
                state.name += "'"
            self._states[state.name] = state
        if isinstance(state, KVState):
            self._caches.setdefault(self._layer, state)
        return state

    def _check_sizes(self, name: str, shape: Shape) -> None:
        for dim in shape[1:]:
            if isinstance(dim, str):
                raise ModelError(f"input {name} {format_shape(shape)}: only the first dimension may be a name")
        if isinstance(shape[0], str) and shape[0] not in (*STEP_SIZES, *self._sizes):
            raise ModelError(f"input {name}: declare the size {shape[0]} with g.size")
