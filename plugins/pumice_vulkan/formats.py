"""How matrices lie on the device: the planes that shaders/formats.glsl describes."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import GGMLType


@dataclass(frozen=True)
class Format:
    """A GGML type as the kernels see it. ``name`` is that of the shaders' variants.

    A block is ``columns`` of a row. ``words`` are those of a block in the planes of codes, of which there is one for
    ``low`` bits and perhaps one for ``high`` bits. ``scales`` is "halves", "pairs", "exponents" or "super";
    empty for a dense format, whose blocks are 16 bytes of numbers.
    """

    name: str
    type: GGMLType
    words: tuple[int, ...]
    scales: str = ""
    columns: int = 32

    @property
    def dense(self) -> bool:
        return not self.scales

    def row_blocks(self, n_columns: int) -> int:
        """Blocks of a row; rows of dense matrices are filled up with zeros."""
        return -(-n_columns // self.columns)

    def matrix_bytes(self, n_rows: int, n_columns: int) -> int:
        """Of all planes."""
        n_blocks = n_rows * self.row_blocks(n_columns)
        planes = [n_blocks * words for words in self.words]
        if self.scales:
            planes.append(n_blocks if self.scales == "pairs" else -(-n_blocks // 2))
        if self.scales == "super":
            planes.append(-(-n_blocks // 8))
        return 4 * sum(-(-words // 4) * 4 for words in planes)


FORMATS = {
    each.type: each
    for each in (
        Format("q4_0", GGMLType.Q4_0, (4,), "halves"),
        Format("q4_1", GGMLType.Q4_1, (4,), "pairs"),
        Format("q5_0", GGMLType.Q5_0, (4, 1), "halves"),
        Format("q5_1", GGMLType.Q5_1, (4, 1), "pairs"),
        Format("q8_0", GGMLType.Q8_0, (8,), "halves"),
        Format("q2_k", GGMLType.Q2_K, (2,), "super"),
        Format("q3_k", GGMLType.Q3_K, (2, 1), "super"),
        Format("q4_k", GGMLType.Q4_K, (4,), "super"),
        Format("q5_k", GGMLType.Q5_K, (4, 1), "super"),
        Format("q6_k", GGMLType.Q6_K, (4, 2), "super"),
        Format("iq4_nl", GGMLType.IQ4_NL, (4,), "halves"),
        Format("iq4_xs", GGMLType.IQ4_XS, (4,), "super"),
        Format("mxfp4", GGMLType.MXFP4, (4,), "exponents"),
        Format("f32", GGMLType.F32, (4,), columns=4),
        Format("f16", GGMLType.F16, (4,), columns=8),
        Format("bf16", GGMLType.BF16, (4,), columns=8),
    )
}

BY_NAME = {each.name: each for each in FORMATS.values()}
