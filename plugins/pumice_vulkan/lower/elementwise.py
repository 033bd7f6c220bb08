"""Rules for operations element by element."""

from __future__ import annotations

import numpy as np

from pumice.plugin import ELEMENTWISE, Limits, Node, Tensor, broadcast_walk
from pumice_vulkan.fuse import MOST_OPERANDS, MOST_STEPS, outer_operands
from pumice_vulkan.lower.rule import Lowering, Rule

LOCAL = 256
OPERATIONS = list(ELEMENTWISE)  # their numbers in elementwise.comp


def _unary(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    p, q = (*(float(value) for value in node.attrs.values()), 0.0, 0.0)[:2]
    at.dispatch(
        f"unary.{node.op}",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": at.place(node.output)},
        push={"width": at.width(x), "p": p, "q": q},
        grid=at.grid(-(-at.rows(x) * at.width(x) // LOCAL)),
    )


def _binary(at: Lowering, node: Node) -> None:
    x, y = node.operands()
    walk = broadcast_walk(x, y)
    assert walk is not None
    n_values = at.rows(x) * at.width(x)
    at.dispatch(
        f"binary.{node.op}",
        count=x,
        reads={"x": at.place(x), "y": at.place(y)},
        writes={"z": at.place(node.output)},
        push={"row_width": at.width(x), **walk._asdict()},
        grid=at.grid(-(-n_values // LOCAL)),
    )


def elementwise(at: Lowering, nodes: list[Node]) -> bool:
    """One dispatch for operations that lead to the last; reshapes between them change no value's place."""
    result = nodes[-1].output
    operands = outer_operands(nodes)
    walks = [broadcast_walk(Tensor("", shape), tensor) for tensor, shape in operands]
    steps = [node for node in nodes if node.op != "reshape"]
    number = {node.output: MOST_OPERANDS + index for index, node in enumerate(steps)}
    number |= {node.output: number[node.inputs["x"]] for node in nodes if node.op == "reshape"}
    constants = [len(operands), len(steps), at.width(result)]
    for node in steps:
        shape = node.output.shape
        of = (number[each] if each in number else operands.index((each, shape)) for each in node.operands())
        a, *b = of
        attributes = np.array([*(float(value) for value in node.attrs.values()), 0.0, 0.0][:2], np.float32)
        constants += [OPERATIONS.index(node.op), a, *(b or [a]), *attributes.view(np.uint32).tolist()]
    constants += [0] * (3 + 5 * MOST_STEPS - len(constants))
    for walk in walks:
        assert walk is not None, "_broadcasts claims no others"
        constants += [walk.n_b, walk.width, walk.y_row, walk.y_a, walk.y_b, walk.y_value]
    constants += [1, 1, 0, 0, 0, 0] * (MOST_OPERANDS - len(walks))
    places = [at.place(tensor) for tensor, _ in operands]
    at.dispatch(
        "elementwise",
        count=result,
        reads={"x": [*places, *places[:1] * (MOST_OPERANDS - len(places))]},
        writes={"y": at.place(result)},
        constants=constants,
        grid=at.grid(-(-at.rows(result) * at.width(result) // LOCAL)),
        label=f"elementwise {' '.join(node.op for node in steps)}",
    )
    return True


def _broadcasts(node: Node, limits: Limits) -> bool:
    return broadcast_walk(*node.operands()) is not None


def _reshape(at: Lowering, node: Node) -> None:
    """The plan gives a reshape the place of what it reshapes."""
    at.reshaped(node.output, node.inputs["x"])


RULES = {
    **{name: Rule(_unary) for name, each in ELEMENTWISE.items() if len(each.operands) == 1},
    **{name: Rule(_binary, _broadcasts) for name, each in ELEMENTWISE.items() if len(each.operands) == 2},
    "reshape": Rule(_reshape),
}
