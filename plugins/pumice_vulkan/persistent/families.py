"""Models for which shaders/persistent.comp is compiled ahead, with their shapes as constants of its text."""

from __future__ import annotations

from pumice_vulkan.persistent.division import Shape

FAMILIES = {
    "llama_1b_q4_0": Shape(
        threads=512,
        lanes=32,
        groups=128,
        ahead=8,
        layers=16,
        width=2048,
        heads=32,
        kv_heads=8,
        dim=64,
        ffn=8192,
        vocabulary=128256,
        has_minimum=False,
        mixed=False,
        output_six=True,
        two_buffers=False,
        positions=2,
        early=True,
        block_size=32,
    ),
}
"""Shapes by the name of their variant; ``tools/straight_line.py`` writes their products."""
