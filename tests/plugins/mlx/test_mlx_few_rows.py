"""The CUDA kernel for products of few rows, emulated: alone, and where it takes the place of MLX's product."""

import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from nightly import crossed
from pumice_mlx import few_rows
from pumice_mlx.weights import Quantized, Scales


@pytest.fixture(autouse=True)
def emulated(cuda_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Call the kernel where MLX has CUDA's."""
    if sys.platform != "linux":
        pytest.skip("threads take turns by ucontext.h")
    monkeypatch.setattr(mx.fast, "cuda_kernel", cuda_kernel, raising=False)
    monkeypatch.setattr(few_rows, "is_available", lambda: True)
    few_rows._kernel.cache_clear()
    few_rows.works.cache_clear()
    yield
    few_rows._kernel.cache_clear()
    few_rows.works.cache_clear()


def matrix(n_rows: int, n_columns: int, bits: int = 4) -> list[mx.array]:
    """Return codes, scales and biases of random numbers."""
    numbers = np.random.default_rng(n_rows).normal(size=(n_rows, n_columns))
    return list(mx.quantize(mx.array(numbers, mx.float16), few_rows.GROUP, bits))


@pytest.mark.parametrize(("n_tokens", "bits", "shape"), crossed([1, 7, 8, 9, 16], [4, 8], [(16, 1408), (48, 128)]))
def test_products(n_tokens: int, bits: int, shape: tuple[int, int]) -> None:
    """Rows of 1 to 11 parts of columns, which 8 warps share."""
    n_rows, n_columns = shape
    codes, scales, biases = matrix(n_rows, n_columns, bits)
    x = mx.array(np.random.default_rng(1).normal(size=(n_tokens, n_columns)), mx.float16)
    exact = mx.dequantize(codes, *(each.astype(mx.float32) for each in (scales, biases)), group_size=32, bits=bits)
    right = np.array(x.astype(mx.float32) @ exact.T)
    found = np.array(few_rows.multiply(x, codes, scales, biases).astype(mx.float32))
    np.testing.assert_allclose(found, right, atol=1e-3 * np.abs(right).max())


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "type"),
    [(32, 256, mx.float16), (32, 256, mx.float32), (24, 256, mx.float16), (32, 192, mx.float16)],
    ids=["few", "exact activations", "rows", "columns"],
)
def test_matrices_that_it_multiplies(n_rows: int, n_columns: int, type: mx.Dtype, monkeypatch: Any) -> None:
    """Matrices of other shapes, other types and many rows are left to MLX; results are alike.

    MLX gets 33 rows at least, so that it builds one kernel.
    """
    codes, scales, biases = matrix(n_rows, n_columns)
    held = Quantized(codes, 4, "affine", [Scales(scales.astype(type), biases.astype(type))], type)
    own, theirs = mock.Mock(wraps=few_rows.multiply), mock.Mock(wraps=mx.quantized_matmul)
    monkeypatch.setattr(few_rows, "multiply", own)
    monkeypatch.setattr(mx, "quantized_matmul", theirs)
    x = mx.array(np.random.default_rng(1).normal(size=(2, 9, n_columns)), mx.float32)
    for rows in (x[0, :3], x[:, :8], x):
        right = np.array(rows @ mx.dequantize(codes, scales, biases, group_size=32, bits=4).astype(mx.float32).T)
        found = held.product(rows)
        assert found.shape == right.shape
        np.testing.assert_allclose(np.array(found.astype(mx.float32)), right, atol=4e-3 * np.abs(right).max())
    is_multiplied = (n_rows, n_columns, type) == (32, 256, mx.float16)
    assert [len(call.args[0]) for call in own.call_args_list] == ([3, 16] if is_multiplied else [])
    lengths = [call.args[0].shape[-2] for call in theirs.call_args_list]
    assert lengths == ([33] if is_multiplied else [3, 8, 9])
