"""The work of an operation, by which submits are kept short where a system ends long ones."""

from __future__ import annotations

import math

from pumice.plugin.unstable import Node, Sizes
from pumice_vulkan.fuse import GROUP

PRODUCTS = ("linear", "batched_linear", "mul_mat_id")


def multiplications(node: Node, sizes: Sizes, n_ctx: int) -> int:
    """Return the most multiplications of a product, an attention or a group of nodes; 0 for another node.

    Args:
        node: a node of a segment.
        sizes: sizes of a step by name.
        n_ctx: the most positions of a sequence.
    """
    if node.op == GROUP:
        return sum(multiplications(part, sizes, n_ctx) for part in node.attrs["group"].nodes)
    n_results = math.prod(sizes[size] if isinstance(size, str) else size for size in node.output.shape)
    if node.op in PRODUCTS:
        return n_results * int(node.weight("weight").shape[-1])
    return 2 * n_results * n_ctx if node.op == "attention" else 0
