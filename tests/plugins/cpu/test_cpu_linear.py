"""Products with matrices of every type, against the decoded weights times what the kernels see of the activations."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphs import batch, limits
from pumice.backend.step import Step
from pumice.gguf import CODINGS, GGMLType, GGUFTensor, block_size, dequantize
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph
from pumice_cpu import CpuBackend
from pumice_cpu.backend import CpuOptions
from pumice_cpu.isa import current
from random_weights import FLOATS, INTEGERS, RARE, random_rows

rng = np.random.default_rng(11)
HALF_STEP = 2.0**-8  # largest relative error of a number rounded to bfloat16
each_set = pytest.mark.every_instruction_set

ON_EACH_SET = ("Q4_0", "Q8_0", "Q6_K", "IQ4_NL", "F16")
DAILY = (
    *(*ON_EACH_SET, "Q4_K", "Q3_K", "Q5_1", "MXFP4", "F32", "BF16", "F64", "I16"),
    *("Q8_1", "TQ1_0", "IQ1_M", "IQ2_S", "IQ3_XXS", "NVFP4"),
)
"""Types whose kernels differ: with minima, with scales in two levels, with bits apart, and with values in tables."""
TYPES = [
    pytest.param(name, marks=each_set if name in ON_EACH_SET else () if name in DAILY else pytest.mark.nightly)
    for name in (*FLOATS, "BF16", *INTEGERS, *(type.name for type in CODINGS), *RARE)
]


def linear(backend: CpuBackend, name: str, rows: np.ndarray, bias: np.ndarray | None, x: np.ndarray) -> np.ndarray:
    """``x @ rows.T + bias`` on a backend."""
    type = GGMLType[name]
    shape = (len(rows), x.shape[1])
    tensors = {"w": GGUFTensor("w", type, shape, 0, rows.nbytes, rows.tobytes())}
    if bias is not None:
        tensors["b"] = GGUFTensor("b", GGMLType.F32, bias.shape, 0, bias.nbytes, bias.tobytes())
    g = GraphBuilder(tensors, 1, 64)
    with g.layer(0):
        given = Tensor("x", ("n_tokens", x.shape[1]), builder=g)
        output = g.linear(given, g.weight("w"), None if bias is None else g.weight("b"))
    backend._memory.packed.clear()  # weights are kept by name, and all are called the same here
    most = max(len(x), limits().n_batch)
    wide = dataclasses.replace(limits(), n_ctx=most, n_batch=most, n_outputs=most)
    return compile_graph(backend, g.finish(output), wide).run(Step(batch([len(x)]), {"x": x}))[output.name].copy()


def as_seen(x: np.ndarray, name: str) -> np.ndarray:
    """Return activations as the kernels of a type read them; all matrices here are small."""
    if name == "BF16" and current().multiplies_bf16:
        return in_bf16(x)
    return x.astype(np.float64) if name in (*FLOATS, *INTEGERS, "BF16") else rounded(x)


def rounded(x: np.ndarray) -> np.ndarray:
    """Return activations as int8 blocks of 32 hold them."""
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
    codes = np.rint(blocks * inverse)
    return (codes.astype(np.float64) * scale).reshape(x.shape)


def check(
    backends: list[CpuBackend], name: str, n_rows: int, n_columns: int, n_tokens: int, bias: bool = False
) -> None:
    rows = random_rows(rng, name, n_rows, n_columns)
    b = rng.standard_normal(n_rows).astype(np.float32) if bias else None
    x = (rng.standard_normal((n_tokens, n_columns)) * rng.uniform(0.1, 3, (n_tokens, 1))).astype(np.float32)
    x[:, : n_columns // 3] = 0  # blocks without a scale
    one, two = (linear(backend, name, rows, b, x) for backend in backends)

    weights = dequantize(rows, GGMLType[name]).astype(np.float64)
    seen = as_seen(x, name)
    expected = seen @ weights.T + (0 if b is None else b)
    limit = 2e-5 * np.abs(seen) @ np.abs(weights.T) / np.sqrt(n_columns) + 1e-6
    assert np.all(np.abs(one - expected) <= limit), np.abs((one - expected) / limit).max()
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", TYPES)
def test_products(backends: Any, name: str) -> None:
    unit = block_size(GGMLType[name])
    for n_tokens in (1, 5, 20, 150):
        columns = int(rng.integers(1, 1200)) if unit == 1 else int(rng.integers(1, 4)) * max(32, unit)
        n_rows = int(rng.integers(1, 100)) + (256 if n_tokens == 1 and unit > 1 else 0)  # enough for several streams
        check(backends, name, n_rows, columns, n_tokens, bias=n_tokens > 1)
    if unit == 1:
        for n_rows, columns in ((1, 7), (40, 512), (34, 1101), (100, 1)):
            check(backends, name, n_rows, columns, 20)


@pytest.mark.parametrize("n_tokens", [1, 3, 60])
def test_a_matrix_of_many_tiles(backends: Any, n_tokens: int) -> None:
    """Threads take several tiles at once, and tokens come in more than one part."""
    check(backends, "Q4_0", 1000, 8192, n_tokens)


def test_a_matrix_packed_in_pieces(backends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice_cpu.packed.PIECE", 20_000)
    check(backends, "Q4_0", 1003, 512, 3)


# --- tiles of bfloat16, emulated: the kernels are those of AMX, but for the instructions themselves


@pytest.fixture(scope="module")
def emulating() -> Iterator[list[CpuBackend]]:
    made = [CpuBackend(CpuBackend.Options(threads=threads, amx="emulated")) for threads in (1, 2)]
    yield made
    for one in made:
        one.close()


def in_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16).astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "n_tokens"), [("Q4_0", 41), ("Q4_K", 41), ("Q6_K", 41), ("Q8_0", 41), ("BF16", 41), ("Q4_0", 530)]
)
def test_many_rows(emulating: list[CpuBackend], name: str, n_tokens: int) -> None:
    """More columns and rows than are taken at once, a last tile without its neighbour, and rows that fill no tile."""
    n_rows, n_columns = 73, (1024 if n_tokens < 512 else 512) + max(32, block_size(GGMLType[name]))
    rows = random_rows(rng, name, n_rows, n_columns)
    bias = rng.standard_normal(n_rows).astype(np.float32)
    x = rng.standard_normal((n_tokens, n_columns)).astype(np.float32)
    one, two = (linear(each, name, rows, bias, x) for each in emulating)
    weights = dequantize(rows, GGMLType[name]).astype(np.float64)
    expected = in_bf16(x) @ in_bf16(weights).T + bias
    limit = HALF_STEP * np.sqrt(x.astype(np.float64) ** 2 @ weights.T**2) / 8 + 1e-5
    assert np.all(np.abs(one - expected) <= limit), np.abs((one - expected) / limit).max()
    np.testing.assert_array_equal(one, two)


def test_few_rows_take_the_other_kernel(emulating: list[CpuBackend]) -> None:
    rows, x = random_rows(rng, "Q4_0", 40, 64), rng.standard_normal((31, 64)).astype(np.float32)
    plain = CpuBackend(CpuBackend.Options(threads=1))
    np.testing.assert_array_equal(*(linear(each, "Q4_0", rows, None, x) for each in (emulating[0], plain)))
    plain.close()


@each_set
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", ["F32", "F16"])
def test_products_of_random_shapes(name, threads):
    """Rows, columns and tokens around the sizes of panels and tiles, shared by threads."""
    shapes = np.random.default_rng(threads)
    backend = CpuBackend(CpuOptions(threads=threads))
    for _ in range(20):
        n_rows = int(shapes.choice([1, 15, 17, 31, 33, 63, 65, 127, 129, 160, 257, 513]))
        n_columns = int(shapes.choice([1, 3, 7, 16, 33, 255, 257, 511, 600]))
        n_tokens = int(shapes.choice([1, 2, 5, 7, 9, 15, 17, 33, 64, 70]))
        rows = shapes.standard_normal((n_rows, n_columns)).astype("f4" if name == "F32" else "f2")
        bias = shapes.standard_normal(n_rows).astype("f4") if shapes.random() < 0.5 else None
        x = shapes.standard_normal((n_tokens, n_columns)).astype("f4")
        right = x.astype("f8") @ rows.astype("f8").T + (0 if bias is None else bias)
        y = linear(backend, name, rows, bias, x)
        message = f"{n_rows} x {n_columns}, {n_tokens} tokens, bias {bias is not None}"
        np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5 * n_columns**0.5, err_msg=message)
