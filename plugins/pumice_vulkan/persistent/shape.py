"""The shapes of a model that shaders/persistent.comp computes on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pumice.plugin import Weight
from pumice.plugin.unstable import Limits
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.division import OPEN, Shape
from pumice_vulkan.persistent.families import FAMILIES, OPEN_FAMILIES
from pumice_vulkan.persistent.general import General, attends, plans, share_of
from pumice_vulkan.persistent.pattern import MATRICES, Decoder

OPEN_ARE_TAKEN = False  # open families, where there is no other
OPEN_ARE_FIRST = False  # before others
"""What bench/vulkan_choices.py compares, as no GPU has timed open families."""


def shapes(decoder: Decoder, limits: Limits, device: Device, rows: int = 1) -> Iterator[Shape | General]:
    """Yield the shapes to try: those of a family, or those of the shader for any shape, which has one row.

    Args:
        decoder: the model.
        limits: the program's limits.
        device: the device.
        rows: tokens of a step.
    """
    has_family = decoder.is_regular and limits.kv_type == "f16"
    chosen: list[Shape | General] = []
    if has_family:
        chosen += _shapes_of_families(decoder, limits, device, rows)
    if not chosen and rows == 1:
        chosen += plans(decoder, limits, device)
    if has_family and rows == 1 and (OPEN_ARE_FIRST or (OPEN_ARE_TAKEN and not chosen)):
        chosen = [*_open_shapes(decoder, limits, device), *chosen]
    yield from chosen


def _shapes_of_families(decoder: Decoder, limits: Limits, device: Device, rows: int) -> Iterator[Shape]:
    room, sizes = device.threadgroup_memory_bytes, decoder.sizes
    model = {**sizes, "lanes": device.subgroup_size, "block_size": limits.block_size}
    types = [[_name(weight) for weight in layer.matrices] for layer in decoder.layers]
    for name, family in FAMILIES.items():
        shape = family.of_rows(rows)
        if _name(decoder.output) != family.output or not all(_suits(row, family) for row in types):
            continue
        if any(getattr(shape, field) != value for field, value in model.items() if field not in family.varying):
            continue
        shape = replace(shape, family=name, layers=sizes["layers"], vocabulary=sizes["vocabulary"])
        shape = replace(shape, spills=rows > 1 and shape.shared_bytes > room)
        if shape.computes_rows and shape.shared_bytes <= room:
            yield shape


def _open_shapes(decoder: Decoder, limits: Limits, device: Device) -> Iterator[Shape]:
    sizes = decoder.sizes
    if any(size for field, size in sizes.items() if field not in OPEN):
        return
    types = [[_name(weight) for weight in layer.matrices] for layer in decoder.layers]
    for name, family in OPEN_FAMILIES.items():
        if device.subgroup_size != family.lanes or _name(decoder.output) != family.output:
            continue
        share = share_of(sizes["heads"], sizes["kv_heads"], sizes["dim"], family.groups, family.lanes, family.threads)
        positions = 2 if sizes["dim"] <= 64 else 1
        shape = replace(family, family=name, **{field: size for field, size in sizes.items() if field in OPEN})
        shape = replace(shape, share=share, positions=positions, block_size=limits.block_size)
        room = device.threadgroup_memory_bytes
        divides = attends(shape) and shape.divides_rows and shape.shared_bytes <= room
        if divides and all(_suits(row, family) for row in types):
            yield shape


def computes(decoder: Decoder, limits: Limits, device: Device) -> bool:
    """Return True if a device has a shape to try, as ``shapes`` yields them."""
    return any(True for _ in shapes(decoder, limits, device))


def _suits(types: Sequence[str], family: Shape) -> bool:
    """Return True if a family's layers may have matrices of these types."""
    return all(name in family.types_of(matrix) for matrix, name in zip(MATRICES, types, strict=True))


def _name(weight: Weight) -> str:
    return FORMATS[weight.type].name if weight.type in FORMATS else ""
