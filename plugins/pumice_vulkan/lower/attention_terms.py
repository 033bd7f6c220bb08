"""What attention asks for, as its kernels are told: which positions a token sees, how wide a head's result is."""

from __future__ import annotations

import numpy as np

from pumice.plugin import Node
from pumice_vulkan.step import reads_memory

CAUSAL, CHUNK, BOTH_SIDES, MEMORY = range(4)  # as in shaders/attention_mask.glsl


def is_plain(node: Node) -> bool:
    """Whether it is causal attention over a cache, with scores from queries and keys alone."""
    more = node.attrs["slopes"] or node.attrs["log_sum"] or {"bias", "mask"} & set(node.inputs)
    return node.state is not None and mask_of(node) == CAUSAL and not more


def v_dim_of(node: Node) -> int:
    """Values of a head's result, less the logarithm of its sum."""
    return int(node.output.shape[2]) - int(node.attrs["log_sum"])


def mask_of(node: Node) -> int:
    if reads_memory(node):
        return MEMORY
    return CHUNK if node.attrs["chunk"] else CAUSAL if node.attrs["causal"] else BOTH_SIDES


def window_of(node: Node) -> int:
    """Positions that a token attends to, 0: any number."""
    return int(node.attrs["window"] or node.attrs["chunk"])


def float_bits(value: float) -> int:
    """A float32 as a specialization constant."""
    return int(np.float32(value).view(np.uint32))
