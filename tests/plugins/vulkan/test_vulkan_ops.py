"""Every operation without matrices, on the first Vulkan device, against the NumPy backend."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguf_files import write_gguf
from graphs import batch, limits
from operation_tests import OperationTests, f32
from pumice.backend.step import Step
from pumice.gguf import GGMLType, GGUFFile
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph
from pumice_vulkan import VulkanBackend
from pumice_vulkan.formats import FORMATS
from quantizers import quantize


@pytest.fixture(scope="module")
def vulkan(vulkan_device: None) -> Iterator[VulkanBackend]:
    backend = VulkanBackend()
    yield backend
    backend.close()


@pytest.mark.skipif(
    "LP_NATIVE_VECTOR_WIDTH" not in os.environ, reason="lavapipe has the size that the processor prefers"
)
def test_subgroups_have_the_size_that_lavapipe_is_asked_for(vulkan: VulkanBackend) -> None:
    device = vulkan._open()[0].device.description
    assert device.subgroup_size == int(os.environ["LP_NATIVE_VECTOR_WIDTH"]) // 32


class TestOperations(OperationTests):
    function_tolerance = 5e-6

    @pytest.fixture
    def backends(self, vulkan: VulkanBackend) -> list[VulkanBackend]:
        return [vulkan]


@pytest.mark.parametrize("type", FORMATS, ids=lambda type: type.name)
def test_tables_of_every_type(tmp_path: Path, vulkan: Any, type: GGMLType) -> None:
    values, ids = f32(5, 512), np.array([3, 0, 4, 4], np.int32)
    rows = values if type == GGMLType.F32 else quantize(values, type)
    path = write_gguf(tmp_path / "table.gguf", {"general.architecture": "test"}, {"w": rows}, {"w": type})
    g = GraphBuilder(GGUFFile.open(path).tensors, 1, 64)
    x = Tensor("ids", ("n_tokens",), "i32", builder=g)
    graph = g.finish(g.embedding(g.weight("w"), x))
    (actual,) = compile_graph(vulkan, graph, limits()).run(Step(batch([4]), {"ids": ids})).values()
    np.testing.assert_allclose(actual, g.weight("w").dequantize()[ids], rtol=1e-6)


@pytest.mark.parametrize("n_tokens", [1, 5])
def test_a_chain_of_operations_element_by_element_is_one_dispatch(tmp_path: Path, vulkan: Any, n_tokens: int) -> None:
    """Through a reshape, with operands that broadcast; slices of a single row are read where they lie."""
    factors = f32(1, 64)
    path = write_gguf(tmp_path / "f.gguf", {"general.architecture": "test"}, {"f": factors}, {"f": GGMLType.F32})
    g = GraphBuilder(GGUFFile.open(path).tensors, 1, 64)
    x = Tensor("x", ("n_tokens", 256), builder=g)
    a, b = g.slice(x, 0, 128), g.slice(x, 128, 256)
    heads = (g.sigmoid(a * 0.5) + b).reshape("n_tokens", 2, 64)
    graph = g.finish(g.clamp(heads * g.weight("f"), -0.5, 0.5).reshape("n_tokens", 128))
    program = compile_graph(vulkan, graph, limits())
    values = f32(n_tokens, 256)
    (actual,) = program.run(Step(batch([n_tokens]), {"x": values})).values()
    first, second = values[:, :128], values[:, 128:]
    expected = ((1 / (1 + np.exp(-first * 0.5)) + second).reshape(-1, 2, 64) * factors).clip(-0.5, 0.5)
    np.testing.assert_allclose(actual, expected.reshape(-1, 128), rtol=1e-5, atol=1e-6)
    names = [kernel.name for kernel in program.profile()]
    assert names == ["rows.slice"] * (2 if n_tokens > 1 else 0) + ["elementwise scale sigmoid add mul clamp"]
