"""Rules for expert routing: selection of experts per token, their weights, and the sum of their results."""

from __future__ import annotations

from pumice.plugin import Limits, Node, Tensor
from pumice_vulkan.lower.halves import SUM
from pumice_vulkan.lower.rule import Lowering, Rule, local_size

GATES = ("softmax", "sigmoid", "softmax_of_chosen", "sqrt_softplus")  # in the order of GATE in route.comp
MOST_EXPERTS = 1024  # two floats each in shared memory


def _claims(node: Node, limits: Limits) -> bool:
    return int(node.inputs["logits"].shape[-1]) <= MOST_EXPERTS and node.attrs["gate"] in GATES


def route(lowering: Lowering, chosen: Node | None, weighed: Node | None) -> None:
    """Dispatch the kernel for ``expert_ids``, for ``expert_weights``, or for both on the same logits."""
    one = chosen or weighed
    assert one is not None
    logits = one.inputs["logits"]
    ids = chosen.output if chosen else one.inputs["ids"]
    bias = chosen.inputs.get("bias") if chosen else None
    choice, weighing = chosen.attrs if chosen else {}, weighed.attrs if weighed else {}
    n_expert = int(logits.shape[-1])
    reads = {"logits": lowering.place(logits), "bias": lowering.place(logits if bias is None else bias)}
    writes = {"weights": lowering.place(weighed.output if weighed else ids)}
    (writes if chosen else reads)["ids"] = lowering.place(ids)
    lowering.dispatch(
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
        grid=lowering.grid(lowering.rows(logits)),
    )


def _divide(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    lowering.dispatch(
        f"divide.{node.op}",
        count=x,
        reads={"x": lowering.place(x)},
        writes={"y": lowering.place(node.output)},
        push={"width": lowering.width(x), "size": node.attrs["size"]},
        grid=lowering.grid(-(-lowering.rows(x) * lowering.width(x) // 64)),
    )


def expert_sum(lowering: Lowering, node: Node, result: Tensor, residual: Tensor | None = None) -> None:
    """Compute the weighted sum of experts' results, optionally plus a residual."""
    y, weights = node.operands()
    lowering.remembered[SUM] = node, result, residual, len(lowering.dispatches)
    n_used, width = int(weights.shape[-1]), int(y.shape[-1])
    lowering.dispatch(
        "expert_sum",
        count=y,
        reads={
            "x": lowering.place(y),
            "weights": lowering.place(weights),
            "residual": lowering.place(weights if residual is None else residual),
        },
        writes={"y": lowering.place(result)},
        push={"n_used": n_used, "width": width},
        constants=[residual is not None],
        grid=lowering.grid(-(-lowering.rows(y) * width // 64)),
    )


RULES = {
    "expert_ids": Rule(lambda lowering, node: route(lowering, node, None), _claims),
    "expert_weights": Rule(lambda lowering, node: route(lowering, None, node), _claims),
    "quotient": Rule(_divide),
    "remainder": Rule(_divide),
    "expert_sum": Rule(lambda lowering, node: expert_sum(lowering, node, node.output)),
}
