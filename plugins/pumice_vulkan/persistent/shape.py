"""The shapes of a model that shaders/persistent.comp computes on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pumice.plugin import Weight, fixed
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
    model, room = _sizes(decoder, limits, device), device.threadgroup_memory_bytes
    types = [[_name(weight) for weight in layer.matrices] for layer in decoder.layers]
    for name, family in FAMILIES.items():
        shape = family.of_rows(rows)
        if _name(decoder.output) != family.output or not all(_suits(row, family) for row in types):
            continue
        if any(getattr(shape, field) != value for field, value in model.items() if field not in family.varying):
            continue
        shape = replace(shape, family=name, layers=model["layers"], vocabulary=model["vocabulary"])
        shape = replace(shape, spills=rows > 1 and shape.shared_bytes > room)
        if shape.computes_rows and shape.shared_bytes <= room:
            yield shape


def _sizes(decoder: Decoder, limits: Limits, device: Device) -> dict[str, Any]:
    """Return the fields of a shape that a model, its cache and its device decide, but for types."""
    first, windowed = decoder.layers[0], decoder.windowed
    q, k, *_ = first.matrices
    dim = int(first.attention.inputs["q"].shape[-1])
    (n_query, width), (n_key, _), (vocabulary, _) = fixed(q.shape), fixed(k.shape), fixed(decoder.output.shape)
    *_, ffn, _ = fixed(first.matrices[4].shape)
    return {
        "lanes": device.subgroup_size,
        "layers": len(decoder.layers),
        "width": width,
        "heads": n_query // dim,
        "kv_heads": n_key // dim,
        "dim": dim,
        "ffn": ffn * max(first.block.used, 1),
        "vocabulary": vocabulary,
        "block_size": limits.block_size,
        "experts": fixed(first.block.router.shape)[0] if first.block.router is not None else 0,
        "used": first.block.used,
        "head_norms": bool(first.head_norms),
        "gelu": first.block.activation == "gelu",
        "post_norms": bool(first.post_norms),
        "soft_cap": first.soft_cap,
        "logit_cap": decoder.logit_cap,
        "window": windowed.window if windowed else 0,
    }


def computes(decoder: Decoder, limits: Limits, device: Device) -> bool:
    """Return True if a device has a shape to try, as ``shapes`` yields them."""
    return any(True for _ in shapes(decoder, limits, device))


def _suits(types: Sequence[str], family: Shape) -> bool:
    """Return True if a family's layers may have matrices of these types."""
    return all(name in family.types_of(matrix) for matrix, name in zip(MATRICES, types, strict=True))


def _name(weight: Weight) -> str:
    return FORMATS[weight.type].name if weight.type in FORMATS else ""
