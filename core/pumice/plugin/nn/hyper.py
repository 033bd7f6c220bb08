"""Hyperparameters with derived values: per-layer values, head sizes, sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import HParams

MOST_HEADS = 4096  # per layer; the largest published models have an eighth as many


@dataclass(frozen=True)
class Heads:
    """Numbers of query heads and of the key heads that groups of them share, and the values per head."""

    n_head: int
    n_head_kv: int
    k_dim: int
    v_dim: int


def read_heads(hparams: HParams, n_embd: int, layer: int, *, sliding: bool = False) -> Heads:
    """Read the heads of a layer; a ``sliding`` layer has its own values per head if the file sets them."""
    n_head = hparams.count("attention.head_count", layer)
    n_head_kv = hparams.count("attention.head_count_kv", layer, default=n_head)
    if n_head > MOST_HEADS:
        raise hparams.wrong("attention.head_count", f"is {n_head}, but must be at most {MOST_HEADS}")
    if n_head % n_head_kv:
        raise hparams.wrong("attention.head_count", f"is {n_head}, but must be a multiple of {n_head_kv} key heads")
    default = n_embd // (hparams.count("attention.head_count", 0, low=0) or n_head)
    dims = [hparams.get_int(f"attention.{kind}_length", default) for kind in ("key", "value")]
    if sliding:
        dims = [
            hparams.get_int(f"attention.{kind}_length_swa", dim)
            for kind, dim in zip(("key", "value"), dims, strict=True)
        ]
    if min(dims) < 1:
        raise hparams.wrong("attention.head_count", f"is {n_head}, but {n_embd} values leave none for each head")
    return Heads(n_head, n_head_kv, *dims)


def is_sliding(hparams: HParams, layer: int, period: int, *, first_global: bool = False) -> bool:
    """Return True if a layer has a sliding window.

    GGUF has one value per layer, or a period whose last (or first) layer has no window.
    """
    key = "attention.sliding_window_pattern"
    if hasattr(hparams.metadata.get(f"{hparams.architecture}.{key}"), "__len__"):
        return bool(hparams.per_layer(key, layer + 1)[layer])
    period = hparams.get_int(key, period)
    return period < 1 or (layer % period > 0 if first_global else layer % period < period - 1)


def slides(hparams: HParams, layer: int) -> bool:
    """Return True if a layer has a sliding window, for files with one value per layer."""
    return bool(hparams.per_layer("attention.sliding_window_pattern", layer + 1)[layer])


def listed_window(hparams: HParams, layer: int) -> int:
    """Return the sliding window of a layer, 0 for none, for files that say of each layer whether it has one."""
    return sliding_window(hparams, None) if slides(hparams, layer) else 0


def alibi_slopes(n_head: int, max_bias: float) -> tuple[float, ...]:
    """Return each head's penalty per position of distance (ALiBi, Press et al. 2021, arXiv:2108.12409).

    A power of two heads, ``n``, have ``2^(-max_bias / n)``, its square, and so on. Further heads take every other
    slope of twice as many. Empty for a ``max_bias`` of 0.
    """
    if not max_bias:
        return ()
    n = 2 ** (n_head.bit_length() - 1)
    exponents = [(j + 1) / n for j in range(n)] + [(2 * j + 1) / (2 * n) for j in range(n_head - n)]
    return tuple(2.0 ** (-max_bias * exponent) for exponent in exponents)


def sliding_window(hparams: HParams, default: int | None = 0) -> int:
    """Return the size of the sliding window; 0 for none. ``default`` None: the file must set it."""
    key = "attention.sliding_window"
    window = hparams.positive(key) if default is None else hparams.get_int(key, default)
    if not 0 <= window < 2**31:
        raise hparams.wrong("attention.sliding_window", f"is {window}, but must be at least 0 and below 2^31")
    return window
