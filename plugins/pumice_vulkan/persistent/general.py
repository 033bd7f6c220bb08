"""The division of a token's work for models with any experts: the constants of shaders/persistent_general.glsl."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_
from typing import Any

from pumice.plugin import GGMLType, Weight, fixed
from pumice.plugin.unstable import Limits
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.division import GIVEN_TOGETHER, QUANTIZED_TOGETHER, Shape, shared_bytes
from pumice_vulkan.persistent.pattern import Decoder

TYPES = ("q4_0", "q4_k", "q6_k")  # in the order of the shader's numbers
FOUND_BY = "typed addresses"

THREADS, GROUPS, WARPS = 512, 128, 16  # most invocations of a workgroup, and workgroups, of GPUs; subgroups
UNITS, FEW_UNITS = 4, 2  # of a step: rows, and chunks of them
MOST_READ = 8  # words that an invocation polls at a time
MOST_PER_LANE = 8  # values of a head
MOST_BYTES = 1 << 32  # of a matrix, within which the shader counts bytes
READ_COST, SUM_COST, STEP_COST, SPLIT_COST = 0.2, 0.3, 0.5, 0.01
"""Costs beside a unit's product, in such products: reading x, sums of rows, pointers, parts of rows to be added."""


@dataclass(frozen=True)
class Split:
    """How a site's rows are divided among the subgroups of a workgroup: subgroups of a row, rows of a step."""

    subgroups: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """A compilation of the shader: with little code, since drivers compile all of it whatever the constants say.

    Attributes:
        types: types of matrices.
        units: units of a step.
        software: True for software devices.
    """

    types: tuple[str, ...]
    units: int
    software: bool = False

    def macros(self) -> dict[str, str | int]:
        chosen = ["FEW_UNITS"] if self.units == FEW_UNITS else []
        return dict.fromkeys(["GENERAL", *chosen, *(f"HAS_{type.upper()}" for type in self.types)], 1)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows that a step may have."""
        return (1, 2, 4)[: self.units.bit_length()]

    def suits(self, types: int, software: bool) -> bool:
        """Return True if it computes matrices of a mask of types."""
        mask = sum(1 << TYPES.index(type) for type in self.types)
        return types & ~mask == 0 and software == self.software


VARIANTS = {
    "q4_k_experts": Variant(("q4_k", "q6_k"), units=UNITS),
    "small": Variant(TYPES, units=FEW_UNITS, software=True),
}
"""Compilations by name: one for GPUs, and one for software devices, which tests use."""


def _variant(types: int, software: bool) -> str:
    return next((name for name, variant in VARIANTS.items() if variant.suits(types, software)), "")


@dataclass(frozen=True)
class General:
    """The constants of the shader for any shape, in the order of shaders/persistent_general_constants.glsl."""

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
    positions: int
    early: bool
    block_size: int
    share: int
    deep: int
    deep_positions: int
    with_others: bool
    biases: bool
    head_norms: bool
    experts: int
    used: int
    expert_ffn: int
    types_q: int
    types_k: int
    types_o: int
    types_g: int
    types_d: int
    types_l: int
    split_q: int
    split_o: int
    split_g: int
    split_d: int
    rows_q: int
    rows_k: int
    rows_o: int
    rows_g: int
    rows_d: int
    rows_l: int
    gelu: bool

    rows = 1  # tokens of a step
    found_by = FOUND_BY
    spilled_bytes = 0

    @property
    def constants(self) -> list[int]:
        """The specialization constants, by their numbers."""
        return [int(getattr(self, field.name)) for field in fields(self)]

    @property
    def kernel(self) -> str:
        types = self.types_q | self.types_k | self.types_o | self.types_g | self.types_d | self.types_l
        return f"persistent_general.{_variant(types, self.with_others)}"

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory per workgroup."""
        rows_q = self._fours(self.heads * self.dim) + 2 * self._fours(self.kv_heads * self.dim)
        gated = 2 * QUANTIZED_TOGETHER * _ceil(_ceil(self.ffn, QUANTIZED_TOGETHER), self.groups)
        products = max(self.split_q * (rows_q + 1), self.split_g * (gated + 1))
        sums = max(self.split_o, self.split_d) * (self._fours(self.width) + 1)
        return shared_bytes(self, max(products, sums, _ceil(self.vocabulary, self.groups)))

    def _fours(self, rows: int) -> int:
        """Return the rows of a workgroup, which come in fours."""
        return 4 * _ceil(rows // 4, self.groups)

    def divides(self) -> bool:
        """Return True if the shader computes these sizes."""
        return (
            attends(self)
            and self.kv_heads * self.dim % GIVEN_TOGETHER == 0
            and self.expert_ffn % 32 == 0
            and self.experts <= self.threads
            and self.experts <= self.groups * (self.threads // self.lanes)
            and self.vocabulary >= UNITS
        )


def attends(shape: General | Shape) -> bool:
    """Return True if the shader has rows of these sizes, and attention of heads of this one."""
    query, octets = shape.heads * shape.dim, shape.dim // 8
    return (
        all(size % 32 == 0 for size in (shape.width, query, shape.ffn))
        and shape.heads % shape.kv_heads == 0
        and shape.dim % 8 == 0
        and octets & (octets - 1) == 0
        and octets <= shape.lanes
        and (2 + shape.share) * shape.dim // 4 <= shape.threads
        and (1 + shape.share) * shape.dim // 2 <= shape.threads
        and shape.dim <= min(shape.threads, MOST_PER_LANE * shape.lanes)
        and max(shape.width, query) <= 4 * MOST_READ * shape.threads
    )


def plans(decoder: Decoder, limits: Limits, device: Device) -> Iterator[General]:
    """Yield the division of a decoder's tokens on a device; nothing if the shader does not compute them."""
    if "buffer_address" not in device.features or limits.kv_type != "f16":
        return
    model = _plan(decoder, limits, device)
    if model and model.divides() and model.shared_bytes <= device.threadgroup_memory_bytes:
        yield model


def _divided(sizes: Mapping[str, int], groups: int, lanes: int, warps: int, variant: Variant) -> dict[str, Any]:
    """Return how subgroups divide the products of a decoder: the fields ``split_*`` and ``rows_*`` of the shader."""
    width, query, ffn = sizes["width"], sizes["heads"] * sizes["dim"], sizes["ffn"]
    blocks, rows = width // 32, (query, sizes["kv_heads"] * sizes["dim"], width)
    of_q, of_k, of_x = (GIVEN_TOGETHER * _ceil(n // GIVEN_TOGETHER, groups) for n in rows)
    of_g = QUANTIZED_TOGETHER * _ceil(_ceil(ffn, QUANTIZED_TOGETHER), groups)
    q = _split(((of_q, blocks, 1), (of_k, blocks, 2)), lanes, warps, variant)
    o = _split(((of_x, query // 32, 1),), lanes, warps, variant)
    g = _split(((of_g, blocks, 2),), lanes, warps, variant)
    d = _split(((of_x, ffn // 32, 1),), lanes, warps, variant)
    output = _split(((_ceil(sizes["vocabulary"], groups), blocks, 1),), lanes, warps, variant, most=1)
    splits = {f"split_{name}": split.subgroups for name, split in {"q": q, "o": o, "g": g, "d": d}.items()}
    first_rows = {
        f"rows_{name}": split.rows[0] for name, split in {"q": q, "o": o, "g": g, "d": d, "l": output}.items()
    }
    return {**splits, **first_rows, "rows_k": q.rows[1]}


def _plan(decoder: Decoder, limits: Limits, device: Device) -> General | None:
    if not (decoder.is_regular and decoder.is_simple and decoder.sizes["experts"]) or not all(
        _fits(weight) for weight in _matrices(decoder)
    ):
        return None
    software, sizes = device.description.software, decoder.sizes
    lanes, groups = device.subgroup_size, 1 if software else GROUPS
    threads = min(THREADS, WARPS * lanes)
    width, heads, dim = sizes["width"], sizes["heads"], sizes["dim"]
    types: dict[str, Any] = {f"types_{name}": _mask(weights) for name, weights in _sites(decoder).items()}
    name = _variant(reduce(or_, types.values()), software)
    # Where an invocation reads two words of a row of x, GPUs' drivers spill registers, and dispatches are faster.
    if not name or (max(width, heads * dim) > 4 * threads and not software):
        return None
    return General(
        **{name: size for name, size in sizes.items() if name in General.__dataclass_fields__},
        threads=threads,
        lanes=lanes,
        groups=groups,
        positions=2 if dim <= 64 else 1,
        early=True,
        block_size=limits.block_size,
        share=share_of(heads, sizes["kv_heads"], dim, groups, lanes, threads),
        deep=8 if software else 512,
        deep_positions=2,
        with_others=software,
        expert_ffn=sizes["ffn"] // sizes["used"],
        **types,
        **_divided(sizes, groups, lanes, threads // lanes, VARIANTS[name]),
    )


def _split(segments: Sequence[tuple[int, int, int]], lanes: int, warps: int, variant: Variant, most: int = 0) -> Split:
    """Return the division of products that takes the least time.

    Args:
        segments: rows of a workgroup, blocks of a row, and how many matrices share the subgroups, of each product.
        lanes: invocations per subgroup.
        warps: subgroups per workgroup.
        variant: the shader's, which tells the units and rows of a step.
        most: most subgroups of a row (default: as many as leave two for each product).
    """

    def cost(split: int, segment: tuple[int, int, int], rows: int) -> float:
        of_group, blocks, matrices = segment
        n_batches = _ceil(_ceil(of_group, warps // split // matrices), rows)
        chunks = _ceil(_ceil(blocks, lanes), split)
        n_steps = n_batches * _ceil(chunks, variant.units // rows)
        return n_batches * (rows * chunks + chunks * READ_COST + SUM_COST) + n_steps * STEP_COST + SPLIT_COST * split

    best: tuple[float, Split] = (math.inf, Split(1, (1,) * len(segments)))
    split = 1
    while split <= (most or warps // 2):
        chosen = [min(variant.rows, key=lambda rows: cost(split, segment, rows)) for segment in segments]
        total = sum(cost(split, segment, rows) for segment, rows in zip(segments, chosen, strict=True))
        best = min(best, (total, Split(split, tuple(chosen))), key=lambda pair: pair[0])
        split *= 2
    return best[1]


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def share_of(heads: int, kv_heads: int, dim: int, groups: int, lanes: int, threads: int) -> int:
    """Return how many heads of a workgroup read the same keys together where positions are many: two, or one."""
    teams, own, octets = heads // 2, max(1, heads * dim // 4 // groups), dim // 8
    parts = max(1, groups * 2 // heads)
    shares = (
        heads // kv_heads % 2 == 0
        and (groups % teams == 0 or groups < teams)
        and 3 * dim // 2 <= threads  # pairs of a key and two queries
        and min(2, max(1, lanes // octets)) in (1, 2)
        and heads * dim // 4 % groups == 0
        and (parts == 1 or (lanes % own == 0 and parts * own <= 4 * lanes))
    )
    return 2 if shares else 1


def _sites(decoder: Decoder) -> dict[str, list[Weight]]:
    """Return the matrices of each site by the end of the name of its mask of types."""
    layers = decoder.layers
    return {
        "q": [layer.matrices[0] for layer in layers],
        "k": [weight for layer in layers for weight in layer.matrices[1:3]],
        "o": [layer.matrices[3] for layer in layers],
        "g": [weight for layer in layers for weight in layer.matrices[4:6]],
        "d": [layer.matrices[6] for layer in layers],
        "l": [decoder.output],
    }


def _matrices(decoder: Decoder) -> list[Weight]:
    return [weight for weights in _sites(decoder).values() for weight in weights]


def type_number(weight_type: GGMLType) -> int:
    """Return the shader's number of a type."""
    return TYPES.index(FORMATS[weight_type].name)


def _mask(weights: Sequence[Weight]) -> int:
    numbers = {type_number(weight.type) for weight in weights}
    return sum(1 << number for number in numbers)


def _fits(weight: Weight) -> bool:
    """Return True if a matrix has a type of the shader, whole planes, and few enough bytes."""
    if weight.type not in FORMATS or FORMATS[weight.type].name not in TYPES:
        return False
    *matrices, n_rows, n_columns = fixed(weight.shape)
    n_blocks = math.prod([*matrices, n_rows]) * n_columns // 32
    n_bytes = FORMATS[weight.type].matrix_bytes(math.prod([*matrices, n_rows]), n_columns)
    return n_columns % 32 == 0 and n_blocks % 8 == 0 and n_bytes < MOST_BYTES
