"""Rotary positions from a GGUF file's metadata: plain, linear, YaRN, LongRoPE and llama 3's factors.

The keys are those of the GGUF specification, read like llama.cpp: a scaling factor of 0 means none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GraphBuilder, HParams, Tensor, Weight

SCALINGS = ("none", "linear", "yarn", "longrope")
MOST_PAIRS = 1 << 16  # of a head
SMALLEST_FACTOR = 0.001  # far below published values, and far from where YaRN's logarithms fail


@dataclass(frozen=True)
class Rope:
    """A rotation of ``n_rot`` values of each head; a call rotates queries or keys ``[t, heads, values]``.

    Pair ``i`` turns by ``position * freq_scale * freq_base^(-2i/n_rot) / factors[i]``. ``ext_factor`` above 0 blends
    towards unscaled angles between ``beta_fast`` and ``beta_slow`` rotations over ``n_ctx_orig`` positions, and scales
    by ``1 + 0.1 ln(1 / freq_scale)`` (YaRN, Peng et al. 2023, arXiv:2309.00071). ``truncate`` rounds the first and last
    blended pair outwards. ``attn_factor`` multiplies the result.

    ``sections`` share the pairs out among a token's time, height, width and a fourth position (M-RoPE, Wang et al.
    2024, arXiv:2409.12191). Text has the same place in time, height and width, and 0 as the fourth position.
    """

    n_rot: int
    neox: bool
    freq_base: float
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    n_ctx_orig: int = 0
    truncate: bool = True
    factors: Weight | None = None
    sections: tuple[int, ...] = ()

    def __call__(self, g: GraphBuilder, x: Tensor, positions: Tensor | None = None) -> Tensor:
        where = g.positions if positions is None else positions
        return g.rope(x, where, freqs=self.freqs, neox=self.neox, magnitude=self.magnitude)

    @property
    def freqs(self) -> tuple[float, ...]:
        """Radians a position for each pair ``[n_rot / 2]``."""
        pair = np.arange(self.n_rot // 2)
        unscaled = self.freq_base ** (-2.0 * pair / self.n_rot)
        if self.factors is not None:
            unscaled = unscaled / self.factors.dequantize()
        if self.sections:
            unscaled = unscaled * self._turns(pair)
        if not self.ext_factor:
            return tuple((unscaled * self.freq_scale).tolist())
        low, high = self._pair(self.beta_fast), self._pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(0, low), min(self.n_rot - 1, high)
        keep = (1 - np.clip((pair - low) / max(0.001, high - low), 0, 1)) * self.ext_factor
        return tuple((unscaled * (self.freq_scale * (1 - keep) + keep)).tolist())

    @property
    def magnitude(self) -> float:
        """The factor of rotated pairs; with YaRN it grows with the scaling of the context."""
        return self.attn_factor * (1 + 0.1 * math.log(1 / self.freq_scale)) if self.ext_factor else self.attn_factor

    def _turns(self, pair: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return True for pairs that text positions rotate: all except those of the fourth position."""
        return pair % sum(self.sections) < sum(self.sections[:3])

    def _pair(self, rotations: float) -> float:
        """Return the pair that rotates ``rotations`` times over the original context."""
        turn = math.log(self.n_ctx_orig / (rotations * 2 * math.pi))
        return self.n_rot * turn / (2 * math.log(self.freq_base))


def read_rope(
    hparams: HParams,
    g: GraphBuilder,
    head_dim: int,
    *,
    neox: bool,
    mscale: float = 1.0,
    mscale_all_dim: float = 0.0,
    beta_fast: float = 32.0,
    sliding: bool = False,
) -> Rope:
    """Return the rotary embedding of a model with ``head_dim`` values per head.

    ``mscale`` and ``mscale_all_dim`` are YaRN's, ``beta_fast`` is for files that have none. ``sliding`` is for
    layers with a window, which may rotate a different number of values and never use frequency factors. As in
    llama.cpp, ``yarn_attn_factor`` counts only without ``yarn_ext_factor``.
    """
    scaling = hparams.get_str("rope.scaling.type", "linear")
    if scaling not in SCALINGS:
        raise hparams.wrong("rope.scaling.type", f"is {scaling!r}, but only {', '.join(SCALINGS)} are supported")
    factor = 1.0 if scaling == "none" else scaling_factor(hparams)
    n_ctx_orig = original_context(hparams)
    n_rot = hparams.get_int("rope.dimension_count", head_dim)
    n_rot = rotated(hparams, head_dim, "rope.dimension_count_swa", n_rot) if sliding else rotated(hparams, head_dim)
    ext_factor = hparams.number("rope.scaling.yarn_ext_factor", -1.0, low=-1.0)
    if ext_factor < 0:
        ext_factor = 1.0 if scaling == "yarn" else 0.0
    if ext_factor:
        attn_factor = _yarn_attn_factor(factor, mscale, mscale_all_dim)
    else:
        attn_factor = hparams.number("rope.scaling.yarn_attn_factor", 1.0)
    return Rope(
        n_rot=n_rot,
        neox=neox,
        freq_base=frequency_base(hparams),
        freq_scale=1 / factor,
        ext_factor=ext_factor,
        attn_factor=attn_factor * hparams.number("rope.scaling.attn_factor", 1.0),
        beta_fast=hparams.number("rope.scaling.yarn_beta_fast", beta_fast, low=SMALLEST_FACTOR),
        beta_slow=hparams.number("rope.scaling.yarn_beta_slow", 1.0, low=SMALLEST_FACTOR),
        n_ctx_orig=n_ctx_orig,
        truncate=hparams.get_bool("rope.scaling.yarn_truncate", True),
        factors=None if sliding else _frequency_factors(g, n_rot, n_ctx_orig),
    )


def sliding_rope(hparams: HParams, rope: Rope, head_dim: int, base: float | None = None) -> Rope:
    """Return the rotary embedding of sliding layers, with its own width and base.

    ``base`` is the default if the file does not set it; None takes that of ``rope``, the other layers' embedding.
    """
    n_rot = rotated(hparams, head_dim, "rope.dimension_count_swa", rope.n_rot)
    freq_base = frequency_base(hparams, "rope.freq_base_swa", rope.freq_base if base is None else base)
    return replace(rope, n_rot=n_rot, freq_base=freq_base)


def rotated(hparams: HParams, head_dim: int, key: str = "rope.dimension_count", default: int = 0) -> int:
    """Return the rotated values per head: ``default`` if the file does not set them, or else all."""
    n_rot = hparams.get_int(key, default or head_dim)
    if n_rot % 2 or not 0 < n_rot <= head_dim:
        raise hparams.wrong(key, f"is {n_rot}, but must be even, above 0 and at most {head_dim}")
    return n_rot


def rope_sections(hparams: HParams, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the pairs of a head for each of a token's four positions; ``default`` if the file does not set them."""
    key = "rope.dimension_sections"
    if default is not None and f"{hparams.architecture}.{key}" not in hparams.metadata:
        return default
    sections = hparams.per_layer(key, 4)
    if any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < 2**16 for n in sections) or not sum(sections):
        raise hparams.wrong(key, f"is {sections}, but must be four numbers of pairs")
    return tuple(sections)


def rope_axes(hparams: HParams, n_pairs: int, interleaved: bool) -> tuple[int, ...]:
    """Return the place that each pair turns by: 0 for time, 1 for the row, 2 for the column (``Rope.sections``).

    Pairs of the fourth position, which do not turn, are counted as those of time. Sections may be ``interleaved``
    (Qwen 3 VL), and pairs that no section has then turn by time, as in transformers; llama.cpp does not turn them.
    Empty for a number of pairs that no tensor has. Raises ModelError without valid sections.
    """
    sections = rope_sections(hparams)
    if not 0 < n_pairs <= MOST_PAIRS:
        return ()
    pair = np.arange(n_pairs) % sum(sections)
    if interleaved:
        axes = np.where(pair < 3 * np.array(sections)[pair % 3], pair % 3, 0)
    else:
        axes = np.searchsorted(np.cumsum(sections), pair, side="right") % 3
    return tuple(axes.tolist())


def optional_rope_axes(hparams: HParams, head_dim: int) -> tuple[int, ...]:
    """Return ``rope_axes`` of the rotated part of a head if the file has sections for a row and a column; else none."""
    if min(rope_sections(hparams, default=())[:2], default=0) < 1:
        return ()
    return rope_axes(hparams, rotated(hparams, head_dim) // 2, interleaved=False)


def scaling_factor(hparams: HParams) -> float:
    """Return the factor by which the context is extended; ``rope.scale_linear`` is the key of old files."""
    key = "rope.scaling.factor"
    factor = hparams.number(key, hparams.number("rope.scale_linear", 0.0)) or 1.0
    if factor < SMALLEST_FACTOR:
        raise hparams.wrong(key, f"is {factor:g}, but must be 0 or at least {SMALLEST_FACTOR}")
    return factor


def original_context(hparams: HParams) -> int:
    """Return the context length before positions were scaled. Raises ModelError if it is less than 1."""
    n_ctx = hparams.get_int("rope.scaling.original_context_length", 0) or hparams.get_int("context_length")
    if n_ctx < 1:
        raise hparams.wrong("rope.scaling.original_context_length", f"is {n_ctx}, but must be at least 1")
    return n_ctx


def frequency_base(hparams: HParams, key: str = "rope.freq_base", default: float = 10000.0) -> float:
    """Return the base of rotary frequencies, theta. Raises ModelError if it is not above 1."""
    base = hparams.number(key, default)
    if base <= 1:
        raise hparams.wrong(key, f"is {base}, but must be above 1")
    return base


def yarn_mscale(factor: float, mscale: float) -> float:
    """YaRN's magnitude correction (Peng et al. 2023, arXiv:2309.00071, section 3.4, with its later ``mscale``)."""
    return 1.0 if factor <= 1 else 1 + 0.1 * mscale * math.log(factor)


def _yarn_attn_factor(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """Return the remaining factor after the ``rope`` operation's own ``1 + 0.1 ln(factor)``."""
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim) / (1 + 0.1 * math.log(factor))


def _frequency_factors(g: GraphBuilder, n_rot: int, n_ctx_orig: int) -> Weight | None:
    """Return divisors of the frequencies: llama 3's, or LongRoPE's for contexts within or beyond the original one."""
    shape = (n_rot // 2,)
    longrope = "rope_factors_long" if g.n_ctx > n_ctx_orig else "rope_factors_short"
    return g.find_weight("rope_freqs.weight", shape) or g.find_weight(f"{longrope}.weight", shape)
