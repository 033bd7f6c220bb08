"""Metal kernels, compiled as C++ (metal_emulator.py), against the core's decoder."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("mlx.core")
import mlx.core as mx

from metal_emulator import compiler, metal_kernel
from pumice.gguf import GGMLType, GGUFTensor, block_size, dequantize
from pumice.graph import GraphBuilder
from pumice_mlx import iq_kernels, metal, weights
from pumice_mlx.ops import mul_mat_id
from pumice_mlx.weights import Quantized, Stored, Weights, matrix_bytes
from quantizers import quantize
from random_weights import random_rows

TYPES = list(iq_kernels.OCTETS)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    compiler()
    folder: Path = tmp_path_factory.mktemp("kernels")
    caches = iq_kernels.kernels_for, metal.product_for, metal._kernel
    for cache in caches:
        cache.cache_clear()
    with (
        mock.patch.object(mx.metal, "is_available", return_value=True),
        mock.patch.object(iq_kernels, "is_gpu", return_value=True),
        mock.patch.object(metal, "is_gpu", return_value=True),
        mock.patch.object(mx.fast, "metal_kernel", metal_kernel(folder)),
    ):
        yield
    for cache in caches:
        cache.cache_clear()


def stored(type: GGMLType, *shape: int) -> tuple[GGUFTensor, np.ndarray]:
    rows = random_rows(np.random.default_rng(shape), type.name, int(np.prod(shape[:-1])), shape[-1])
    tensor = GGUFTensor("w", type, shape, 0, rows.nbytes, rows.tobytes())
    return tensor, dequantize(rows, type).reshape(shape)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_products_and_rows(type: GGMLType) -> None:
    rng = np.random.default_rng(0)
    for shape in ((38, 256), (5, 1536), (130, block_size(type) * 3)):
        tensor, numbers = stored(type, *shape)
        weight = GraphBuilder({"w": tensor}, 1, 64).weight("w")
        matrix = Weights(mx.float32).matrix(weight)
        assert isinstance(matrix, Stored)
        assert matrix.nbytes == matrix_bytes(weight, mx.float32) == weight.data.nbytes
        for n in (0, 1, 3, iq_kernels.MOST_ROWS, iq_kernels.MOST_ROWS + 1):
            x = rng.standard_normal((n, shape[1])).astype(np.float32)
            expected = x @ numbers.T
            size = float(np.abs(numbers).sum(1).max())
            np.testing.assert_allclose(np.array(matrix.product(mx.array(x))), expected, rtol=1e-5, atol=1e-6 * size)
        ids = np.array([[2, 0], [4, 4]])
        np.testing.assert_array_equal(np.array(matrix.rows(mx.array(ids))), numbers[ids])
        assert matrix.rows(mx.array(ids[:0])).shape == (0, 2, shape[1])


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("n", [2, 3])
def test_activations_of_float16_are_rounded(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a kernel, and for numbers of which a part of the rows is decoded at a time."""
    monkeypatch.setattr(weights, "CHUNK", 5 * 512)
    tensor, numbers = stored(GGMLType.IQ3_S, 12, 512)
    matrix = Weights(mx.float16).matrix(GraphBuilder({"w": tensor}, 1, 64).weight("w"))
    x = np.random.default_rng(0).standard_normal((3, n, 512)).astype(np.float32)
    expected = x.astype(np.float16).astype(np.float32) @ numbers.T
    largest = float(np.abs(expected).max())
    np.testing.assert_allclose(np.array(matrix.product(mx.array(x))), expected, rtol=0, atol=2e-3 * largest)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("type", [GGMLType.IQ2_XXS, GGMLType.IQ1_M, GGMLType.IQ4_NL], ids=lambda type: type.name)
def test_experts(type: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    """For few tokens, whose pairs decode their matrices, and for many, which share decoded rows of all experts."""
    monkeypatch.setattr(weights, "CHUNK", 4 * 3 * 512)  # of which a part of the rows is decoded at a time
    tensor, numbers = stored(type, 3, 10, 512)
    weight = GraphBuilder({"w": tensor}, 1, 64).weight("w")
    matrix = Weights(mx.float32).matrix(weight)
    assert isinstance(matrix, Stored)
    assert matrix.nbytes == matrix_bytes(weight, mx.float32)
    rng = np.random.default_rng(0)
    close = {"rtol": 1e-5, "atol": 1e-6 * float(np.abs(numbers).sum(2).max())}
    for n_tokens, own in ((0, True), (1, True), (5, False), (iq_kernels.MOST_PAIRS, False), (600, True)):
        x = rng.standard_normal((n_tokens, 2 if own else 1, 512)).astype(np.float32)
        ids = rng.integers(0, 3, (n_tokens, 2))
        y = mul_mat_id(mx.array(x if own else x[:, 0]), matrix, mx.array(ids))
        expected = np.einsum("tuk,tumk->tum", np.broadcast_to(x, (n_tokens, 2, 512)), numbers[ids])
        np.testing.assert_allclose(np.array(y), expected, **close)
    x = rng.standard_normal((3, 4, 512)).astype(np.float32)
    np.testing.assert_allclose(np.array(matrix.product(mx.array(x))), x @ numbers.swapaxes(1, 2), **close)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("type", [GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.Q6_K], ids=lambda type: type.name)
def test_products_of_groups_of_16(type: GGMLType) -> None:
    """Of few rows; more are products of MLX's."""
    rng = np.random.default_rng(0)
    data = np.asarray(quantize(rng.standard_normal((38, 768)).astype(np.float32), type)).view(np.uint8)
    tensor = GGUFTensor("w", type, (38, 768), 0, data.nbytes, data.tobytes())
    numbers, kernel = dequantize(data.reshape(38, -1), type), mock.Mock(wraps=metal.multiply)
    with mock.patch.object(metal, "multiply", kernel):
        matrix = Weights(mx.float32).matrix(GraphBuilder({"w": tensor}, 1, 64).weight("w"))
    assert isinstance(matrix, Quantized)
    kernel.reset_mock()
    for n, calls in ((1, 1), (3, 2), (metal.MOST_ROWS + 1, 2)):
        x = rng.standard_normal((n, 768)).astype(np.float32)
        np.testing.assert_allclose(np.array(matrix.product(mx.array(x))), x @ numbers.T, rtol=1e-4, atol=1e-3)
        assert kernel.call_count == calls
