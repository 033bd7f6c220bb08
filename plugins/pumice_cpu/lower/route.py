"""Rules for expert routing: selection of experts per token, their weights, and the sum of their results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pumice.plugin.unstable import GATES, Node, row_size
from pumice_cpu.lower.rows import top_k
from pumice_cpu.lower.rule import Lowering, Rule
from pumice_cpu.runtime import float_bits


def _expert_ids(lowering: Lowering, node: Node) -> None:
    logits, bias = node.inputs["logits"], node.inputs.get("bias")
    n_expert, n_used, n_group = int(logits.shape[-1]), int(node.output.shape[-1]), node.attrs["n_group"]
    if bias is None and n_group == 1:  # gates are monotonic
        top_k(lowering, logits, node.output, n_used)
        return
    lowering.add(
        f"route.choose:{node.attrs['gate']}",
        logits,
        logits=logits,
        bias=np.zeros(n_expert, np.float32) if bias is None else bias,
        ids=node.output,
        scratch=lowering.scratch_memory("preferences", 8 * n_expert * lowering.pool.n_threads),
        n_expert=n_expert,
        n_used=n_used,
        n_group=n_group,
        n_group_used=node.attrs["n_group_used"],
    )


def _divide(lowering: Lowering, node: Node) -> None:
    (x,) = node.operands()
    lowering.add(f"route.divide:{node.op}", x, x=x, y=node.output, width=row_size(x.shape), size=node.attrs["size"])


def _expert_weights(lowering: Lowering, node: Node) -> None:
    logits, ids = node.operands()
    sizes = {"n_expert": int(logits.shape[-1]), "n_used": int(ids.shape[-1])}
    scaling = {"normalize": int(node.attrs["normalize"]), "scale": float_bits(node.attrs["scale"])}
    kernel = f"route.weigh:{node.attrs['gate']}"
    lowering.add(kernel, logits, logits=logits, ids=ids, y=node.output, **sizes, **scaling)


def _expert_sum(lowering: Lowering, node: Node) -> None:
    y, weights = node.operands()
    sizes = {"n_used": int(weights.shape[-1]), "width": int(y.shape[-1])}
    lowering.add("route.add_up", y, x=y, weights=weights, y=node.output, **sizes)


def kernels() -> Iterator[str]:
    yield from (f"route.{kind}:{gate}" for kind in ("choose", "weigh") for gate in GATES)
    yield from (f"route.divide:{result}" for result in ("quotient", "remainder"))


RULES = {
    "expert_ids": Rule(_expert_ids),
    "quotient": Rule(_divide),
    "remainder": Rule(_divide),
    "expert_weights": Rule(_expert_weights),
    "expert_sum": Rule(_expert_sum),
}
