"""The shapes of a model that shaders/persistent.comp computes on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pumice.plugin import Weight, fixed
from pumice.plugin.unstable import Limits
from pumice_vulkan.device import Device
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.persistent.division import Shape
from pumice_vulkan.persistent.families import FAMILIES
from pumice_vulkan.persistent.general import General, plans
from pumice_vulkan.persistent.pattern import FOUR_BITS, SIX_BITS, Decoder

THREADS = 512  # invocations per workgroup, of which a processor holds at least one
DEEP = 8  # positions of software devices from which heads with the same keys share them: few, for tests
MAYBE_SIX = (2, 6)  # matrices that may have six bits in some layers: values and down


def shapes(
    decoder: Decoder, limits: Limits, device: Device, two_buffers: bool, rows: int = 1
) -> Iterator[Shape | General]:
    """Yield the shapes to try: those of a family, or those of the shader for any shape, which has one row.

    Args:
        decoder: the model.
        limits: the program's limits.
        device: the device.
        two_buffers: True if the weights lie in two buffers.
        rows: tokens of a step.
    """
    of_family = False
    for shape in _shapes_of_families(decoder, limits, device, two_buffers, rows):
        of_family = True
        yield shape
    if not of_family and rows == 1:
        yield from plans(decoder, limits, device)


def _shapes_of_families(
    decoder: Decoder, limits: Limits, device: Device, two_buffers: bool, rows: int
) -> Iterator[Shape]:
    """Yield the shapes of families, and on software devices that of any llama."""
    model = _shape_of(decoder, limits, device, two_buffers, rows) if decoder.is_plain else None
    if model is None:
        return
    candidates = [divided for family in FAMILIES.values() if (divided := _divided_as(model, family)).is_of(family)]
    if device.description.software and not model.experts and not model.head_norms:
        candidates.append(model)
    for candidate in candidates:
        with_gated = candidate.rows == 1 or candidate.shared_bytes <= device.threadgroup_memory_bytes
        shape = replace(candidate, spills=not with_gated)
        if shape.divides() and shape.shared_bytes <= device.threadgroup_memory_bytes:
            yield shape


def _shape_of(decoder: Decoder, limits: Limits, device: Device, two_buffers: bool, rows: int) -> Shape | None:
    """Return a model's shape before a family decides its part; None if no shader computes the model."""
    four, six, output = _formats(decoder)
    first = decoder.layers[0]
    q, k, *_ = first.matrices
    dim = int(first.attention.inputs["q"].shape[-1])
    (n_query, width), (n_key, _), (vocabulary, _) = fixed(q.shape), fixed(k.shape), fixed(decoder.output.shape)
    *_, ffn, _ = fixed(first.matrices[4].shape)
    if not four or limits.kv_type != "f16" or not decoder.is_regular:
        return None
    return Shape(
        threads=THREADS,
        lanes=device.subgroup_size,
        groups=1,
        ahead=8 if width <= 2048 else 4,
        layers=len(decoder.layers),
        width=width,
        heads=n_query // dim,
        kv_heads=n_key // dim,
        dim=dim,
        ffn=ffn * max(first.block.used, 1),
        vocabulary=vocabulary,
        has_minimum=four == "q4_k",
        mixed=six,
        output_six=output == SIX_BITS,
        two_buffers=two_buffers,
        positions=2 if dim <= 64 else 4,
        early=True,
        block_size=limits.block_size,
        share=n_query // n_key,
        deep=DEEP,
        deep_positions=2,
        experts=fixed(first.block.router.shape)[0] if first.block.router is not None else 0,
        used=first.block.used,
        head_norms=bool(first.head_norms),
        rows=rows,
    )


def computes(decoder: Decoder, limits: Limits, device: Device) -> bool:
    """Return True if a device has a shape to try, as ``shapes`` yields them."""
    return any(True for _ in shapes(decoder, limits, device, False))


def kernel_of(shape: Shape | General) -> str:
    """Return the variant of the shader for a shape."""
    if isinstance(shape, General):
        return shape.kernel
    names = [name for name, family in FAMILIES.items() if shape.is_of(family)]
    kernel = "persistent" if shape.rows == 1 else "persistent_tokens"
    return f"{kernel}.{names[0]}" if names else f"{kernel}_rolled"


def _divided_as(model: Shape, shape: Shape) -> Shape:
    """Return a model's shape with what a family decides for itself."""
    return replace(
        model,
        threads=shape.threads,
        groups=shape.groups,
        ahead=shape.of_rows(model.rows).ahead,
        positions=shape.positions,
        share=shape.share,
        deep=shape.deep,
        deep_positions=shape.deep_positions,
        found_by=shape.found_by,
        two_buffers=model.two_buffers and shape.found_by != "addresses",
    )


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
