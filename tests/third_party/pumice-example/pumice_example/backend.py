"""A backend that multiplies matrices, and leaves the rest to the next backend in line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pumice.plugin import Tensor
from pumice.plugin.unstable import (
    Arena,
    Backend,
    DeviceInfo,
    Limits,
    MemoryPlan,
    Node,
    Program,
    Segment,
    Step,
    concrete,
)


@dataclass
class LinearOptions:
    """The section ``example`` of a configuration file."""

    max_rows: int = 0  # matrices with more rows are left to the next backend; 0: none is


class LinearBackend(Backend):
    Options = LinearOptions
    options: LinearOptions

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        return [DeviceInfo("example device", "cpu", memory_bytes=0)]

    def supports(self, node: Node, limits: Limits) -> bool:
        if node.op != "linear":
            return node.op == "example.swiglu"
        rows = int(node.inputs["weight"].shape[0])
        return self.options.max_rows == 0 or rows <= self.options.max_rows

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        return LinearProgram(segment, plan)


class LinearProgram(Program):
    def __init__(self, segment: Segment, plan: MemoryPlan) -> None:
        self.segment = segment
        self.plan = plan
        self.arena = Arena(plan.size, "example activations")
        self.weights: dict[Tensor, Any] = {weight: weight.dequantize() for weight in segment.weights}  # float32

    def run(self, step: Step) -> Mapping[str, Any]:
        values = {tensor: step.inputs[tensor.name] for tensor in self.segment.inputs}
        for node in self.segment.nodes:
            shape = concrete(node.output.shape, step.batch.sizes)
            y = self.arena.view(self.plan.offsets[node.output], shape, np.float32)
            self.compute(node, values, y)
            values[node.output] = y
        return {tensor.name: values[tensor] for tensor in self.segment.outputs}

    def compute(self, node: Node, values: Mapping[Tensor, Any], y: Any) -> None:
        if node.op == "example.swiglu":
            gate, up = (values[tensor] for tensor in node.operands())
            np.multiply(gate / (1 + np.exp(-gate)), up, out=y)
            return
        x, weight, bias = node.inputs["x"], node.inputs["weight"], node.inputs.get("bias")
        np.matmul(values[x], self.weights[weight].T, out=y)
        if bias is not None:
            y += self.weights[bias]

    @property
    def memory(self) -> dict[str, int]:
        weights = sum(array.nbytes for array in self.weights.values())
        return {"weights": weights, "kv_cache": 0, "activations": self.plan.size}
