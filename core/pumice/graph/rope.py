"""What rotary positions turn by and scale with, which every backend computes once a model."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def rope_frequencies(
    factors: NDArray[np.float32] | None,
    n_rot: int,
    freq_base: float,
    freq_scale: float,
    ext_factor: float,
    beta_fast: float,
    beta_slow: float,
    n_ctx_orig: int,
) -> NDArray[np.float64]:
    """Radians a position for each pair ``[n_rot / 2]``; parameters, formulas and sources at ``Ops.rope``."""
    pair = np.arange(n_rot // 2)
    unscaled = freq_base ** (-2.0 * pair / n_rot)
    if factors is not None:
        unscaled = unscaled / factors
    if not ext_factor:
        return unscaled * freq_scale

    def pair_turning(rotations: float) -> float:
        return n_rot * math.log(n_ctx_orig / (rotations * 2 * math.pi)) / (2 * math.log(freq_base))

    low = max(0, math.floor(pair_turning(beta_fast)))
    high = min(n_rot - 1, math.ceil(pair_turning(beta_slow)))
    keep = (1 - np.clip((pair - low) / max(0.001, high - low), 0, 1)) * ext_factor
    return unscaled * (freq_scale * (1 - keep) + keep)


def rope_magnitude(attn_factor: float, freq_scale: float, ext_factor: float) -> float:
    """What the turned pairs are multiplied by: with YaRN more, the more the context is stretched (see ``Ops.rope``)."""
    return attn_factor * (1 + 0.1 * math.log(1 / freq_scale)) if ext_factor else attn_factor
