"""The division of a token's work over a device: the constants of shaders/persistent.comp."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

MOST_GATED = 25600  # bytes of the gated values of all rows in shared memory; more lie in a buffer
QUANTIZED_TOGETHER = 16  # gated values with a scale, all of one workgroup
GIVEN_TOGETHER = 4  # other values that workgroups exchange

MOST_READ = 8  # words that an invocation polls at a time
MOST_PER_LANE = 8  # values of a head
MOST_BYTES = 1 << 32  # of a matrix, within which the shader counts bytes

AHEAD = 4  # units of weights that a subgroup requests before it multiplies the first one, but for those of experts

OF_EXPERTS = 8  # rows of gate, rows of up, or units of down of a subgroup at most, which are requested at once

MACROS = {"threads": "THREADS", "lanes": "LANES", "groups": "GROUPS"}
"""Fields of ``Shape`` that a family has, and their macros in the shader."""

CONSTANTS = {
    "layers": "LAYERS",
    "width": "WIDTH",
    "heads": "HEADS",
    "kv_heads": "KV_HEADS",
    "dim": "DIM",
    "ffn": "FFN",
    "vocabulary": "VOCAB",
    "positions": "EACH",
    "block_size": "block_size",
    "share": "SHARE",
    "deep": "DEEP",
    "deep_positions": "DEEP_EACH",
    "head_norms": "WITH_HEAD_NORMS",
    "biases": "BIASES",
    "gelu": "GELU",
    "post_norms": "POST_NORMS",
    "soft_cap": "SOFT_CAP",
    "logit_cap": "LOGIT_CAP",
    "window": "WINDOW",
    "rows": "TOKENS",
    "shares_gated": "GATED_SHARED",
    "experts": "EXPERTS",
    "used": "USED",
}
"""Properties of ``Shape`` that may have any value in a family, and the specialization constants of its shader."""

SEVERAL = ("any_q4_0", "any_q4_k_m", "any_tiny")
"""Families that have a shader for steps of several tokens."""

FLAGS = ("", "q6_k", "q5_k", "q4_k", "q3_k", "q8_0")
"""Types by the low bits of a matrix's address, if its type is not the usual one."""
ADDRESS_FLAGS = 15  # these bits


@dataclass(frozen=True)
class Shape:
    """The constants of the shader for a family of models on a device.

    Attributes:
        threads: invocations per workgroup.
        lanes: invocations per subgroup.
        groups: workgroups, which must all run at the same time.
        layers: layers of the model.
        width: values of a token between layers.
        heads: heads of queries.
        kv_heads: heads of keys and values.
        dim: values of a head.
        ffn: width of a layer's feed-forward; with experts that of all experts of a token.
        vocabulary: rows of the output matrix.
        type: type of matrices.
        output: type of the output matrix.
        positions: positions that an invocation attends to at a time.
        block_size: positions of a block of the KV cache.
        share: heads of a workgroup that read the same keys together where positions are many; 1: none do.
        deep: number of positions from which they are many.
        deep_positions: positions that an invocation attends to at a time where they are many.
        experts: experts of a layer; 0: none.
        used: experts of a token.
        head_norms: True if queries and keys have norms.
        biases: True if queries, keys and values have biases.
        rows: most tokens of a step; 1 is the shader for a single one.
        family: name of the family.
        others: matrices (``pattern.MATRICES``) that may have another type in some layers, with each that they may have.
        gelu: True if the activation is GELU, not SiLU.
        post_norms: True if the results of attention and of the block have norms before they are added.
        soft_cap: soft cap of scores; 0: none.
        logit_cap: soft cap of logits; 0: none.
        window: positions that layers with a window attend to; 0: no layer has one.
        whole_output: True if a subgroup multiplies whole rows of the output matrix, which takes less shared memory.
        spills: True if gated values of several rows lie in a buffer whatever their size, as shared memory is too small.
    """

    threads: int
    lanes: int
    groups: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    dim: int
    ffn: int
    vocabulary: int
    type: str
    output: str
    positions: int
    block_size: int
    share: int
    deep: int
    deep_positions: int
    experts: int = 0
    used: int = 0
    head_norms: bool = False
    biases: bool = False
    rows: int = 1
    family: str = ""
    others: tuple[tuple[str, str], ...] = ()
    gelu: bool = False
    post_norms: bool = False
    soft_cap: float = 0.0
    logit_cap: float = 0.0
    window: int = 0
    whole_output: bool = False
    spills: bool = False

    def types_of(self, matrix: str) -> tuple[str, ...]:
        """Return the types that a matrix may have, the usual one first."""
        return self.type, *(other for name, other in self.others if name == matrix)

    @property
    def kernel(self) -> str:
        """The variant of the shader."""
        return f"persistent{'_tokens' * (self.rows > 1)}.{self.family}"

    @property
    def constants(self) -> list[int]:
        """The specialization constants, as words by their numbers."""
        return [_word(number) for number in self.numbers.values()]

    @property
    def numbers(self) -> dict[str, int | float]:
        """The specialization constants in their order: chunks of rows and rows of a workgroup, then sizes."""
        chunks = {"X": self.chunks(self.width), "O": self.chunks(self.query), "D": self.chunks_of_down}
        chunks["L"] = 1 if self.whole_output else chunks["X"]
        division = {f"CHUNKS_{site}": n for site, n in chunks.items()}
        division |= {f"OF_{site}": n for site, n in self.rows_of_group.items()}
        return {**division, **{name: getattr(self, field) for field, name in CONSTANTS.items()}}

    def macros(self) -> dict[str, str | int]:
        """Return the macros by their names in the shader."""
        flags = {f"HAS_{name.upper()}" for name in (self.type, self.output, *(type for _, type in self.others))}
        flags |= {"SOFTWARE"} if self.groups == 1 else set()
        flags |= {"WITH_EXPERTS"} if self.experts else set()
        values: dict[str, str | int] = {name: f"{getattr(self, field)}u" for field, name in MACROS.items()}
        return {**values, "AHEAD": f"{AHEAD}u", **dict.fromkeys(sorted(flags), 1)}

    def chunks(self, columns: int) -> int:
        """Return into how many chunks the subgroups divide a row, each with at most a block of 32 columns a lane.

        A whole number of rows takes all subgroups, or one row takes more than half of them; the last chunk may have
        fewer blocks, or none. If no number suits, it is larger than that of the subgroups.
        """
        blocks, warps = columns // 32, self.threads // self.lanes
        fewest = -(-blocks // self.lanes)
        suited = [n for n in range(fewest, warps + 1) if warps % n == 0 or n > warps // 2]
        whole = (n for n in suited if blocks % n == 0)
        return next(whole, next(iter(suited), warps + 1))

    @property
    def chunks_of_down(self) -> int:
        """Chunks of a row of down; with experts a subgroup multiplies all of a row."""
        return 1 if self.experts else self.chunks(self.ffn)

    @property
    def query(self) -> int:
        """Rows of the matrix of queries."""
        return self.heads * self.dim

    @property
    def rows_of_group(self) -> dict[str, int]:
        """Rows of a workgroup by matrix: of queries, of keys, of those that give x, and of gate."""
        width, query, ffn = self.width, self.query, self.ffn
        return {
            "Q": self._rows_of_group(query, width),
            "K": self._rows_of_group(self.kv_heads * self.dim, width),
            "X": self._rows_of_group(width, query) if self.experts else self._rows_of_group(width, query, ffn),
            "G": self._rows_of_group(ffn, width, together=QUANTIZED_TOGETHER),
        }

    def _rows_of_group(self, n_rows: int, *columns: int, together: int = GIVEN_TOGETHER) -> int:
        """Return rows that the subgroups divide equally, for matrices with so many columns."""
        least = lcm(together, *(max(1, self.threads // self.lanes // self.chunks(n)) for n in columns))
        return least * -(-n_rows // (least * self.groups))

    @property
    def divides_rows(self) -> bool:
        """True if the subgroups can divide all rows."""
        chunks = self.chunks(self.width), self.chunks(self.query), self.chunks_of_down
        return max(chunks) <= self.threads // self.lanes

    @property
    def attends(self) -> bool:
        """True if the shader has rows of these sizes, and attention of heads of this one."""
        octets = self.dim // 8
        return (
            all(size % 32 == 0 for size in (self.width, self.query, self.ffn))
            and self.heads % self.kv_heads == 0
            and self.dim % 8 == 0
            and octets & (octets - 1) == 0
            and octets <= self.lanes
            and (2 + self.share) * self.dim // 4 <= self.threads
            and (1 + self.share) * self.dim // 2 <= self.threads
            and self.dim <= min(self.threads, MOST_PER_LANE * self.lanes)
            and max(self.width, self.query) <= 4 * MOST_READ * self.threads
        )

    @property
    def divides_experts(self) -> bool:
        """True if the shader has room for the experts' logits, and each subgroup's gated values are of one expert."""
        if not self.experts:
            return True
        warps, of_expert, of_group = self.threads // self.lanes, self.ffn // self.used, self.rows_of_group
        n_gated = of_group["G"] // (warps // self.chunks(self.width))
        n_down = -(-of_group["X"] // warps) * -(-self.ffn // 32 // self.lanes)
        return (
            self.experts <= min(self.threads, self.groups * warps)
            and max(n_gated, n_down) <= OF_EXPERTS
            and of_expert % 32 == 0
            and of_expert % n_gated == 0
            and 4 * self.experts * of_expert * self.width < MOST_BYTES  # as wide codes as any
        )

    @property
    def most_shared(self) -> int:
        """Heads of a workgroup that can read the same keys together where positions are many: two, or one."""
        teams, own = self.heads // 2, max(1, self.query // 4 // self.groups)
        parts = max(1, self.groups * 2 // self.heads)
        shares = (
            self.heads // self.kv_heads % 2 == 0
            and (self.groups % teams == 0 or self.groups < teams)
            and 3 * self.dim // 2 <= self.threads  # pairs of a key and two queries
            and self.query // 4 % self.groups == 0
            and (parts == 1 or (self.lanes % own == 0 and parts * own <= 4 * self.lanes))
        )
        return 2 if shares else 1

    @property
    def spilled_bytes(self) -> int:
        """Bytes of the buffer of the gated values of several rows, which each workgroup has of its own."""
        return self.groups * self.rows * self.ffn // 32 * 48 if self.rows > 1 else 0

    @property
    def shares_gated(self) -> bool:
        """True if the gated values of several rows are in shared memory."""
        return not self.spills and self.rows * self.ffn // 32 * 48 <= MOST_GATED

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory per workgroup."""
        return self._shared_bytes_of_rows if self.rows > 1 else self._shared_bytes_of_one

    @property
    def _shared_bytes_of_rows(self) -> int:
        query, of_group = self.query, self.rows_of_group
        warps, chunks, octets = self.threads // self.lanes, self.chunks(self.width), self.dim // 8
        of_products = chunks * (max(of_group["Q"] + 2 * of_group["K"], 2 * of_group["G"]) + 1)
        of_sums = (of_group["X"] + 1) * max(self.chunks(query), self.chunks(self.ffn))
        of_output = 2 * warps // chunks * AHEAD * chunks
        heads = min(self.share, max(1, self.lanes // octets)) * 9 * octets if self.share > 1 else self.dim
        partial = max(self.rows * max(of_products, of_sums, of_output), warps * heads)
        small = self.rows * (4 * warps + 28) + 8 * warps * self.share + 4 * (2 * self.rows + self.share) * self.dim
        columns = max(self.width, query, self.shares_gated * self.ffn)
        return self.rows * 48 * columns // 32 + 4 * partial + small

    @property
    def _shared_bytes_of_one(self) -> int:
        query, warps, of_group, octets = self.query, self.threads // self.lanes, self.rows_of_group, self.dim // 8
        chunks, of_output = self.chunks(self.width), -(-self.vocabulary // self.groups) + 1
        rows = chunks * (max(of_group["Q"] + 2 * of_group["K"], 2 * of_group["G"]) + 1)
        rows = max(rows, of_output * (1 if self.whole_output else chunks))
        sums = (of_group["X"] + 1) * max(self.chunks(query), self.chunks_of_down)
        heads = min(self.share, max(1, self.lanes // octets)) * 9 * octets if self.share > 1 else self.dim
        small = 16 * warps + 8 * warps * self.share + 4 * (3 + self.share) * self.dim
        small += 4 * (self.experts + 2 * self.used + warps * -(-self.experts // self.groups))
        return 48 * max(self.width, query, self.ffn) // 32 + 4 * max(rows, sums, warps * heads) + small + 64

    @property
    def act_words(self) -> int:
        """32-bit words of the buffer by which workgroups exchange values."""
        query, key = self.query, self.kv_heads * self.dim
        deep_parts = max(1, self.groups * self.share // self.heads) if self.share > 1 else 1  # of many positions
        parts = max(1, self.groups // self.heads, deep_parts)
        layer = 2 * (self.width // 4) + (query + 2 * key) // 4 + parts * (query // 4 + self.heads)
        layer += self.ffn // 8 + self.ffn // 16 + (query // 4 if deep_parts > 1 else 0) + self.experts
        return 4 * (self.rows * (self.layers * layer + self.width // 4) + self.groups)

    @property
    def computes_rows(self) -> bool:
        """True if the shader computes so many rows: one, or as many as have an invocation for each word of a head."""
        words, pairs = (2 + self.share) * self.dim // 4, self.dim // 2
        return self.rows == 1 or (self.takes_several and self.rows * max(words, pairs) <= self.threads)

    @property
    def takes_several(self) -> bool:
        """True if the shader for several tokens computes the model."""
        others = (self.experts, self.head_norms, self.biases, self.gelu, self.post_norms)
        return self.family in SEVERAL and not any((*others, self.soft_cap, self.logit_cap, self.window))


def _word(value: float) -> int:
    """Return the 32 bits of a number."""
    return int(np.float32(value).view(np.uint32)) if isinstance(value, float) else int(value)
