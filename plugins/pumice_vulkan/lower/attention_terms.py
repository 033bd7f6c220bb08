"""Parameters of attention for its kernels: the mask, and the width of a head's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pumice.plugin.unstable import Node
from pumice_vulkan.kv_cache import is_quantized
from pumice_vulkan.step import reads_memory

CAUSAL, CHUNK, BOTH_SIDES, MEMORY, WHOLE_CHUNK = range(5)  # as in shaders/attention_mask.glsl


def is_plain(node: Node) -> bool:
    """Return True for causal attention over a cache with scores from queries and keys only."""
    return node.state is not None and mask_of(node) == CAUSAL and not has_more(node)


def has_more(node: Node) -> bool:
    """Return True for attention whose scores or results are not from queries, keys and values only."""
    return bool(node.attrs["slopes"] or node.attrs["log_sum"] or {"bias", "mask"} & set(node.inputs))


def v_dim_of(node: Node) -> int:
    """Return the values of a head's result, without the logarithm of its sum."""
    return int(node.output.shape[2]) - int(node.attrs["log_sum"])


def mask_of(node: Node) -> int:
    if reads_memory(node):
        return MEMORY
    if node.attrs["chunk"]:
        return CHUNK if node.attrs["causal"] else WHOLE_CHUNK
    return CAUSAL if node.attrs["causal"] else BOTH_SIDES


def window_of(node: Node) -> int:
    """Return the window in positions; 0: unlimited."""
    return int(node.attrs["window"] or node.attrs["chunk"])


def with_rotations(node: Node, rotations: Sequence[Node]) -> Node:
    """Return an attention or a store that computes the Hadamard products of its operands and of its result itself."""
    sources = {part.output: part.inputs["x"] for part in rotations}
    rotated = {name for name, tensor in node.inputs.items() if tensor in sources}
    (output,) = [part.output for part in rotations if part.inputs["x"] is node.output] or [node.output]
    return replace(
        node,
        inputs={name: sources.get(tensor, tensor) for name, tensor in node.inputs.items()},
        output=output,
        attrs={**node.attrs, "rotates": (bool(rotated & {"q", "k"}), "v" in rotated or output is not node.output)},
    )


def rotation_constants(node: Node, kv_type: str) -> tuple[bool, ...]:
    """Return the specialization constants of shaders/hadamard.glsl, which kernels for quantized caches have."""
    rotates: tuple[bool, bool] = node.attrs.get("rotates", (False, False))
    return rotates if is_quantized(kv_type) else ()


def float_bits(value: float) -> int:
    """Return a float32 as a specialization constant."""
    return int(np.float32(value).view(np.uint32))
