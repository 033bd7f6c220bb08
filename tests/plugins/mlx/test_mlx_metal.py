"""The Metal kernel's text, compiled as C++: its 32 lanes run one after the other."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("mlx.core")
import mlx.core as mx

from pumice.gguf import GGMLType, GGUFTensor, dequantize
from pumice.graph import GraphBuilder
from pumice_mlx import metal
from pumice_mlx.weights import Quantized, Weights
from quantizers import quantize

CPLUSPLUS = """
#include <cstdint>
using uint = uint32_t;
struct Position { uint x, y, z; };
static float total;
static float simd_sum(float value) { return total += value; }  // of the last lane to run: the sum of all
static void body(Position thread_position_in_grid, const float* x, const uint* codes, const float* scales0,
                 const float* biases0, const float* scales1, const float* biases1, float* y) {
    SOURCE
}
extern "C" void run(const float* x, const uint* codes, const float* a, const float* b, const float* c, const float* d,
                    float* y, uint tokens) {
    for (uint token = 0; token < tokens; token++)
        for (uint row = 0; row < ROWS; row++) {
            total = 0;
            for (int lane = 31; lane >= 0; lane--) body({uint(lane), row, token}, x, codes, a, b, c, d, y);
        }
}
"""


def emulated(folder: Path, source: str = metal.SOURCE) -> metal.Product:
    """Return the kernel as a function of arrays."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (Debian: g++)")
    (folder / "kernel.cpp").write_text(CPLUSPLUS.replace("SOURCE", source))

    def multiply(x: mx.array, codes: mx.array, scales: list[mx.array], bits: int) -> mx.array:
        n_rows, n_groups = codes.shape[0], x.shape[1] // 32
        library = folder / f"{bits}_{n_rows}_{n_groups}.so"
        macros = [f"-DBITS={bits}", f"-DROWS={n_rows}", f"-DGROUPS={n_groups}"]
        command = [compiler, "-shared", "-fPIC", "-O1", *macros, str(folder / "kernel.cpp"), "-o", str(library)]
        subprocess.run(command, check=True)
        arrays = [np.array(x, np.float32), np.array(codes), *(np.array(array, np.float32) for array in scales)]
        y = np.zeros((len(x), n_rows), np.float32)
        ctypes.CDLL(str(library)).run(*[ctypes.c_void_p(array.ctypes.data) for array in (*arrays, y)], len(x))
        return mx.array(y)

    return multiply


@pytest.fixture
def metal_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(metal, "is_gpu", lambda: True)
    metal.product_for.cache_clear()


@pytest.mark.parametrize("type", [GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.Q6_K], ids=lambda type: type.name)
def test_products_of_few_rows(metal_here: None, tmp_path: Path, type: GGMLType) -> None:
    rng = np.random.default_rng(0)
    data = np.asarray(quantize(rng.standard_normal((38, 768)).astype(np.float32), type)).view(np.uint8)
    tensor = GGUFTensor("w", type, (38, 768), 0, data.nbytes, data.tobytes())
    numbers, kernel = dequantize(data.reshape(38, -1), type), mock.Mock(wraps=emulated(tmp_path))
    with mock.patch.object(metal, "multiply", kernel):
        matrix = Weights(mx.float32).matrix(GraphBuilder({"w": tensor}, 1, 64).weight("w"))
    assert isinstance(matrix, Quantized)
    kernel.reset_mock()
    for n, calls in ((1, 1), (3, 2), (metal.MOST_ROWS + 1, 2)):
        x = rng.standard_normal((n, 768)).astype(np.float32)
        np.testing.assert_allclose(np.array(matrix.product(mx.array(x))), x @ numbers.T, rtol=1e-4, atol=1e-3)
        assert kernel.call_count == calls
