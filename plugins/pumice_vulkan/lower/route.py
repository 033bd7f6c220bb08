"""Rules for routing: which experts a token is sent to, what they count, and the sum of their results."""

from __future__ import annotations

from pumice.plugin import Limits, Node, Tensor
from pumice_vulkan.lower.rule import Lowering, Rule, local_size

GATES = ("softmax", "sigmoid", "softmax_of_chosen", "sqrt_softplus")  # as GATE of route.comp counts them
MOST_EXPERTS = 1024  # in shared memory: two floats each


def _claims(node: Node, limits: Limits) -> bool:
    return int(node.inputs["logits"].shape[-1]) <= MOST_EXPERTS and node.attrs["gate"] in GATES


def route(at: Lowering, chosen: Node | None, weighed: Node | None) -> None:
    """The kernel for ``expert_ids``, for ``expert_weights``, or for both of them on the same logits."""
    one = chosen or weighed
    assert one is not None
    logits = one.inputs["logits"]
    ids = chosen.output if chosen else one.inputs["ids"]
    bias = chosen.inputs.get("bias") if chosen else None
    choice, weighing = chosen.attrs if chosen else {}, weighed.attrs if weighed else {}
    n_expert = int(logits.shape[-1])
    reads = {"logits": at.place(logits), "bias": at.place(logits if bias is None else bias)}
    writes = {"weights": at.place(weighed.output if weighed else ids)}
    (writes if chosen else reads)["ids"] = at.place(ids)
    at.dispatch(
        "route",
        count=logits,
        reads=reads,
        writes=writes,
        push={"scale": float(weighing.get("scale", 1.0))},
        constants=[
            local_size(n_expert),
            n_expert,
            int(ids.shape[-1]),
            GATES.index(one.attrs["gate"]),
            chosen is not None,
            bias is not None,
            choice.get("n_group", 1),
            choice.get("n_group_used", 1),
            weighed is not None,
            weighing.get("normalize", False),
        ],
        grid=at.grid(at.rows(logits)),
    )


def _divide(at: Lowering, node: Node) -> None:
    (x,) = node.operands()
    at.dispatch(
        f"divide.{node.op}",
        count=x,
        reads={"x": at.place(x)},
        writes={"y": at.place(node.output)},
        push={"width": at.width(x), "size": node.attrs["size"]},
        grid=at.grid(-(-at.rows(x) * at.width(x) // 64)),
    )


def expert_sum(at: Lowering, node: Node, result: Tensor, residual: Tensor | None = None) -> None:
    """The weighed sum of experts' results, perhaps added to something."""
    y, weights = node.operands()
    n_used, width = int(weights.shape[-1]), int(y.shape[-1])
    at.dispatch(
        "expert_sum",
        count=y,
        reads={
            "x": at.place(y),
            "weights": at.place(weights),
            "residual": at.place(weights if residual is None else residual),
        },
        writes={"y": at.place(result)},
        push={"n_used": n_used, "width": width},
        constants=[residual is not None],
        grid=at.grid(-(-at.rows(y) * width // 64)),
    )


RULES = {
    "expert_ids": Rule(lambda at, node: route(at, node, None), _claims),
    "expert_weights": Rule(lambda at, node: route(at, None, node), _claims),
    "quotient": Rule(_divide),
    "remainder": Rule(_divide),
    "expert_sum": Rule(lambda at, node: expert_sum(at, node, node.output)),
}
