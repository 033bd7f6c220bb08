"""Rules for element-wise operations."""

from __future__ import annotations

import numpy as np

from pumice.plugin import Tensor
from pumice.plugin.unstable import ELEMENTWISE, Limits, Node, broadcast_walk
from pumice_vulkan.fuse import MOST_OPERANDS, MOST_STEPS, outer_operands
from pumice_vulkan.lower.rule import Lowering, Rule

LOCAL = 256
OPERATIONS = list(ELEMENTWISE)  # indices are the numbers in elementwise.comp


def _unary(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    p, q = (*(float(value) for value in node.attrs.values()), 0.0, 0.0)[:2]
    lowering.dispatch(
        f"unary.{node.op}",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": lowering.place(node.output)},
        push={"width": lowering.width(x), "p": p, "q": q},
        grid=lowering.grid(-(-lowering.rows(x) * lowering.width(x) // LOCAL)),
    )


def _binary(lowering: Lowering, node: Node) -> None:
    x, y = node.operands()
    walk = broadcast_walk(x, y)
    assert walk is not None
    n_values = lowering.rows(x) * lowering.width(x)
    lowering.dispatch(
        f"binary.{node.op}",
        count=x,
        reads={"x": lowering.place(x), "y": lowering.place(y)},
        writes={"z": lowering.place(node.output)},
        push={"row_width": lowering.width(x), **walk._asdict()},
        grid=lowering.grid(-(-n_values // LOCAL)),
    )


def elementwise(lowering: Lowering, nodes: list[Node]) -> bool:
    """Dispatch a chain of operations up to the last; reshapes between them do not move values."""
    result = nodes[-1].output
    operands = outer_operands(nodes)
    walks = [broadcast_walk(Tensor("", shape), tensor) for tensor, shape in operands]
    steps = [node for node in nodes if node.op != "reshape"]
    number = {node.output: MOST_OPERANDS + index for index, node in enumerate(steps)}
    number |= {node.output: number[node.inputs["x"]] for node in nodes if node.op == "reshape"}
    constants = [len(operands), len(steps), lowering.width(result)]
    for node in steps:
        shape = node.output.shape
        of = (number[operand] if operand in number else operands.index((operand, shape)) for operand in node.operands())
        a, *b = of
        attributes = np.array([*(float(value) for value in node.attrs.values()), 0.0, 0.0][:2], np.float32)
        constants += [OPERATIONS.index(node.op), a, *(b or [a]), *attributes.view(np.uint32).tolist()]
    constants += [0] * (3 + 5 * MOST_STEPS - len(constants))
    for walk in walks:
        assert walk is not None, "_broadcasts rejects other shapes"
        constants += [walk.n_b, walk.width, walk.y_row, walk.y_a, walk.y_b, walk.y_value]
    constants += [1, 1, 0, 0, 0, 0] * (MOST_OPERANDS - len(walks))
    places = [lowering.place(tensor) for tensor, _ in operands]
    lowering.dispatch(
        "elementwise",
        count=result,
        reads={"x": [*places, *places[:1] * (MOST_OPERANDS - len(places))]},
        writes={"y": lowering.place(result)},
        constants=constants,
        grid=lowering.grid(-(-lowering.rows(result) * lowering.width(result) // LOCAL)),
        label=f"elementwise {' '.join(node.op for node in steps)}",
    )
    return True


def _broadcasts(node: Node, limits: Limits) -> bool:
    return broadcast_walk(*node.operands()) is not None


def _reshape(lowering: Lowering, node: Node) -> None:
    """A reshape needs no kernel: the memory plan places it where its operand is."""
    lowering.reshaped(node.output, node.inputs["x"])


RULES = {
    **{name: Rule(_unary) for name, operation in ELEMENTWISE.items() if len(operation.operands) == 1},
    **{name: Rule(_binary, _broadcasts) for name, operation in ELEMENTWISE.items() if len(operation.operands) == 2},
    "reshape": Rule(_reshape),
}
