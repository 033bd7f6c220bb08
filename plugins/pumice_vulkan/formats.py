"""Layouts of matrices on the device: the planes described in shaders/formats.glsl, derived from the table of types."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pumice.plugin import GGMLType, block_size, type_size
from pumice.plugin.unstable import CODINGS, Coding

BLOCK_COLUMNS = 32  # columns per block of a quantized matrix
BLOCK_BYTES = 16  # bytes per block of a dense matrix
DENSE = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)


@dataclass(frozen=True)
class Format:
    """The layout of a type. Dense types, of plain numbers, have no coding.

    ``in_lanes``: blocks of a dense matrix lie as lanes of shaders/matmul_lanes.comp read them (shaders/weights.glsl).
    """

    type: GGMLType
    coding: Coding | None = None
    in_lanes: bool = False

    @functools.cached_property
    def name(self) -> str:
        """Name of the shaders' variants."""
        return self.type.name.lower() + ("_lanes" if self.in_lanes else "")

    @property
    def dense(self) -> bool:
        return self.coding is None

    @property
    def for_lanes(self) -> bool:
        """True if shaders/matmul_lanes.comp has a variant for this format."""
        return self.in_lanes or not self.dense

    @property
    def columns(self) -> int:
        """Columns of a row in one block."""
        return BLOCK_COLUMNS if self.coding else BLOCK_BYTES // type_size(self.type)

    @property
    def words(self) -> tuple[int, ...]:
        """Words per block in the plane of the codes' low bits, and in that of the high bits if there is one."""
        if self.coding is None:
            return (BLOCK_BYTES // 4,)
        low = max(bits for bits in (2, 4, 8) if bits <= self.coding.bits)
        return (low, self.coding.bits - low) if self.coding.bits > low else (low,)

    @property
    def scales(self) -> str:
        """Names of the planes of scales in shaders/formats.glsl."""
        if self.coding is None:
            return ""
        return "SUPER" if self.coding.super_blocks else _SCALES[self.coding.scales]

    def row_blocks(self, n_columns: int) -> int:
        """Return the blocks per row; rows of dense matrices are padded with zeros."""
        return -(-n_columns // self.columns)

    def matrix_bytes(self, n_rows: int, n_columns: int) -> int:
        """Return the bytes of all planes."""
        n_blocks = n_rows * self.row_blocks(n_columns)
        planes = [n_blocks * words for words in self.words]
        if self.coding:
            planes.append(n_blocks if self.scales == "PAIRS" else -(-n_blocks // 2))
        if self.scales == "SUPER":
            planes.append(-(-n_blocks // 8))
        return 4 * sum(-(-words // 4) * 4 for words in planes)

    def defines(self) -> dict[str, str | int]:
        """Return the macros of shader variants for this type (shaders/formats.glsl)."""
        named: dict[str, str | int] = {f"FORMAT_{self.type.name}": 1, "DENSE": int(self.dense)}
        if self.coding is None:
            return {**named, "BLOCK_COLUMNS": f"{self.columns}u", **({"IN_LANES": 1} if self.in_lanes else {})}
        low, high = (*self.words, 0)[:2]
        return {
            **named,
            "BLOCK_COLUMNS": f"{self.columns}u",
            "LOW_BITS": low,
            "HIGH_BITS": high,
            "OFFSET": self.coding.offset,
            "SCALES": self.scales,
            "HAS_MINIMUM": int(self.coding.has_minimum),
            "SPLIT": int(self.coding.scale_columns < BLOCK_COLUMNS),
            "TABLE": int(bool(self.coding.values)),
            **({"VALUES": ",".join(map(str, self.coding.values))} if self.coding.values else {}),
            "FILE_BLOCKS": block_size(self.type) // BLOCK_COLUMNS,
            "FILE_BYTES": type_size(self.type),
        }


_SCALES = {"f16": "HALVES", "f16_min": "PAIRS", "e8m0": "EXPONENTS"}

FORMATS = {
    **{type: Format(type, coding) for type, coding in CODINGS.items()},
    **{type: Format(type) for type in DENSE},
}
IN_LANES = {type: Format(type, in_lanes=True) for type in (GGMLType.F16, GGMLType.BF16)}
"""Formats of F16 and BF16 matrices on devices whose matrix units' lanes are known (Lowering.memory.lanes)."""
LANES_ROWS, LANES_STEP = 8, 128  # rows of a load of shaders/matmul_lanes.comp, and columns of a step
BY_NAME = {format.name: format for format in (*FORMATS.values(), *IN_LANES.values())}
