"""Models for which shaders/persistent.comp is compiled ahead, with their shapes as constants of its text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pumice_vulkan.persistent.division import Shape

MORE_BITS = (("v", "q6_k"), ("down", "q6_k"))  # some layers of files named _M
FEW_BITS = tuple((matrix, type) for matrix in ("v", "o", "down") for type in ("q4_k", "q5_k"))  # of Q3_K_M and Q3_K_L

TYPES: dict[str, dict[str, Any]] = {
    "q3_k": {"type": "q3_k"},
    "q3_k_m": {"type": "q3_k", "others": FEW_BITS},
    "q4_0": {"type": "q4_0"},
    "q4_k_m": {"type": "q4_k", "others": MORE_BITS},
    "q5_k_m": {"type": "q5_k", "others": MORE_BITS},
    "q6_k": {"type": "q6_k"},
    "q8_0": {"type": "q8_0", "output": "q8_0"},
}
"""Fields of shapes by the name of a quantization."""

# Alike in all families.
_shape = partial(Shape, threads=512, output="q6_k", early=True, block_size=32, deep_positions=2)
_of_gpus = partial(_shape, lanes=32, groups=128, heads=32, deep=512)
_llama_8b = partial(
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
    found_by="addresses",
)
_llama_3b = partial(_llama_8b, layers=28, heads=24, width=3072, ffn=8192, share=1)
_granite_8b = partial(_llama_8b, layers=40, ffn=12800, vocabulary=49155)
_gemma = partial(_llama_8b, heads=16, dim=256, gelu=True, post_norms=True, whole_output=True)
_gemma2_9b = partial(
    _gemma, layers=42, width=3584, ffn=14336, vocabulary=256000, soft_cap=50.0, logit_cap=30.0, window=4096
)
_gemma3_12b = partial(_gemma, layers=48, width=3840, ffn=15360, vocabulary=262208, head_norms=True, window=1024)
_qwen3_8b = partial(_llama_8b, layers=36, ffn=12288, vocabulary=151936, head_norms=True)
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
    type="q4_k",
    others=MORE_BITS,
    positions=2,
    share=2,
    deep=8,
    found_by="addresses",
)


def _of_types(model: str, shape: Callable[..., Shape], *names: str) -> dict[str, Shape]:
    """Return the shapes of a model in some quantizations by the names of their families."""
    return {f"{model}_{name}": shape(**TYPES[name]) for name in names}


FAMILIES = {
    "llama_1b_q4_0": _of_gpus(
        ahead=8,
        layers=16,
        width=2048,
        kv_heads=8,
        dim=64,
        ffn=8192,
        vocabulary=128256,
        type="q4_0",
        positions=2,
        share=1,
    ),
    **_of_types("llama_3b", _llama_3b, "q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "q3_k_m"),
    **_of_types("llama_8b", _llama_8b, "q4_k_m", "q5_k_m", "q6_k", "q8_0", "q3_k", "q3_k_m"),
    **_of_types("qwen3_8b", _qwen3_8b, "q4_k_m", "q5_k_m", "q6_k", "q8_0"),
    **_of_types("granite_8b", _granite_8b, "q4_k_m", "q6_k", "q8_0"),
    **_of_types("gemma2_9b", _gemma2_9b, "q4_k_m", "q6_k", "q8_0"),
    **_of_types("gemma3_12b", _gemma3_12b, "q4_0", "q4_k_m", "q6_k", "q8_0"),
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
        found_by="addresses",
        experts=128,
        used=8,
        head_norms=True,
    ),
    "tiny_experts": _of_tests(ahead=8, ffn=512, experts=8, used=2, head_norms=True),
    "tiny_gemma2": _of_tests(
        ahead=4,
        width=768,
        ffn=512,
        gelu=True,
        post_norms=True,
        soft_cap=5.0,
        logit_cap=4.0,
        window=10,
        whole_output=True,
    ),
    "tiny_gemma3": _of_tests(ahead=4, ffn=512, gelu=True, post_norms=True, head_norms=True, window=6),
    "tiny_narrow": _of_tests(ahead=4, width=224, heads=6, ffn=1024, type="q8_0", output="q8_0", others=(), share=1),
    "tiny_q4_k_m": _of_tests(ahead=4, ffn=1024),
    "tiny_qwen3": _of_tests(ahead=4, ffn=2048, head_norms=True),
    "tiny_types": _of_tests(
        ahead=4,
        ffn=1024,
        type="q5_k",
        others=(("v", "q4_k"), ("o", "q3_k"), ("down", "q4_k"), ("down", "q8_0")),
    ),
}
"""Shapes by the name of their variant; ``tools/straight_line.py`` writes their products. Tests compute tiny ones."""

OPEN_FAMILIES = {
    "any_q4_k_m": _llama_8b(**TYPES["q4_k_m"], open=True, whole_output=True),
    "any_tiny": _of_tests(ahead=4, ffn=1024, open=True, whole_output=True),
}
"""Shapes whose sizes are examples: those of any llama are specialization constants of their shaders."""
