"""Models for which shaders/persistent.comp is compiled ahead, by their types."""

from __future__ import annotations

from functools import partial

from pumice_vulkan.persistent.division import Shape

MORE_BITS = (("v", "q6_k"), ("down", "q6_k"))  # some layers of files named _M
FEW_BITS = tuple((matrix, type) for matrix in ("v", "o", "down") for type in ("q4_k", "q5_k"))  # of Q3_K_M and Q3_K_L

# Alike in all families.
_shape = partial(Shape, output="q6_k", early=True, block_size=32, deep_positions=2)
_of_gpus = partial(_shape, threads=512, lanes=32, groups=128, heads=32, deep=512)
_any = partial(
    _of_gpus,
    ahead=4,
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

FAMILIES = {
    "any_q3_k_m": _any(type="q3_k", others=FEW_BITS),
    "any_q4_0": _any(type="q4_0"),
    "any_q4_k_m": _any(type="q4_k", others=MORE_BITS),
    "any_q5_k_m": _any(type="q5_k", others=MORE_BITS),
    "any_q6_k": _any(type="q6_k"),
    "any_q8_0": _any(type="q8_0", output="q8_0"),
    "a3b_q4_k_m": _of_gpus(
        ahead=8,
        layers=48,
        width=2048,
        kv_heads=4,
        dim=128,
        ffn=6144,
        vocabulary=151936,
        type="q4_k",
        others=MORE_BITS,
        positions=1,
        share=2,
        experts=128,
        used=8,
        head_norms=True,
    ),
    "any_tiny": _of_tests(ahead=4, ffn=1024),
    "any_tiny_types": _of_tests(
        ahead=4,
        ffn=1024,
        type="q4_0",
        others=(("v", "q4_k"), ("v", "q5_k"), ("o", "q3_k"), ("down", "q4_k"), ("down", "q8_0")),
    ),
    "tiny_experts": _of_tests(ahead=8, ffn=512, experts=8, used=2, head_norms=True),
}
"""Shapes by the name of their variant; sizes of those without experts are examples. Tests compute tiny ones."""
