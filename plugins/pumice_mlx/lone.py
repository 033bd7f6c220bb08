"""Steps of one token of one sequence: compiled stages, and attention between them.

On a GPU MLX's attention is a single kernel only without an array as its mask, over exactly the keys that a token sees.
Their number grows with each token, while the shapes of a compiled graph are fixed. So the nodes between two attentions
are compiled, and attention is not: it reads keys and values in place if the blocks of the sequence follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from pumice.plugin import Tensor, Weight
from pumice.plugin.unstable import Node, Segment
from pumice_mlx.attention import attend_alone, can_attend_alone, stored
from pumice_mlx.compiled import Arrays, Compiled
from pumice_mlx.step import Evaluation, StepArrays
from pumice_mlx.weights import in_float32

Values = dict[Tensor, mx.array]


class Computes(Protocol):
    """The parts of a program that stages call."""

    def compute(self, nodes: Sequence[Node], values: Values, step: StepArrays) -> None: ...

    def operand(self, node: Node, name: str, values: Mapping[Tensor, mx.array]) -> Any: ...

    def evaluation(self, node: Node, step: StepArrays) -> Evaluation: ...


@dataclass(frozen=True)
class Stage:
    """The nodes up to an attention.

    Attributes:
        attention: the attention, whose keys and values the stage stores; None after the last one.
        inputs, outputs: tensors of earlier stages, and those for later ones.
    """

    nodes: list[Node]
    attention: Node | None
    inputs: list[Tensor]
    outputs: list[Tensor]


def stages_of(segment: Segment) -> list[Stage]:
    """Return the stages of a segment; empty if it has no attention, or one that needs more than the visible keys."""
    attentions = [node for node in segment.nodes if node.op == "attention"]
    if not attentions or not all(can_attend_alone(node) for node in attentions):
        return []
    groups: list[list[Node]] = [[]]
    for node in segment.nodes:
        groups[-1].append(node)
        if node.op == "attention":
            groups.append([])
    stages: list[Stage] = []
    used = set(segment.outputs)
    for nodes in reversed(groups):
        stages.append(_stage(nodes, used))
        used.update(stages[-1].inputs)
    return stages[::-1]


def _stage(nodes: list[Node], used: set[Tensor]) -> Stage:
    """Return the stage of some nodes; ``used``: tensors that later stages read."""
    made: set[Tensor] = set()
    inputs: dict[Tensor, None] = {}
    for node in nodes:
        operands = [tensor for tensor in node.inputs.values() if not isinstance(tensor, Weight)]
        inputs.update(dict.fromkeys(tensor for tensor in operands if tensor not in made))
        made.add(node.output)
    attention = nodes[-1] if nodes and nodes[-1].op == "attention" else None
    nodes = nodes[:-1] if attention else nodes
    return Stage(nodes, attention, list(inputs), [node.output for node in nodes if node.output in used])


class LoneSteps:
    """The stages of a program.

    Attributes:
        compiled: the compiled function of each stage.
    """

    def __init__(self, program: Computes, segment: Segment, stages: Sequence[Stage], states: Mapping[Any, Any]) -> None:
        self._program = program
        self._segment = segment
        self._stages = stages
        self.compiled = [self._compiled(stage, states) for stage in stages]

    def _compiled(self, stage: Stage, states: Mapping[Any, Any]) -> Compiled:
        nodes = [*stage.nodes, stage.attention] if stage.attention else stage.nodes

        def compute(inputs: Arrays, step: StepArrays) -> Arrays:
            values = dict(zip(stage.inputs, inputs, strict=True))
            self._program.compute(stage.nodes, values, step)
            outputs = [
                in_float32(values[tensor]) if tensor in self._segment.outputs else values[tensor]
                for tensor in stage.outputs
            ]
            if stage.attention:
                q, k, v = (self._program.operand(stage.attention, name, values) for name in "qkv")
                outputs.append(stored(q, k, v, self._program.evaluation(stage.attention, step)))
            return outputs

        return Compiled(compute, [states[state] for state in dict.fromkeys(node.state for node in nodes if node.state)])

    def __call__(self, inputs: Mapping[str, mx.array], step: StepArrays) -> dict[str, mx.array]:
        """Return the outputs of a step. Raises NotAlike if it asks for arrays that the first one did not ask for."""
        values: Values = {tensor: inputs[tensor.name] for tensor in self._segment.inputs}
        for stage, compiled in zip(self._stages, self.compiled, strict=True):
            outputs = compiled([values[tensor] for tensor in stage.inputs], step)
            values.update(zip(stage.outputs, outputs, strict=False))
            if node := stage.attention:
                sinks = self._program.operand(node, "sinks", values)
                values[node.output] = attend_alone(outputs[-1], sinks, self._program.evaluation(node, step))
        return {tensor.name: values[tensor] for tensor in self._segment.outputs}


def is_lone(step: StepArrays) -> bool:
    """Return True for one token of one sequence."""
    return len(step.batch.tokens) == 1 == len(step.batch.slots)
