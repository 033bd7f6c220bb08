"""Hyperparameters that take more than one look: per-layer values, head sizes, sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import HParams

MOST_HEADS = 4096  # of a layer; the field's largest models have an eighth as many


@dataclass(frozen=True)
class Heads:
    """Query heads, the key heads that groups of them share, and the values in a head of each kind."""

    n_head: int
    n_head_kv: int
    k_dim: int
    v_dim: int


def read_heads(hparams: HParams, n_embd: int, layer: int, *, sliding: bool = False) -> Heads:
    """``sliding``: the layer has a window, and values of its own in a head where the file says so."""
    n_head = hparams.count("attention.head_count", layer)
    n_head_kv = hparams.count("attention.head_count_kv", layer, default=n_head)
    if n_head > MOST_HEADS:
        raise hparams.wrong("attention.head_count", f"is {n_head}, it must be at most {MOST_HEADS}")
    if n_head % n_head_kv:
        raise hparams.wrong("attention.head_count", f"is {n_head}, not a multiple of {n_head_kv} key heads")
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
    """Whether a layer attends to a window only.

    GGUF has either one value for each layer, or a period: its last layer attends to everything, or the first.
    """
    key = "attention.sliding_window_pattern"
    if hasattr(hparams.metadata.get(f"{hparams.architecture}.{key}"), "__len__"):
        return bool(hparams.per_layer(key, layer + 1)[layer])
    period = hparams.get_int(key, period)
    return period < 1 or (layer % period > 0 if first_global else layer % period < period - 1)


def slides(hparams: HParams, layer: int) -> bool:
    """Whether a layer attends to a window only, of files that must say it of each."""
    return bool(hparams.per_layer("attention.sliding_window_pattern", layer + 1)[layer])


def alibi_slopes(n_head: int, max_bias: float) -> tuple[float, ...]:
    """What each head takes off a score for a position of distance (ALiBi, Press et al. 2021, arXiv:2108.12409).

    A power of two heads, ``n``, have ``2^(-max_bias / n)``, its square, and so on. Further heads take every other
    slope of twice as many. Empty for a ``max_bias`` of 0.
    """
    if not max_bias:
        return ()
    n = 2 ** (n_head.bit_length() - 1)
    exponents = [(j + 1) / n for j in range(n)] + [(2 * j + 1) / (2 * n) for j in range(n_head - n)]
    return tuple(2.0 ** (-max_bias * exponent) for exponent in exponents)


def sliding_window(hparams: HParams, default: int | None = 0) -> int:
    """Positions a sliding layer attends to; 0 if the model has no such layers. ``default`` None: the file must say."""
    key = "attention.sliding_window"
    window = hparams.positive(key) if default is None else hparams.get_int(key, default)
    if not 0 <= window < 2**31:
        raise hparams.wrong("attention.sliding_window", f"is {window}, it must be at least 0 and below 2^31")
    return window
