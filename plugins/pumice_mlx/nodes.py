"""The nodes of a segment as lazy MLX operations, one by one, or several together in compiled steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import mlx.core as mx

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import (
    OPERATIONS,
    KVState,
    Limits,
    Node,
    Segment,
    State,
    concrete,
)
from pumice_mlx import sums
from pumice_mlx.attention import ATTENTION_OPS, can_attend_paged
from pumice_mlx.device import is_gpu, prepare
from pumice_mlx.fused import Fused, fusing
from pumice_mlx.joins import Joins, Results
from pumice_mlx.kv_cache import KVCache
from pumice_mlx.ops import FORMULAS, MATRICES, OPS, rope, turns
from pumice_mlx.paged import Rotation
from pumice_mlx.recurrent import RECURRENT_OPS, Recurrent
from pumice_mlx.step import Evaluation, StepArrays
from pumice_mlx.turns import attentions_that_turn
from pumice_mlx.weights import Weights, can_multiply, in_float32

#: Operations that depend on the step beyond their operands.
STEP_OPS = {"rope": rope, **ATTENTION_OPS, **RECURRENT_OPS}

#: Operations that take operands in the type of products; to others they are given in float32.
HALF_OPS = {"linear", "batched_linear", "mul_mat_id", "rope", "attention", "kv_store", "get_rows", "slice", *FORMULAS}


def claims(node: Node, limits: Limits) -> bool:
    """Return True if programs can compute a node."""
    if node.op not in OPS and node.op not in STEP_OPS and node.op != "reshape":
        return False
    if isinstance(node.state, KVState) and not limits.can_hold(node.state):
        return False
    weights = {name: tensor for name, tensor in node.inputs.items() if isinstance(tensor, Weight)}
    return all(can_multiply(weight) for name, weight in weights.items() if (node.op, name) in MATRICES)


@dataclass
class Shared:
    """Objects shared by a model's programs: weights, and the states of its sequences."""

    weights: Weights
    states: dict[State, KVCache | Recurrent]
    compiles: bool  # steps of one token of each sequence

    @classmethod
    def of(cls, activations: str, compiled: str) -> Shared:
        prepare()
        half = activations == "float16" or (activations == "auto" and is_gpu())
        compiles = compiled == "always" or (compiled == "auto" and is_gpu())
        return cls(Weights(mx.float16 if half else mx.float32), {}, compiles)

    @property
    def type(self) -> mx.Dtype:
        """The type of activations in products."""
        return self.weights.activations


class Nodes:
    """Computes the nodes of a segment.

    Attributes:
        compiles: True if steps of one token of each sequence are compiled.
    """

    def __init__(self, shared: Shared, segment: Segment) -> None:
        """Convert the weights of the segment."""
        self._shared = shared
        self._segment = segment
        for node in segment.nodes:
            for name, operand in node.inputs.items():
                if isinstance(operand, Weight):
                    self._weight(node, name, operand)
        has_memory = any(isinstance(state, KVState) and state.is_memory for state in segment.states)
        self.compiles = shared.compiles and not has_memory
        self._joins = Joins(segment.nodes if self.compiles else [], shared.weights)
        self._fused = dict[Fused, Any]()
        self._turning = attentions_that_turn(segment, [])
        self._sums: dict[Node, tuple[Node, bool]] = {}

    def prepare(self, limits: Limits) -> bool:
        """Choose the nodes that kernels compute together, once the states are made.

        Returns:
            True if kernels attend in every layer, so that a whole step can be compiled.
        """
        attentions = [node for node in self._segment.nodes if node.op == "attention"]
        possible = attentions if self.compiles else []
        paged = [node for node in possible if can_attend_paged(node, self._cache(node), self._shared.type)]
        for node in paged:
            self._cache(node).prepare(limits.n_seqs * int(node.output.shape[1]))
        self._turning = attentions_that_turn(self._segment, paged)
        if paged and sums.works(self._shared.type):
            self._sums = sums.sums_with_norms(self._segment)
        return len(paged) == len(attentions)

    def compute(self, nodes: Sequence[Node], values: dict[Tensor, mx.array], step: StepArrays) -> None:
        """Add the lazy results of nodes to ``values``, and update the states."""
        sizes, joined = step.batch.sizes, Results() if self.compiles else None
        with fusing(self._fused if self.compiles else None):
            for node in nodes:
                if node.op == "reshape":
                    values[node.output] = values[node.inputs["x"]].reshape(concrete(node.output.shape, sizes))
                    continue
                if step.alike and _takes_all_rows(node, step):
                    values[node.output] = values[node.inputs["x"]]
                    continue
                if step.alike and self._compute_by_kernels(node, values):
                    continue
                result = self._compute_jointly(node, values, step, joined) if joined else None
                values[node.output] = self._compute(node, values, step) if result is None else result

    def _compute_by_kernels(self, node: Node, values: dict[Tensor, mx.array]) -> bool:
        """Return True if a node is computed with another one in steps of one token of each sequence."""
        if node in self._turning.ropes:
            values[node.output] = values[node.inputs["x"]]  # turned by its attention
        elif node in self._sums:
            norm, is_only_multiplied = self._sums[node]
            x, y = (values[tensor] for tensor in node.inputs.values())
            type = self._shared.type if is_only_multiplied else mx.float32
            weight = self.operand(norm, "weight", values)
            values[node.output], values[norm.output] = sums.add_and_norm(x, y, weight, norm.attrs["eps"], type)
        return node.output in values

    def _compute_jointly(
        self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays, joined: Results
    ) -> mx.array | None:
        """Return the result of a node that is computed with others; else None."""
        if node.op == "linear":
            return self._joins.product(node, values[node.inputs["x"]], self.operand(node, "bias", values), joined)
        if node.op == "rope":
            turn = partial(rope, positions=values[node.inputs["positions"]], evaluation=self.evaluation(node, step))
            return self._joins.turned(node, lambda x: turn(x, **node.attrs), joined)
        return None

    def _compute(self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays) -> mx.array:
        operands = {name: self.operand(node, name, values) for name in OPERATIONS[node.op].operands}
        if node.op not in HALF_OPS:
            operands = {name: in_float32(operand) for name, operand in operands.items()}
        if node.op in OPS:
            return OPS[node.op](**operands, **node.attrs)
        return STEP_OPS[node.op](**operands, evaluation=self._with_turn(node, values, step), **node.attrs)

    def _with_turn(self, node: Node, values: Mapping[Tensor, mx.array], step: StepArrays) -> Evaluation:
        """Return the evaluation of a node, with the angles of an attention that turns queries and keys itself."""
        evaluation, rope = self.evaluation(node, step), self._turning.of_attentions.get(node)
        if rope is None or not step.alike:
            return evaluation
        cos, sin = turns(values[rope.inputs["positions"]], self.evaluation(rope, step), int(rope.output.shape[-1]))
        return replace(evaluation, turn=Rotation(cos, sin, rope.attrs["neox"], len(rope.attrs["freqs"])))

    def _cache(self, node: Node) -> Any:
        return self._shared.states[node.state] if node.state else None

    def operand(self, node: Node, name: str, values: Mapping[Tensor, mx.array]) -> Any:
        """Return an operand of a node; None if it is absent."""
        tensor = node.inputs.get(name)
        if isinstance(tensor, Weight):
            return self._weight(node, name, tensor)
        return None if tensor is None else values[tensor]

    def evaluation(self, node: Node, step: StepArrays) -> Evaluation:
        """Return the evaluation of a node that depends on its step or state."""
        return Evaluation(node, self._cache(node), step, self._shared.type)

    def _weight(self, node: Node, name: str, weight: Weight) -> Any:
        weights = self._shared.weights
        return weights.matrix(weight) if (node.op, name) in MATRICES else weights.array(weight)

    def close(self) -> None:
        """Release the compiled functions."""
        self._fused.clear()


def _takes_all_rows(node: Node, step: StepArrays) -> bool:
    """Return True for the output rows of a step of one token of each sequence, if they are all rows."""
    is_of_outputs = node.op == "get_rows" and node.inputs["ids"].name == "output_ids"
    return is_of_outputs and len(step.batch.output_ids) == len(step.batch.tokens)
