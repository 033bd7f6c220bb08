"""Blocks to numbers: as ggml's own code computes them (fixture), and as the gguf package does."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from pumice.gguf import GGMLType, block_size, dequantize, quantize, quants, row_bytes, type_size

WRITABLE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]


@pytest.fixture(scope="module")
def ggml() -> Mapping[str, NDArray[np.generic]]:
    """Made by tests/make_fixtures/ggml_blocks.py."""
    with np.load(Path(__file__).parents[2] / "fixtures" / "ggml_blocks.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("type", GGMLType, ids=lambda type: type.name)
def test_same_bits_as_ggml(ggml: Mapping[str, NDArray[np.uint8]], type: GGMLType) -> None:
    blocks, expected = ggml[f"{type.name}.blocks"], ggml[f"{type.name}.numbers"]
    assert blocks.shape[1:] == (type_size(type),)
    assert expected.shape[1:] == (block_size(type),)
    numbers = dequantize(blocks, type)
    assert numbers.dtype == np.float32
    assert np.array_equal(numbers.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("type", GGMLType, ids=lambda type: type.name)
def test_any_bytes_and_shape(type: GGMLType, recwarn: pytest.WarningsRecorder) -> None:
    """Many chunks, three dimensions, not contiguous, with every byte pattern: the gguf package's numbers."""
    n = 4 * block_size(type)
    data = np.random.default_rng(0).integers(0, 256, (2, 7, 2 * row_bytes(type, n)), np.uint8)
    data = data[..., : row_bytes(type, n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quants, "CHUNK", 3 * block_size(type))
        numbers = dequantize(data, type)
    assert numbers.shape == (2, 7, n)
    assert not recwarn.list
    try:
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(np.ascontiguousarray(data), type)
    except (NotImplementedError, KeyError):
        expected = dequantize(data, type)
    assert np.array_equal(numbers, expected, equal_nan=True)


@pytest.mark.parametrize("name", WRITABLE)
def test_quantize(name: str) -> None:
    type = GGMLType[name]
    values = np.random.default_rng(1).standard_normal((3, 2, 512)).astype(np.float32)
    packed = quantize(values, type)
    assert packed.dtype == np.uint8
    assert packed.shape == (3, 2, row_bytes(type, 512))
    assert packed.tobytes() == gguf.quants.quantize(values, type).tobytes()
    assert dequantize(packed, type).shape == values.shape


def test_same_bytes_as_ggml_writes(ggml: Mapping[str, NDArray[np.generic]]) -> None:
    """The types that the gguf package does not write."""
    names = [key.removesuffix(".written") for key in ggml if key.endswith(".written")]
    assert names
    for name in names:
        packed = quantize(ggml[f"{name}.values"].astype(np.float32), GGMLType[name])
        assert np.array_equal(packed, ggml[f"{name}.written"]), name


def test_wrong_sizes_and_types() -> None:
    with pytest.raises(ValueError, match="whole Q4_0 blocks of 18 bytes"):
        dequantize(np.zeros((2, 19), np.uint8), GGMLType.Q4_0)
    with pytest.raises(ValueError, match="a row of 33 is not a whole number of Q4_0 blocks of 32"):
        quantize(np.zeros((1, 33), np.float32), GGMLType.Q4_0)
    with pytest.raises(ValueError, match="quantizing to IQ1_S is not supported"):
        quantize(np.zeros((1, 256), np.float32), GGMLType.IQ1_S)
