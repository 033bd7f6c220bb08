"""Models for which shaders/persistent.comp is compiled ahead, by their types."""

from __future__ import annotations

from functools import partial
from typing import Any

from pumice_vulkan.persistent.division import Shape

MORE_BITS = (("v", "q6_k"), ("down", "q6_k"))  # some layers of files named _M
FEW_BITS = tuple((matrix, type) for matrix in ("v", "o", "down") for type in ("q4_k", "q5_k"))  # of Q3_K_M and Q3_K_L

# Alike in all families.
_shape = partial(Shape, output="q6_k", block_size=32, deep_positions=2)
_of_gpus = partial(_shape, threads=512, lanes=32, groups=128, heads=32, deep=512)
_any = partial(
    _of_gpus,
    layers=32,
    width=4096,
    kv_heads=8,
    dim=128,
    ffn=14336,
    vocabulary=128256,
    positions=1,
    share=2,
)
_of_tests = partial(
    _shape,
    threads=512,
    lanes=8,
    groups=1,
    layers=2,
    width=256,
    ffn=1024,
    heads=4,
    kv_heads=2,
    dim=64,
    vocabulary=300,
    type="q4_k",
    others=MORE_BITS,
    positions=2,
    share=2,
    deep=8,
)

_experts = partial(_any, width=2048, ffn=6144, experts=128, used=8, head_norms=True)

TYPES: dict[str, dict[str, Any]] = {
    "q3_k_m": {"type": "q3_k", "others": FEW_BITS},
    "q4_0": {"type": "q4_0"},
    "q4_k_m": {"type": "q4_k", "others": MORE_BITS},
    "q5_k_m": {"type": "q5_k", "others": MORE_BITS},
    "q6_k": {"type": "q6_k"},
    "q8_0": {"type": "q8_0", "output": "q8_0"},
}
"""Types of matrices by the names of files."""

FAMILIES = {
    **{f"any_{name}": _any(**types) for name, types in TYPES.items()},
    **{f"experts_{name}": _experts(**types) for name, types in TYPES.items()},
    "any_tiny": _of_tests(),
    "any_tiny_types": _of_tests(
        type="q4_0",
        others=(("v", "q4_k"), ("v", "q5_k"), ("o", "q3_k"), ("down", "q4_k"), ("down", "q8_0")),
    ),
    "tiny_experts": _of_tests(ffn=512, experts=8, used=2, head_norms=True, others=(*MORE_BITS, ("down", "q8_0"))),
}
"""Shapes by the name of their variant; sizes are examples. Tests compute tiny ones."""
