"""Rules for expert routing: selection of experts per token, their weights, and the sum of their results."""

from __future__ import annotations

from collections.abc import Callable

from pumice.plugin import Tensor
from pumice.plugin.unstable import Limits, Node
from pumice_vulkan.lower.halves import SUM
from pumice_vulkan.lower.rule import Lowering, Rule, local_size
from pumice_vulkan.memory import BufferSlice

GATES = ("softmax", "sigmoid", "softmax_of_chosen", "sqrt_softplus")  # in the order of GATE in route.comp
MOST_EXPERTS = 1024  # two floats each in shared memory
ROUTED = "latest routing"  # key of its nodes and dispatch
MOST_GROUPED = 16  # maximum tokens whose routing and grouping are one workgroup
GROUPED_THREADS, GROUPED_PARTS = 256, 32  # invocations of that workgroup; maximum experts of a lane


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
    lowering.remembered[ROUTED] = chosen, weighed, len(lowering.dispatches)
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


def grouped_route(
    lowering: Lowering,
    ids: Tensor,
    width: int,
    tiles: BufferSlice,
    order: BufferSlice,
    before: Callable[[], object],
) -> bool:
    """Let the routing of a few tokens, if it is the latest dispatch, also sort pairs into tiles of ``width``.

    ``before`` appends what the product needs besides, which may run beside the router's product. Returns False if the
    kernel does not support the routing.
    """
    chosen, weighed, index = lowering.remembered.get(ROUTED, (None, None, -1))
    if chosen is None or weighed is None or chosen.output is not ids or index != len(lowering.dispatches) - 1:
        return False
    logits, lanes = chosen.inputs["logits"], lowering.device.subgroup_size
    n_expert, n_used = int(logits.shape[-1]), int(ids.shape[-1])
    plain = "bias" not in chosen.inputs and chosen.attrs.get("n_group", 1) == 1
    fits = n_used <= lanes and n_expert <= GROUPED_PARTS * lanes and "subgroup_shuffle" in lowering.device.features
    if not (plain and fits and lowering.rows(logits) <= MOST_GROUPED):
        return False
    del lowering.dispatches[index]
    before()
    lowering.dispatch(
        "route_group",
        count=logits,
        reads={"logits": lowering.place(logits)},
        writes={
            "ids": lowering.place(ids),
            "weights": lowering.place(weighed.output),
            "tiles": tiles,
            "order": order,
        },
        push={"scale": float(weighed.attrs.get("scale", 1.0))},
        constants=[
            *(GROUPED_THREADS, lanes, n_expert, n_used, GATES.index(chosen.attrs["gate"])),
            *(weighed.attrs.get("normalize", False), width, MOST_GROUPED, max(1, local_size(n_expert) // lanes)),
        ],
        grid=(1, 1, 1),
        full_subgroups=True,
    )
    return True


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
