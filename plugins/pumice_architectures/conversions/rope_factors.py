"""RoPE frequency factors, stored as tensors in GGUF: frequencies are divided by them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import HFConfig, LazyTensor

UNTURNED = 1e30  # divisor for values that are not rotated
FACTOR = 8.0  # default factor of long wavelengths


def llama3_factors(rope: dict[str, Any], dim: int, default_factor: float = FACTOR) -> Iterator[tuple[str, LazyTensor]]:
    """Yield ``rope_freqs.weight``, the divisors of frequencies: 1 for short wavelengths, ``factor`` for long ones.

    Between the two the inverse is interpolated linearly (Llama 3.1's reference code, ``apply_scaling``).
    """
    if str(rope.get("rope_type", "")).lower() != "llama3":
        return
    factor, low, high = (
        rope.get("factor", default_factor),
        rope.get("low_freq_factor", 1.0),
        rope.get("high_freq_factor", 4.0),
    )
    trained = rope.get("original_max_position_embeddings", 8192)
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    waves = 2 * math.pi * np.float32(rope.get("rope_theta", 10000.0)) ** exponents
    smooth = (trained / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(waves < trained / high, 1.0, np.where(waves > trained / low, factor, between))
    yield "rope_freqs.weight", LazyTensor.of(factors)


def proportional(config: HFConfig, dim: int) -> Iterator[tuple[str, LazyTensor]]:
    """Yield ``rope_freqs.weight`` for heads of ``dim`` values of which the RoPE of a configuration rotates a part."""
    part = float(config.whole_rope.get("partial_rotary_factor", 1.0))
    if part != 1 and config.whole_rope.get("rope_type") != "proportional":
        raise config.unsupported(config.rope_key, "'rope_type' 'proportional'")
    yield from proportional_factors(dim, part)


def proportional_factors(dim: int, part: float) -> Iterator[tuple[str, LazyTensor]]:
    """Yield ``rope_freqs.weight`` for heads of ``dim`` values of which the first ``part`` are rotated."""
    half = dim // 2
    yield "rope_freqs.weight", LazyTensor.of(np.where(np.arange(half) < int(half * part), 1.0, UNTURNED))


def long_factors(rope: dict[str, Any]) -> Iterator[tuple[str, LazyTensor]]:
    """Yield ``rope_factors_long.weight`` and ``rope_factors_short.weight`` if the configuration has them."""
    for length in ("long", "short"):
        factors = rope.get(f"{length}_factor")
        if isinstance(factors, list) and factors:
            yield f"rope_factors_{length}.weight", LazyTensor.of(factors)
