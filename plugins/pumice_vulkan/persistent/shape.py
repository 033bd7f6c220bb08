"""Specialization constants of shaders/persistent.comp: a model's shapes, and the division of work over a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pumice.plugin import Limits, Weight, fixed
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.pattern import FOUR_BITS, SIX_BITS, Decoder

MOST_GROUPS = 128  # workgroups of the largest devices, one per processor
LEAST_GROUPS = 16
THREADS = 512  # invocations per workgroup, of which a processor holds at least one
MAYBE_SIX = (2, 6)  # matrices that may have six bits in some layers: values and down
QUANTIZED_TOGETHER = 16  # gated values with a scale, all of one workgroup


@dataclass(frozen=True)
class Shape:
    """The constants in the order of the shader."""

    threads: int
    lanes: int
    groups: int
    ahead: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    dim: int
    ffn: int
    vocabulary: int
    has_minimum: bool  # of blocks with four bits
    mixed: bool
    output_six: bool
    two_buffers: bool
    positions: int  # of an invocation at a time, in attention
    early: bool
    block_size: int

    @property
    def constants(self) -> list[int]:
        return [int(getattr(self, name)) for name in self.__dataclass_fields__]

    @property
    def parts(self) -> int:
        return max(1, self.groups // self.heads)

    @property
    def act_words(self) -> int:
        """Words of the exchange between workgroups; the regions of the shader, 16 bytes each."""
        query, key = self.heads * self.dim, self.kv_heads * self.dim
        layer = 2 * (self.width // 4) + (query + 2 * key) // 4 + self.parts * (query // 4 + self.heads)
        layer += self.ffn // 8 + self.ffn // 16
        return 4 * (self.layers * layer + self.width // 4 + self.groups)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory per workgroup."""
        query, chunk, warps = self.heads * self.dim, 32 * self.lanes, self.threads // self.lanes
        rows_q = (query + 2 * self.kv_heads * self.dim) // self.groups
        rows = max(rows_q, 2 * self.ffn // self.groups, -(-self.vocabulary // self.groups)) + 1
        of_x = (self.width // self.groups + 1) * max(query // chunk, self.ffn // chunk)
        partial = max(rows * (self.width // chunk), of_x, warps * self.dim)
        return 48 * max(self.width, query, self.ffn) // 32 + 4 * partial + 12 * warps + 12 * self.dim + 64

    @property
    def n_units(self) -> int:
        """Units of weights that a subgroup multiplies per layer."""
        query, key, warps = self.heads * self.dim, self.kv_heads * self.dim, self.threads // self.lanes

        def units(rows: int, columns: int) -> int:
            return -(-(rows // self.groups) // (warps // (columns // (32 * self.lanes))))

        narrow = (query, key, key, self.ffn, self.ffn)
        wide = units(self.width, query) + units(self.width, self.ffn)
        return sum(units(rows, self.width) for rows in narrow) + wide

    def divides(self) -> bool:
        """Return True if every matrix divides into whole parts of subgroups and workgroups."""
        query, key, chunk = self.heads * self.dim, self.kv_heads * self.dim, 32 * self.lanes
        warps = self.threads // self.lanes
        columns = (self.width, query, self.ffn)
        octets = self.dim // 8
        return (
            all(size % chunk == 0 and size // chunk <= warps for size in columns)
            and all(size % (4 * self.groups) == 0 for size in (query, key, self.width))
            and self.ffn % (QUANTIZED_TOGETHER * self.groups) == 0
            and (self.groups % self.heads == 0 or self.groups < self.heads)
            and self.heads % self.kv_heads == 0
            and self.dim % 8 == 0
            and octets & (octets - 1) == 0
            and octets <= self.lanes
            and 3 * self.dim // 4 <= self.threads  # an invocation for each part of query, key and value
            and self.ahead <= self.n_units
        )


def shapes(decoder: Decoder, limits: Limits, device: Device, two_buffers: bool) -> Iterator[Shape]:
    """Yield the shapes to try, the fastest first; none if the shader does not support the model."""
    four, six, output = _formats(decoder)
    first = decoder.layers[0]
    q, k, *_ = first.matrices
    dim = int(first.attention.inputs["q"].shape[-1])
    (n_query, width), (n_key, _), (vocabulary, _) = fixed(q.shape), fixed(k.shape), fixed(decoder.output.shape)
    ffn = fixed(first.matrices[4].shape)[0]
    software = device.description.software
    if not four or limits.kv_type != "f16" or not _are_alike(decoder):
        return
    model = Shape(
        threads=THREADS,
        lanes=device.subgroup_size,
        groups=1,
        ahead=8 if width <= 2048 else 4,
        layers=len(decoder.layers),
        width=width,
        heads=n_query // dim,
        kv_heads=n_key // dim,
        dim=dim,
        ffn=ffn,
        vocabulary=vocabulary,
        has_minimum=four == "q4_k",
        mixed=six,
        output_six=output == SIX_BITS,
        two_buffers=two_buffers,
        positions=2 if dim <= 64 else 4,
        early=True,
        block_size=limits.block_size,
    )
    groups = 1 if software else MOST_GROUPS
    while groups >= (1 if software else LEAST_GROUPS):
        shape = replace(model, groups=groups)
        if shape.divides() and shape.shared_bytes <= device.threadgroup_memory_bytes:
            yield shape
        groups //= 2


def _formats(decoder: Decoder) -> tuple[str, bool, str]:
    """Return the type of four bits ("" if other types occur), whether some layers have six, and the output's type."""
    names = set()
    six = False
    for layer in decoder.layers:
        for index, weight in enumerate(layer.matrices):
            name = _name(weight)
            if name == SIX_BITS and index in MAYBE_SIX:
                six = True
            else:
                names.add(name)
    output = _name(decoder.output)
    four = names.pop() if len(names) == 1 else ""
    supported = four in FOUR_BITS and output in (four, SIX_BITS)
    return (four if supported else ""), six, output


def _name(weight: Weight) -> str:
    return FORMATS[weight.type].name if weight.type in FORMATS else ""


def _are_alike(decoder: Decoder) -> bool:
    """Return True if all layers have the same shapes, positions and constants."""

    def form(index: int) -> object:
        layer = decoder.layers[index]
        attention, rope, state = layer.attention, layer.rope, layer.state
        shapes = [weight.shape for weight in layer.matrices]
        positions = (rope.attrs["freqs"], rope.attrs["neox"], rope.attrs["magnitude"])
        return shapes, positions, attention.attrs["scale"], attention.inputs["q"].shape, state.k_dim, state.v_dim

    eps = {value for layer in decoder.layers for value in layer.eps} | {decoder.eps}
    state = decoder.layers[0].state
    return len(eps) == 1 and state.k_dim == state.v_dim and all(form(i) == form(0) for i in range(len(decoder.layers)))
