"""Tensor types: a table of ggml's types, and the types that the KV cache supports.

Numbers, names and block layouts are ggml's (`enum ggml_type` of ggml.h, `ggml-common.h`).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

#: How a block stores its scales: a float16; a float16 scale and minimum; an exponent byte (power of two); or, for 256
#: columns, a float16 and a small integer per 16 or 32 columns, optionally with minimums of the same form.
ScaleKind = Literal["f16", "f16_min", "e8m0", "k16", "k16_min", "k32", "k32_min"]


class GGMLType(IntEnum):
    """A tensor type, with its number in files."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


@dataclass(frozen=True)
class Coding:
    """The decoding of a quantized value: ``scale * (code - offset)``, plus a minimum if the type has one.

    Attributes:
        bits: bits per code; codes of 8 bits are int8, all others unsigned.
        scales: how a block stores its scales.
        offset: number subtracted from codes.
        values: values of 4-bit codes, if they differ from the codes.
    """

    bits: Literal[2, 3, 4, 5, 6, 8]
    scales: ScaleKind
    offset: int = 0
    values: tuple[int, ...] = ()

    @property
    def scale_columns(self) -> int:
        """Columns per scale: 16 or 32."""
        return 16 if self.scales.startswith("k16") else 32

    @property
    def super_blocks(self) -> bool:
        """True if the scales of 256 columns share a float16."""
        return self.scales.startswith("k")

    @property
    def has_minimum(self) -> bool:
        """True if each group of codes has a minimum beside its scale."""
        return self.scales.endswith("_min")

    @property
    def is_affine(self) -> bool:
        """True if codes are values with one scale per block, which the KV cache's kernels can read."""
        return not self.values and self.scales in ("f16", "f16_min")


@dataclass(frozen=True)
class _Stored:
    """The values and bytes of a type's block. ``coding`` is None if a value does not follow from a single code."""

    block_size: int
    type_size: int
    coding: Coding | None = None


#: Twice the values of FP4 (E2M1), with half the scale, and the values of IQ4_NL and IQ4_XS.
_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_TYPES = {
    GGMLType.F32: _Stored(1, 4),
    GGMLType.F16: _Stored(1, 2),
    GGMLType.BF16: _Stored(1, 2),
    GGMLType.F64: _Stored(1, 8),
    GGMLType.I8: _Stored(1, 1),
    GGMLType.I16: _Stored(1, 2),
    GGMLType.I32: _Stored(1, 4),
    GGMLType.I64: _Stored(1, 8),
    GGMLType.Q2_0: _Stored(64, 18, Coding(2, "f16", offset=1)),
    GGMLType.Q4_0: _Stored(32, 18, Coding(4, "f16", offset=8)),
    GGMLType.Q4_1: _Stored(32, 20, Coding(4, "f16_min")),
    GGMLType.Q5_0: _Stored(32, 22, Coding(5, "f16", offset=16)),
    GGMLType.Q5_1: _Stored(32, 24, Coding(5, "f16_min")),
    GGMLType.Q8_0: _Stored(32, 34, Coding(8, "f16")),
    GGMLType.Q2_K: _Stored(256, 84, Coding(2, "k16_min")),
    GGMLType.Q3_K: _Stored(256, 110, Coding(3, "k16", offset=4)),
    GGMLType.Q4_K: _Stored(256, 144, Coding(4, "k32_min")),
    GGMLType.Q5_K: _Stored(256, 176, Coding(5, "k32_min")),
    GGMLType.Q6_K: _Stored(256, 210, Coding(6, "k16", offset=32)),
    GGMLType.IQ4_NL: _Stored(32, 18, Coding(4, "f16", values=_IQ4)),
    GGMLType.IQ4_XS: _Stored(256, 136, Coding(4, "k32", values=_IQ4)),
    GGMLType.MXFP4: _Stored(32, 17, Coding(4, "e8m0", values=_FP4)),
    GGMLType.Q8_1: _Stored(32, 36),
    GGMLType.Q8_K: _Stored(256, 292),
    GGMLType.Q1_0: _Stored(128, 18),
    GGMLType.NVFP4: _Stored(64, 36),
    GGMLType.TQ1_0: _Stored(256, 54),
    GGMLType.TQ2_0: _Stored(256, 66),
    GGMLType.IQ1_S: _Stored(256, 50),
    GGMLType.IQ1_M: _Stored(256, 56),
    GGMLType.IQ2_XXS: _Stored(256, 66),
    GGMLType.IQ2_XS: _Stored(256, 74),
    GGMLType.IQ2_S: _Stored(256, 82),
    GGMLType.IQ3_XXS: _Stored(256, 98),
    GGMLType.IQ3_S: _Stored(256, 110),
}

#: Types whose values follow from codes of a few bits, for which kernels of quantized matrices are derived.
CODINGS = {type: stored.coding for type, stored in _TYPES.items() if stored.coding is not None}

#: Types that the KV cache supports, by their names in the configuration.
KV_TYPES = {
    type.name.lower(): type
    for type in (
        GGMLType.F32,
        GGMLType.F16,
        GGMLType.BF16,
        GGMLType.Q8_0,
        GGMLType.Q5_1,
        GGMLType.Q5_0,
        GGMLType.Q4_1,
        GGMLType.Q4_0,
    )
}


def block_size(type: GGMLType) -> int:
    """Return the values per block; 1 for types that are not quantized."""
    return _TYPES[type].block_size


def type_size(type: GGMLType) -> int:
    """Return the bytes of a block of the type."""
    return _TYPES[type].type_size


def row_bytes(type: GGMLType, n: int) -> int:
    """Return the bytes of a row of `n` values. Raises ValueError unless `n` is a multiple of the block size."""
    block, size = block_size(type), type_size(type)
    if n % block:
        raise ValueError(f"a row of {n} is not a whole number of {type.name} blocks of {block}")
    return n // block * size
