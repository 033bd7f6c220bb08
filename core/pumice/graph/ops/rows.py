"""Rows and matrices: lookup, multiplication, and pooling over a sequence."""

from __future__ import annotations

from pumice.graph.operation import Result, need, operation
from pumice.graph.tensor import Tensor, Weight

LARGEST_TABLE = 2**31  # rows that int32 ids can address


@operation
def embedding(weight: Weight, ids: Tensor) -> Result:
    """Rows of ``weight [n, d]`` named by int32 ``ids [...]``: ``[..., d]``; of ``weight [n]`` values: ``[...]``."""
    need(len(weight.shape) <= 2, f"{weight}: an embedding table has one or two dimensions")
    return Result((*ids.shape, *weight.shape[1:]))


@operation
def ngram_rows(
    tokens: Tensor, *, multipliers: tuple[int, ...], sizes: tuple[int, ...], offsets: tuple[int, ...]
) -> Result:
    """int32 ``[t, h]``: rows of a table that n-grams find by a hash (Svenstrup et al. 2017, arXiv:1709.03933).

    ``tokens [t, n]`` are a token, the one before it, and so on, whole numbers from 0 to 2^24. The n-gram of the first
    ``k``, ``k`` from 2 to ``n``, is the exclusive or of ``tokens[:, j] * multipliers[j]`` modulo 2^64. Each finds as
    many of the ``h`` rows, those of 2 tokens first: row ``i`` is the n-gram modulo ``sizes[i]``, plus ``offsets[i]``.
    """
    longest, n_heads = int(tokens.shape[-1]), len(sizes)
    need(longest > 1 and len(multipliers) == longest, f"ngram_rows: {len(multipliers)} multipliers for {tokens}")
    need(n_heads > 0 and n_heads % (longest - 1) == 0, f"ngram_rows: n-grams of {tokens} cannot share {n_heads} heads")
    need(all(0 <= multiplier < 2**64 for multiplier in multipliers), "ngram_rows: multipliers have 64 bits")
    fits = len(offsets) == n_heads and all(
        0 < size <= size + offset <= LARGEST_TABLE and offset >= 0 for size, offset in zip(sizes, offsets, strict=True)
    )
    need(fits, f"ngram_rows: sizes and offsets must be rows of a table of at most {LARGEST_TABLE}")
    return Result((tokens.shape[0], n_heads), "i32")


@operation
def tap(x: Tensor, *, site: str) -> Result:
    """``x``, whose rows functions of requests see, and may replace, under the name ``site``."""
    return Result(x.shape)


@operation
def get_rows(x: Tensor, ids: Tensor) -> Result:
    """Rows of an activation ``x [t, ...]`` named by int32 ``ids [r]``: ``[r, ...]``."""
    return Result((*ids.shape, *x.shape[1:]), x.dtype)


@operation
def linear(x: Tensor, weight: Weight, bias: Weight | None = None) -> Result:
    """``x [..., k] @ weight [m, k].T + bias [m]``: ``[..., m]``."""
    need(len(weight.shape) == 2, f"{weight}: a linear weight has two dimensions")
    need(weight.shape[1] == x.shape[-1], f"{weight} cannot multiply {x}: rows must have {x.shape[-1]} values")
    if bias is not None:
        need(bias.shape == weight.shape[:1], f"{bias} does not fit {weight}: it must have {weight.shape[0]} values")
    return Result((*x.shape[:-1], weight.shape[0]))


@operation
def batched_linear(x: Tensor, weight: Weight) -> Result:
    """A matrix for each head: ``x [t, h, k]`` times ``weight [h, m, k]``: ``[t, h, m]``."""
    fits = len(weight.shape) == 3 and weight.shape[0] == x.shape[-2] and weight.shape[2] == x.shape[-1]
    need(fits, f"{weight} cannot multiply {x} head by head")
    return Result((*x.shape[:-1], weight.shape[1]))


@operation
def mul_mat_id(x: Tensor, weight: Weight, ids: Tensor) -> Result:
    """Experts: ``x [t, k]`` or ``[t, e, k]`` times matrices ``ids [t, e]`` of ``weight [n, m, k]``: ``[t, e, m]``."""
    fits = len(weight.shape) == 3 and weight.shape[2] == x.shape[-1]
    need(fits, f"{weight} cannot multiply {x}: experts must have rows of {x.shape[-1]} values")
    return Result((*ids.shape, weight.shape[1]))
