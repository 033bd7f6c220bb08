"""Bits that the host and the shaders of products agree on; shaders are compiled with these names as macros."""

from __future__ import annotations

from enum import IntEnum, IntFlag, auto

FIXED = 1 << 31  # in a push constant: the other bits are a number of rows, not a word of the step block (common.glsl)


class ProductFlag(IntFlag):
    """The specialization constant FLAGS."""

    BIAS = auto()
    RESIDUAL = auto()
    PAIRED = auto()  # silu of one product times another
    BY_ID = auto()  # a matrix for each pair of a token and an expert
    BY_HEAD = auto()  # a matrix for each head
    OWN_X = auto()  # each pair has a row of x of its own
    RAGGED_X = auto()  # columns are no multiple of those taken at a time
    QUANTIZED_Y = auto()  # results are left in int8 too
    HALF_Y = auto()  # results are left in float16 too


class XMode(IntEnum):
    """The specialization constant X_MODE: activations come in int8, or are quantized by the kernel, perhaps normed."""

    X_QUANTIZED = 0
    X_PLAIN = 1
    X_NORM = 2


def product_defines() -> dict[str, str | int]:
    """The macros of shaders for products."""
    return {str(each.name): f"{each.value}u" for each in (*ProductFlag, *XMode)}
