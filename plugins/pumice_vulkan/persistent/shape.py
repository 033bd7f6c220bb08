"""The shapes of a model that shaders/persistent.comp computes on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pumice.plugin import Weight
from pumice.plugin.unstable import Limits
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.division import Shape
from pumice_vulkan.persistent.families import FAMILIES
from pumice_vulkan.persistent.general import General, plans
from pumice_vulkan.persistent.pattern import MATRICES, Decoder


def shapes(decoder: Decoder, limits: Limits, device: Device, rows: int = 1) -> Iterator[Shape | General]:
    """Yield the shapes to try: those of a family, or those of the shader for any shape, which has one row.

    Args:
        decoder: the model.
        limits: the program's limits.
        device: the device.
        rows: tokens of a step.
    """
    has_family = decoder.is_regular and not decoder.layers[0].biases and limits.kv_type == "f16"
    of_families = list(_shapes_of_families(decoder, limits, device, rows)) if has_family else []
    yield from of_families
    if not of_families and rows == 1:
        yield from plans(decoder, limits, device)


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


def computes(decoder: Decoder, limits: Limits, device: Device) -> bool:
    """Return True if a device has a shape to try, as ``shapes`` yields them."""
    return any(True for _ in shapes(decoder, limits, device))


def _suits(types: Sequence[str], family: Shape) -> bool:
    """Return True if a family's layers may have matrices of these types."""
    return all(name in family.types_of(matrix) for matrix, name in zip(MATRICES, types, strict=True))


def _name(weight: Weight) -> str:
    return FORMATS[weight.type].name if weight.type in FORMATS else ""
