"""Products with weight matrices of every type, for few and for many rows, against NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest

from graphs import batch, limits
from pumice.gguf import GGMLType, GGUFTensor, dequantize
from pumice.graph import GraphBuilder, Tensor, place, plan_memory
from pumice_vulkan import VulkanBackend
from pumice_vulkan.formats import FORMATS
from quantizers import quantize

TYPES = sorted(FORMATS, key=lambda type: type.name)
COLUMNS = 512  # whole blocks of every type
FLOAT, INT8 = 1e-11, 2e-4  # normalized mean squared errors

rng = np.random.default_rng(3)
Build = Callable[[GraphBuilder, dict[str, Tensor]], Tensor]


@pytest.fixture(scope="module", params=["float", "int8"])
def vulkan(request: pytest.FixtureRequest) -> Iterator[VulkanBackend]:
    with mock.patch.dict(os.environ, {"PUMICE_VULKAN_SOFTWARE": "1"}):
        reason = VulkanBackend.unavailable()
    if reason:
        pytest.skip(reason)
    backend = VulkanBackend(VulkanBackend.Options(driver="native", activations=request.param))
    yield backend
    backend.close()


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def weight(name: str, type: GGMLType, *shape: int) -> tuple[GGUFTensor, np.ndarray]:
    """A random tensor of a type, and the numbers it stands for."""
    values = f32(*shape).reshape(-1, shape[-1])
    rows = values.view(np.uint8) if type == GGMLType.F32 else np.asarray(quantize(values, type)).view(np.uint8)
    rows = rows.reshape(*shape[:-1], -1)
    return GGUFTensor(name, type, shape, 0, rows.nbytes, rows.tobytes()), dequantize(rows, type)


def compiled(
    backend: VulkanBackend, tensors: list[GGUFTensor], inputs: dict[str, np.ndarray], build: Build
) -> Callable[..., np.ndarray]:
    """A graph of one result, ready to be called with its inputs."""
    g = GraphBuilder({tensor.name: tensor for tensor in tensors}, 1, 64)
    given = {
        name: Tensor(name, ("n_tokens", *x.shape[1:]), "i32" if x.dtype == np.int32 else "f32", builder=g)
        for name, x in inputs.items()
    }
    with g.layer(0):
        output = build(g, given)
    (segment,) = place(g.finish(output), [("vulkan", backend.supports)])
    program = backend.compile(segment, plan_memory(segment, 64, 64), limits())

    def run(n_tokens: int) -> np.ndarray:
        return program.run({name: x[:n_tokens] for name, x in inputs.items()}, batch([n_tokens]))[output.name].copy()

    return run


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape
    return float(np.mean((actual - expected) ** 2) / np.mean(expected**2))


def tolerance(backend: VulkanBackend, type: GGMLType, few: bool) -> float:
    return INT8 if few and backend.options.activations == "int8" and not FORMATS[type].dense else FLOAT


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_linear(vulkan: VulkanBackend, type: GGMLType) -> None:
    w, numbers = weight("w", type, 75, COLUMNS)
    b = f32(75)
    x = f32(40, COLUMNS)
    x[:, :70] = 0  # blocks without a scale
    bias = GGUFTensor("b", GGMLType.F32, b.shape, 0, b.nbytes, b.tobytes())
    run = compiled(vulkan, [w, bias], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w"), g.weight("b")))
    for n in (1, 3, 8, 13, 40):
        assert error(run(n), x[:n] @ numbers.T + b) < tolerance(vulkan, type, n <= 8), n


@pytest.mark.parametrize("type", [GGMLType.Q4_0, GGMLType.Q6_K, GGMLType.F16], ids=lambda type: type.name)
@pytest.mark.parametrize("own_x", [False, True])
def test_experts(vulkan: VulkanBackend, type: GGMLType, own_x: bool) -> None:
    w, numbers = weight("w", type, 5, 37, 256)
    x = f32(20, 3, 256) if own_x else f32(20, 256)
    ids = rng.integers(0, 5, (20, 3)).astype(np.int32)
    run = compiled(vulkan, [w], {"x": x, "ids": ids}, lambda g, a: g.mul_mat_id(a["x"], g.weight("w"), a["ids"]))
    inputs = x if own_x else np.repeat(x[:, None], 3, axis=1)
    expected = np.einsum("tek,temk->tem", inputs, numbers[ids])
    for n in (1, 2, 20):
        assert error(run(n), expected[:n]) < tolerance(vulkan, type, True)


@pytest.mark.parametrize("type", [GGMLType.Q8_0, GGMLType.F32], ids=lambda type: type.name)
def test_batched_linear(vulkan: VulkanBackend, type: GGMLType) -> None:
    w, numbers = weight("w", type, 3, 19, 64)
    x = f32(20, 3, 64)
    run = compiled(vulkan, [w], {"x": x}, lambda g, a: g.batched_linear(a["x"], g.weight("w")))
    for n in (1, 20):
        assert error(run(n), np.einsum("thk,hmk->thm", x[:n], numbers)) < tolerance(vulkan, type, True)


@pytest.mark.parametrize(("type", "columns"), [("F32", 172), ("F32", 6), ("F16", 2), ("F16", 12), ("BF16", 20)])
def test_dense_rows_of_any_width(vulkan: VulkanBackend, type: str, columns: int) -> None:
    w, numbers = weight("w", GGMLType[type], 33, columns)
    x = f32(12, columns)
    run = compiled(vulkan, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
    for n in (1, 5, 12):
        assert error(run(n), x[:n] @ numbers.T) < FLOAT


def test_large_matrix_goes_up_in_pieces(vulkan: VulkanBackend) -> None:
    w, numbers = weight("w", GGMLType.Q8_0, 9000, 1024)
    x = f32(1, 1024)
    run = compiled(vulkan, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
    assert error(run(1), x @ numbers.T) < tolerance(vulkan, GGMLType.Q8_0, True)
