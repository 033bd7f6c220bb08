"""The tile layout of quantized weights for the kernels, derived from the table of types.

A tile is 16 rows, and a block of a tile 32 columns. A vector of 64 bytes holds, for each of the 16 rows,
the codes of four neighbouring columns: eight groups of columns make a block. Codes are unsigned, with
``offset`` to subtract, or int8 with ``signed``; they are stored in bit planes:

- 4 bits: four vectors; low nibbles are groups 0 to 3, high nibbles groups 4 to 7;
- 2 bits: two vectors; bits ``2m`` and ``2m + 1`` of vector ``j`` are group ``4j + m``;
- 1 bit: eight words of 64 bits, one a group;
- 8 bits: eight vectors, one a group.

Scales are stored separately, 16 rows side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import GGMLType, block_size
from pumice.plugin.unstable import CODINGS, Coding

ROWS, COLUMNS = 16, 32

#: The size of a panel of a float matrix, and the number of activation rows multiplied by a panel at a time. As float32
#: a panel takes 128 KiB of the second-level cache; shorter pieces of a row read slower (kernels/linear_float.py).
PANEL_ROWS, PANEL_COLUMNS, PANEL_TOKENS = 32, 1024, 8

#: Products in tiles of bfloat16 (kernels/tiles.py): rows of weights, and of activations, that are multiplied at once;
#: blocks of COLUMNS columns that are decoded at once; rows of activations that are multiplied with them, which then
#: stay in the second-level cache; most panels of TILE_ROWS rows that a thread takes at once; bytes of a tile; bytes of
#: scratch of a thread: sums of TILE_ROWS squared, two panels of decoded weights, and the sums of all panels.
TILE_ROWS, TILE_BLOCKS, TILE_TOKENS, TILE_PANELS, TILE_BYTES = 32, 8, 512, 4, 1024
TILE_SCRATCH = 4 * TILE_ROWS * TILE_ROWS + 4 * TILE_BYTES * TILE_BLOCKS + TILE_PANELS * 4 * TILE_ROWS * TILE_TOKENS

#: Bytes of scratch for the codes and scales of one block while a row of a table is decoded (kernels/embedding.py).
EMBEDDING_SCRATCH = 1024


@dataclass(frozen=True)
class Format:
    """A quantized type's layout in tiles.

    Attributes:
        scales: encoding of the scales (kernels/scales.py): as in ``pumice.plugin.Coding``, or ``f32``, one float32 for
            each half of a block.
        halves: 2 if each 16 columns have their own scale, else 1.
        table: the values of 4-bit codes, if codes are not the values themselves.
        block_columns: columns of a block in the file.
    """

    name: str
    bits: int
    scales: str
    offset: int = 0
    signed: bool = False
    table: tuple[int, ...] = ()
    halves: int = 1
    block_columns: int = COLUMNS

    @classmethod
    def of(cls, type: GGMLType, coding: Coding) -> Format:
        """Derive the layout. Table values become unsigned where 7 bits suffice, so products with int8 fit in int16."""
        low = min(coding.values, default=0)
        wide = bool(coding.values) and max(coding.values) - low > 127
        return cls(
            name=type.name.lower(),
            bits=coding.bits,
            scales=coding.scales,
            offset=0 if wide else coding.offset - low,
            signed=wide or coding.bits == 8,
            table=coding.values if wide else tuple(value - low for value in coding.values),
            halves=COLUMNS // coding.scale_columns,
            block_columns=block_size(type),
        )

    @property
    def lookup_table(self) -> NDArray[np.uint8]:
        """Return the values of the 16 4-bit codes, repeated four times for the lookup; zeros if there is no table."""
        return np.tile(np.array(self.table or [0] * 16, np.int8).view(np.uint8), 4)

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of 32 columns of a tile."""
        return ROWS * COLUMNS * self.bits // 8

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of a tile of ``block_columns`` columns."""
        columns, n_bytes = _SCALE_BYTES[self.scales]
        return self.block_columns // columns * n_bytes


#: Columns of a tile, and the bytes of their scales, by encoding.
_SCALE_BYTES = {
    "f16": (32, 32),
    "f16_min": (32, 64),
    "e8m0": (32, 16),
    "f32": (32, 128),
    "k32": (256, 32 + 8 * 16),
    "k32_min": (256, 64 + 8 * 32),
    "k16": (256, 32 + 16 * 16),
    "k16_min": (256, 64 + 16 * 16),
}

FORMATS = {type: Format.of(type, coding) for type, coding in CODINGS.items()}
BY_NAME = {format.name: format for format in FORMATS.values()}

#: The layout of the rarer types once unpacked, a tile at a time (kernels/linear_rare.py).
UNPACKED = Format("unpacked", 8, "f32", signed=True, halves=2)
