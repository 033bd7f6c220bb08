"""Dequantize checkpoints, whose ``quantization_config`` describes the layout of the weights.

Methods and layouts are those of the packages transformers (``fp8``, ``bitnet``, ``mxfp4``), GPTQModel (``gptq``),
compressed-tensors and modelopt, under their names in ``quant_method``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.convert.folder import HFConfig
from pumice.convert.lazy import LazyTensor
from pumice.errors import ConvertError
from pumice.gguf import GGMLType
from pumice.gguf.types import block_size

Tensors = dict[str, LazyTensor]
Array = NDArray[Any]
MXFP4_BLOCK = 32  # values per scale
WORD_BITS = 32  # of the integers that hold packed values


def dequantized(config: HFConfig, tensors: Tensors) -> Tensors:
    """Return dequantized tensors under their names without quantization. Raises ConvertError for unknown methods."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping) or quantization.get("quant_method") is None:
        return tensors
    method = quantization["quant_method"]
    if method not in METHODS:
        raise ConvertError(
            f"{config.path}: unknown quantization method {method!r}; only {', '.join(METHODS)} can be converted"
        )
    try:
        return METHODS[method](dict(quantization), tensors)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConvertError(f"{config.path}: the quantized tensors do not fit the method {method!r}: {error}") from None


def _scaled(tensors: Tensors, suffix: str, block: Sequence[int] | None, dropped: tuple[str, ...] = ()) -> Tensors:
    """Multiply weights by their scales, which have the weight's name with ``suffix``."""
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith((suffix, *dropped))}
    for name, scale in tensors.items():
        weight = name.removesuffix(suffix)
        if name.endswith(suffix) and weight in tensors:
            weights[weight] = times_scales(tensors[weight], scale, block)
    return weights


def times_scales(weight: LazyTensor, scale: LazyTensor, block: Sequence[int] | None) -> LazyTensor:
    """Multiply weights by one scale per row, or per block of ``block`` rows and columns."""

    def read() -> Array:
        numbers, scales = weight.read().astype(np.float32), scale.read().astype(np.float32)
        for axis, size in enumerate(block or (), scales.ndim - len(block or ())):
            scales = scales.repeat(size, axis)
        if block:
            scales = scales[tuple(slice(n) for n in numbers.shape)]
        return numbers * scales.reshape(*scales.shape, *(1,) * (numbers.ndim - scales.ndim))

    return LazyTensor(weight.shape, GGMLType.F32, read)


def _fp8(config: dict[str, Any], tensors: Tensors) -> Tensors:
    """Dequantize 8-bit floats with one scale per block (DeepSeek-V3, arXiv:2412.19437, section 3.3)."""
    return _scaled(tensors, "_scale_inv", config.get("weight_block_size"), ("activation_scale",))


def _modelopt(config: dict[str, Any], tensors: Tensors) -> Tensors:
    if "NVFP4" in str(config.get("quant_algo")):
        raise ValueError("NVFP4")
    return _scaled(tensors, "_scale", None, (".input_scale", ".k_scale", ".v_scale"))


def _bitnet(config: dict[str, Any], tensors: Tensors) -> Tensors:
    """Dequantize ternary weights: 2 bits each, four rows packed into one, divided by a scale."""
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(".weight_scale")}
    for name in tensors:
        weight = name.removesuffix("_scale")
        if name.endswith(".weight_scale"):
            weights[weight] = _ternary(tensors[weight], tensors[name])
    return weights


def _ternary(packed: LazyTensor, scale: LazyTensor) -> LazyTensor:
    shape = (4 * packed.shape[0], *packed.shape[1:])

    def read() -> Array:
        bits = np.stack([packed.read().astype(np.uint8) >> shift & 3 for shift in (0, 2, 4, 6)])
        return (bits.astype(np.float32) - 1).reshape(shape) / scale.read().astype(np.float32)

    return LazyTensor(shape, GGMLType.F32, read)


def _unpacked(words: Array, bits: int, axis: int) -> Array:
    """Unpack unsigned ``bits``-bit integers from 32-bit words, lowest bits first, along ``axis``."""
    shifts = np.arange(0, WORD_BITS - bits + 1, bits, dtype=np.uint32)
    parts = words.view(np.uint32)[..., None] >> shifts & ((1 << bits) - 1)
    parts = np.moveaxis(parts, -1, axis + 1)
    shape = list(words.shape)
    shape[axis] *= len(shifts)
    return parts.reshape(shape).astype(np.int32)


def _gptq(config: dict[str, Any], tensors: Tensors) -> Tensors:
    """Dequantize groups of columns with scale and zero point (Frantar et al. 2022, arXiv:2210.17323)."""
    bits = int(config["bits"])
    if WORD_BITS % bits:
        raise ValueError(f"unsupported width of {bits} bits")
    offset = 1 if config.get("checkpoint_format", "gptq") == "gptq" else 0  # subtracted from stored zero points
    parts = (".qweight", ".qzeros", ".scales", ".g_idx")
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(parts)}
    for name in tensors:
        if name.endswith(".qweight"):
            base = name.removesuffix(".qweight")
            weights[f"{base}.weight"] = _grouped([tensors[f"{base}{part}"] for part in parts], bits, offset)
    return weights


def _grouped(parts: Sequence[LazyTensor], bits: int, offset: int) -> LazyTensor:
    weight, zeros, scales, groups = parts
    shape = (weight.shape[1], weight.shape[0] * (WORD_BITS // bits))

    def read() -> Array:
        group = groups.read().astype(np.int64)
        numbers = _unpacked(weight.read(), bits, 0) - (_unpacked(zeros.read(), bits, 1) + offset)[group]
        return np.ascontiguousarray((scales.read().astype(np.float32)[group] * numbers.astype(np.float32)).T)

    return LazyTensor(shape, GGMLType.F32, read)


def _compressed(config: dict[str, Any], tensors: Tensors) -> Tensors:
    groups = list(config["config_groups"].values())
    layout, weights = config["format"], groups[0]["weights"]
    if len(groups) > 1:
        raise ValueError("several config_groups are not supported")
    if layout in ("float-quantized", "int-quantized", "naive-quantized"):
        return _scaled(tensors, "_scale", weights.get("block_structure"), (".input_scale", ".k_scale", ".v_scale"))
    if layout != "pack-quantized" or weights.get("strategy") != "group":
        raise ValueError(f"unsupported format {layout!r}")
    bits, size = int(weights["num_bits"]), int(weights["group_size"])
    parts = ("_packed", "_scale", "_shape", "_zero_point")
    unpacked = {
        name: tensor for name, tensor in tensors.items() if not name.endswith(tuple(f".weight{p}" for p in parts))
    }
    for name in tensors:
        if name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            unpacked[base] = _packed([tensors.get(f"{base}{part}") for part in parts], bits, size)
    return unpacked


def _packed(parts: Sequence[LazyTensor | None], bits: int, size: int) -> LazyTensor:
    """Dequantize integers packed along rows, with one scale per group; zero points are packed along columns."""
    packed, scale, stored_shape, zero = parts
    if packed is None or scale is None or stored_shape is None:
        raise ValueError("scales or shapes are missing")
    n_row, n_column = (int(n) for n in stored_shape.read())

    def read() -> Array:
        numbers = _unpacked(packed.read(), bits, 1)[:, :n_column].reshape(n_row, -1, size)
        offset: Any = 1 << (bits - 1)
        if zero is not None:
            offset = _unpacked(zero.read(), bits, 0)[:n_row, :, None]
        values = (numbers - offset).astype(np.float32) * scale.read().astype(np.float32)[..., None]
        return values.reshape(n_row, n_column)

    return LazyTensor((n_row, n_column), GGMLType.F32, read)


def _as_stored(config: dict[str, Any], tensors: Tensors) -> Tensors:
    """Keep blocks and scales as stored; a family's conversion joins them by `mxfp4`."""
    return tensors


def mxfp4(blocks: LazyTensor, scales: LazyTensor) -> LazyTensor:
    """Join codes and exponents to GGUF's MXFP4 blocks (OCP Microscaling Formats 1.0).

    A block is the exponent and 16 bytes, with the first 16 values in the lower halves.

    Args:
        blocks: [..., n, 16], two values per byte, those with even index in the lower halves.
        scales: [..., n], biased exponents.
    """
    *rows, n_block, _ = blocks.shape

    def read() -> NDArray[np.uint8]:
        codes = blocks.read().astype(np.uint8, copy=False)
        numbers = np.stack([codes & 15, codes >> 4], -1).reshape(*rows, n_block, MXFP4_BLOCK)
        halves = numbers[..., : MXFP4_BLOCK // 2] | numbers[..., MXFP4_BLOCK // 2 :] << 4
        joined = np.concatenate([scales.read().astype(np.uint8, copy=False)[..., None], halves], -1)
        return joined.reshape(*rows, -1)

    return LazyTensor((*rows, n_block * MXFP4_BLOCK), GGMLType.MXFP4, read)


def q8_0(weight: LazyTensor) -> LazyTensor:
    """Quantize to Q8_0, rounded like the package ``gguf``; unchanged if the row length is no multiple of a block."""
    if weight.shape[-1] % block_size(GGMLType.Q8_0):
        return weight

    def read() -> Array:
        import gguf

        values = np.ascontiguousarray(weight.read(), np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)

    return LazyTensor(weight.shape, GGMLType.Q8_0, read)


METHODS: dict[str, Callable[[dict[str, Any], Tensors], Tensors]] = {
    "bitnet": _bitnet,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _as_stored,
}
"""Dequantization function by ``quant_method``."""
