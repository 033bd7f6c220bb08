"""Models for which shaders/persistent.comp is compiled ahead, with their shapes as constants of its text."""

from __future__ import annotations

from functools import partial

from pumice_vulkan.persistent.division import Shape

# Alike in all families.
_shape = partial(Shape, threads=512, output_six=True, early=True, block_size=32, deep_positions=2)
_of_gpus = partial(_shape, lanes=32, groups=128, heads=32, deep=512)
_of_tests = partial(
    _shape,
    lanes=8,
    groups=1,
    layers=2,
    width=256,
    heads=4,
    kv_heads=2,
    dim=64,
    vocabulary=300,
    has_minimum=True,
    mixed=True,
    positions=2,
    share=2,
    deep=8,
    found_by="offsets",
)

FAMILIES = {
    "llama_1b_q4_0": _of_gpus(
        ahead=8,
        layers=16,
        width=2048,
        kv_heads=8,
        dim=64,
        ffn=8192,
        vocabulary=128256,
        has_minimum=False,
        mixed=False,
        positions=2,
        share=1,
    ),
    "llama_8b_q4_k_m": _of_gpus(
        ahead=4,
        layers=32,
        width=4096,
        kv_heads=8,
        dim=128,
        ffn=14336,
        vocabulary=128256,
        has_minimum=True,
        mixed=True,
        positions=1,
        share=2,
        found_by="addresses",
    ),
    "qwen3_8b_q4_k_m": _of_gpus(
        ahead=4,
        layers=36,
        width=4096,
        kv_heads=8,
        dim=128,
        ffn=12288,
        vocabulary=151936,
        has_minimum=True,
        mixed=True,
        positions=1,
        share=2,
        found_by="addresses",
        head_norms=True,
    ),
    "a3b_q4_k_m": _of_gpus(
        ahead=8,
        layers=48,
        width=2048,
        kv_heads=4,
        dim=128,
        ffn=6144,
        vocabulary=151936,
        has_minimum=True,
        mixed=True,
        positions=1,
        share=2,
        found_by="addresses",
        experts=128,
        used=8,
        head_norms=True,
    ),
    "tiny_experts": _of_tests(ahead=8, ffn=512, experts=8, used=2, head_norms=True),
    "tiny_q4_k_m": _of_tests(ahead=4, ffn=1024),
    "tiny_qwen3": _of_tests(ahead=4, ffn=2048, head_norms=True),
}
"""Shapes by the name of their variant; ``tools/straight_line.py`` writes their products. Tests compute tiny ones."""
