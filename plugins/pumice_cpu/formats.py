"""How quantized weights are laid out for the kernels, and what each GGML type becomes.

A tile is 16 rows, and a block of a tile 32 columns. A vector of 64 bytes holds, for each of the 16 rows,
the codes of four neighbouring columns: eight groups of columns make a block. Codes are unsigned, with
``offset`` to subtract, or int8 with ``signed``; they are kept in planes of bits:

- 4 bits: four vectors; low nibbles are groups 0 to 3, high nibbles groups 4 to 7;
- 2 bits: two vectors; bits ``2m`` and ``2m + 1`` of vector ``j`` are group ``4j + m``;
- 1 bit: eight words of 64 bits, one a group;
- 8 bits: eight vectors, one a group.

Scales lie apart, 16 rows side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import GGMLType

ROWS, COLUMNS = 16, 32

#: A panel of a float matrix, and the rows of activations that it is multiplied by at once. As float32 it takes 128 KiB
#: of the second-level cache: shorter pieces of a row are slower to read (kernels/linear_float.py).
PANEL_ROWS, PANEL_COLUMNS, PANEL_TOKENS = 32, 1024, 8


@dataclass(frozen=True)
class Format:
    """A GGML type as the kernels see it.

    ``scales`` names how a block's scale is kept (kernels/scales.py): ``f16`` one float16; ``f16_min`` a float16
    scale and minimum; ``e8m0`` an exponent byte; ``f32`` a float32 for each half; of 256 columns one float16 and of
    each 16 or 32 columns a byte: ``k32_min``, ``k16``, ``k16_min``, ``k32``. ``halves`` is 2 where 16 columns have a
    scale of their own.
    """

    name: str
    type: GGMLType
    bits: int
    scales: str
    offset: int = 0
    signed: bool = False
    table: tuple[int, ...] = ()  # what 4-bit codes stand for, if not themselves
    halves: int = 1

    @property
    def code_bytes(self) -> int:
        """Of one block of a tile."""
        return ROWS * COLUMNS * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Of ``scale_columns`` columns of a tile."""
        return _SCALE_BYTES[self.scales]

    @property
    def scale_columns(self) -> int:
        return 256 if self.scales.startswith("k") else COLUMNS


_SCALE_BYTES = {
    "f16": 32,
    "f16_min": 64,
    "e8m0": 16,
    "f32": 128,
    "k32": 32 + 8 * 16,
    "k32_min": 64 + 8 * 32,
    "k16": 32 + 16 * 16,
    "k16_min": 64 + 16 * 16,
}

#: The values of IQ4_NL and IQ4_XS, and twice those of MXFP4 plus 12 (ggml-common.h).
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4 = (12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)

FORMATS = {
    each.type: each
    for each in (
        Format("q4_0", GGMLType.Q4_0, 4, "f16", offset=8),
        Format("q4_1", GGMLType.Q4_1, 4, "f16_min"),
        Format("q5_0", GGMLType.Q5_0, 5, "f16", offset=16),
        Format("q5_1", GGMLType.Q5_1, 5, "f16_min"),
        Format("q8_0", GGMLType.Q8_0, 8, "f16", signed=True),
        Format("q2_k", GGMLType.Q2_K, 2, "k16_min", halves=2),
        Format("q3_k", GGMLType.Q3_K, 3, "k16", offset=4, halves=2),
        Format("q4_k", GGMLType.Q4_K, 4, "k32_min"),
        Format("q5_k", GGMLType.Q5_K, 5, "k32_min"),
        Format("q6_k", GGMLType.Q6_K, 6, "k16", offset=32, halves=2),
        Format("iq4_nl", GGMLType.IQ4_NL, 4, "f16", signed=True, table=_IQ4),
        Format("iq4_xs", GGMLType.IQ4_XS, 4, "k32", signed=True, table=_IQ4),
        Format("mxfp4", GGMLType.MXFP4, 4, "e8m0", offset=12, table=_FP4),
    )
}

BY_NAME = {each.name: each for each in FORMATS.values()}

#: What the rarer types are unpacked to, a tile at a time (kernels/linear_rare.py).
UNPACKED = Format("unpacked", GGMLType.I8, 8, "f32", signed=True, halves=2)
