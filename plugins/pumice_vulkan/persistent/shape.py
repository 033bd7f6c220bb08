"""The shapes of a model that shaders/persistent.comp computes on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pumice.plugin import Weight
from pumice.plugin.unstable import Limits
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.division import CONSTANTS, Shape
from pumice_vulkan.persistent.families import FAMILIES
from pumice_vulkan.persistent.pattern import MATRICES, Decoder


def shapes(decoder: Decoder, limits: Limits, device: Device, rows: int = 1) -> Iterator[Shape]:
    """Yield the shapes to try.

    Args:
        decoder: the model.
        limits: the program's limits.
        device: the device.
        rows: tokens of a step.
    """
    if not decoder.is_regular or limits.kv_type != "f16":
        return
    room, sizes = device.threadgroup_memory_bytes, decoder.sizes
    model = {**sizes, "lanes": device.subgroup_size, "block_size": limits.block_size}
    types = [[_name(weight) for weight in layer.matrices] for layer in decoder.layers]
    for name, family in FAMILIES.items():
        if _name(decoder.output) != family.output or not all(_suits(row, family) for row in types):
            continue
        if model["lanes"] != family.lanes or bool(family.experts) != bool(sizes["experts"]):
            continue
        for shape in _divisions(replace(family, family=name, rows=rows), model):
            fits = replace(shape, spills=rows > 1 and shape.shared_bytes > room)
            if fits.computes_rows and fits.shared_bytes <= room:
                yield fits
                break


def _divisions(family: Shape, model: Mapping[str, Any]) -> Iterator[Shape]:
    """Yield divisions of a model's work, the fastest first."""
    shape = replace(family, **{field: size for field, size in model.items() if field in CONSTANTS})
    shape = replace(shape, share=shape.most_shared, positions=2 if shape.dim <= 64 else 1)
    if shape.attends and shape.divides_rows and shape.divides_experts:
        yield shape
        if shape.rows == 1:
            yield replace(shape, whole_output=True)


def computes(decoder: Decoder, limits: Limits, device: Device) -> bool:
    """Return True if a device has a shape to try, as ``shapes`` yields them."""
    return any(True for _ in shapes(decoder, limits, device))


def _suits(types: Sequence[str], family: Shape) -> bool:
    """Return True if a family's layers may have matrices of these types."""
    return all(name in family.types_of(matrix) for matrix, name in zip(MATRICES, types, strict=True))


def _name(weight: Weight) -> str:
    return FORMATS[weight.type].name if weight.type in FORMATS else ""
