"""Flags shared by the host and the shaders of products; the shaders get these names as macros."""

from __future__ import annotations

from enum import IntEnum, IntFlag, auto

# In a push constant: the other bits are the number of rows, not an index in the step block (common.glsl).
FIXED = 1 << 31


class ProductFlag(IntFlag):
    """The specialization constant FLAGS."""

    BIAS = auto()
    RESIDUAL = auto()
    PAIRED = auto()  # result is silu of one product times another
    BY_ID = auto()  # the matrix is selected by a pair of token and expert
    BY_HEAD = auto()  # the matrix is selected by the head
    OWN_X = auto()  # each pair has its own row of x
    RAGGED_X = auto()  # the number of columns is no multiple of a step
    QUANTIZED_Y = auto()  # also store results as int8
    HALF_Y = auto()  # also store results as float16
    GELU = auto()  # PAIRED with GELU instead of SiLU


class XMode(IntEnum):
    """The specialization constant X_MODE: activations are int8, or quantized by the kernel, optionally after a norm."""

    X_QUANTIZED = 0
    X_PLAIN = 1
    X_NORM = 2


def product_defines() -> dict[str, str | int]:
    """Return the macros for shaders of products."""
    return {str(member.name): f"{member.value}u" for member in (*ProductFlag, *XMode)}
