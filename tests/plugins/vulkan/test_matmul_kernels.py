"""Products with weight matrices of every type, for few and for many rows, against NumPy."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest

from graphs import batch, limits
from nightly import crossed, variants
from pumice.backend.step import Step
from pumice.gguf import GGMLType, GGUFTensor, dequantize
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph, trace
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import VulkanOptions
from pumice_vulkan.device import MatrixShape, list_devices
from pumice_vulkan.formats import FORMATS, IN_LANES
from pumice_vulkan.lower import few, products, tiles, vectors
from pumice_vulkan.probe import KERNEL, SHAPES, _probe, matrix_shape
from pumice_vulkan.tuning import BLOCKS, BlockShape, FewShape, LanesShape, TileNumbers, TileShape, lanes_shape
from quantizers import quantize

TYPES = sorted(FORMATS, key=lambda type: type.name)
DAILY = ("F16", "Q4_0", "Q5_1", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4")
"""Types with each kind of scales and codes, of kernels that read weights as ``test_linear`` does with all of them."""
COLUMNS = 512  # whole blocks of every type
FLOAT, FLOAT16, HALF, INT8 = 1e-11, 5e-7, 2e-6, 2e-4  # normalized mean squared errors

rng = np.random.default_rng(3)
Build = Callable[[GraphBuilder, dict[str, Tensor]], Tensor]


@pytest.fixture(scope="module", params=["float", "int8"])
def vulkan(vulkan_device: None, request: pytest.FixtureRequest) -> Iterator[VulkanBackend]:
    if request.param == "int8" and list_devices("native")[0].subgroup_size < 8:
        pytest.skip("int8 activations need subgroups of 8")
    backend = VulkanBackend(VulkanBackend.Options(driver="native", activations=request.param, prepare="never"))
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def halves(vulkan_device: None) -> Iterator[VulkanBackend]:
    """A backend that multiplies in float16 without matrix units."""
    if "float16" not in list_devices("native")[0].features:
        pytest.skip("the device does not compute in float16")
    backend = VulkanBackend(VulkanBackend.Options(driver="native", activations="half", prepare="never"))
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
    output = trace(g, build, inputs)
    program = compile_graph(backend, g.finish(output), limits())

    def run(n_tokens: int) -> np.ndarray:
        step = Step(batch([n_tokens]), {name: x[:n_tokens] for name, x in inputs.items()})
        return program.run(step)[output.name].copy()

    return run


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape
    return float(np.mean((actual - expected) ** 2) / np.mean(expected**2))


def tolerance(backend: VulkanBackend, type: GGMLType, few: bool) -> float:
    if not few and backend._open()[0].cooperative:
        return FLOAT16
    numbers = numbers_of(backend, type)
    return INT8 if numbers == TileNumbers.INT8 else HALF if numbers == TileNumbers.HALF and not few else FLOAT


def numbers_of(backend: VulkanBackend, type: GGMLType) -> TileNumbers:
    """Return the numbers that tiles without matrix units multiply."""
    if backend.options.activations == "int8" and not FORMATS[type].dense:
        return TileNumbers.INT8
    is_half = backend.options.activations == "half" and type != GGMLType.F32
    return TileNumbers.HALF if is_half else TileNumbers.FLOAT


EVERY = [(activations, type.name) for activations, type in product(["float", "int8"], TYPES)]
OFTEN = [(activations, name) for activations, name in EVERY if activations == "int8" or name in DAILY]


@pytest.mark.parametrize(("vulkan", "name"), variants(EVERY, OFTEN), indirect=["vulkan"])
def test_linear(vulkan: VulkanBackend, name: str) -> None:
    """Products have 3 and 8 tokens in turn: all pairs of number, type and activations occur."""
    type = GGMLType[name]
    w, numbers = weight("w", type, 75, COLUMNS)
    b = f32(75)
    x = f32(40, COLUMNS)
    x[:, :70] = 0  # blocks without a scale
    bias = GGUFTensor("b", GGMLType.F32, b.shape, 0, b.nbytes, b.tobytes())
    run = compiled(vulkan, [w, bias], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w"), g.weight("b")))
    several = 3 if (TYPES.index(type) % 2 == 0) == (vulkan.options.activations == "int8") else 8
    for n in (1, several, 13, 40):
        assert error(run(n), x[:n] @ numbers.T + b) < tolerance(vulkan, type, True), n


@pytest.fixture(scope="module")
def matrix_units() -> Iterator[VulkanBackend]:
    """A backend whose products run on the matrix units of the first device, of the best shape that kernels use."""
    kept = mock.patch("pumice_vulkan.quirks.QUIRKS", ())  # which leave lavapipe without matrix units
    with mock.patch.dict(os.environ, {"PUMICE_VULKAN_SOFTWARE": "1"}), kept:
        reason = VulkanBackend.unavailable()
        if reason or not matrix_shape(list_devices("native")[0]):
            pytest.skip(reason or "no matrix units")
        with on_matrix_units(None) as backend:
            yield backend


@contextmanager
def on_matrix_units(shape: MatrixShape | None) -> Iterator[VulkanBackend]:
    """A backend on matrix units, of this shape if one is given."""
    chosen = mock.patch("pumice_vulkan.probe.SHAPES", (shape,) if shape else SHAPES)
    right = mock.patch("pumice_vulkan.probe._probe", return_value=frozenset({KERNEL}))  # the kernel in tiles alone
    with right, chosen:
        backend = VulkanBackend(VulkanBackend.Options(driver="native", prepare="never"))
        yield backend
        backend.close()


def check_on_matrix_units(
    backend: VulkanBackend, type: GGMLType, n_rows: int, columns: int, counts: Sequence[int] = (9, 40, 64)
) -> None:
    w, numbers = weight("w", type, n_rows, columns)
    b, x = f32(n_rows), f32(64, columns)
    bias = GGUFTensor("b", GGMLType.F32, b.shape, 0, b.nbytes, b.tobytes())
    with mock.patch.object(products, "tiled_product", side_effect=AssertionError("not on matrix units")):
        run = compiled(backend, [w, bias], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w"), g.weight("b")))
        for n in counts:
            assert error(run(n), x[:n] @ numbers.T + b) < FLOAT16, n


@pytest.mark.parametrize("name", variants([type.name for type in TYPES if type != GGMLType.F32], DAILY))
def test_linear_on_matrix_units(matrix_units: VulkanBackend, name: str) -> None:
    check_on_matrix_units(matrix_units, GGMLType[name], 76, COLUMNS)


@pytest.mark.usefixtures("matrix_units")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.m}x{shape.n}x{shape.k}")
def test_shapes_of_matrix_units(shape: MatrixShape) -> None:
    """Every shape that the device lists is tested: rows of W, of x, and columns of a product may differ."""
    if shape not in list_devices("native")[0].cooperative_matrices:
        pytest.skip("the device does not have this shape")
    with on_matrix_units(shape) as backend:
        assert backend._open()[0].cooperative == shape
        check_on_matrix_units(backend, GGMLType.Q4_K, 76, 512, (9, 24, 40, 64))
        for tile in (TileShape(64, 32, 4, 1, 64), TileShape(64, 64, 2, 2, 32, 3)):
            shape_of_few = mock.patch.object(few, "few_shape", return_value=None)
            with mock.patch.object(tiles, "tile_shape", return_value=tile), shape_of_few:
                check_on_matrix_units(backend, GGMLType.Q5_1, 180, 160)


@pytest.mark.parametrize("type", [GGMLType.Q5_1, GGMLType.F16], ids=lambda type: type.name)
@pytest.mark.parametrize("shape", [(64, 32, 4, 1, 64), (32, 64, 2, 2, 64), (64, 64, 2, 2, 32, 3)], ids=str)
@pytest.mark.parametrize("tiled", [False, True], ids=["rows", "tiled"])
def test_tiles_of_matrix_units(matrix_units: VulkanBackend, type: GGMLType, shape: Any, tiled: bool) -> None:
    tile = TileShape(*shape)
    shape_of_few = mock.patch.object(few, "few_shape", return_value=tile if tiled else None)
    with mock.patch.object(tiles, "tile_shape", return_value=tile), shape_of_few:
        check_on_matrix_units(matrix_units, type, 180, 160)  # the last tile is half empty


@pytest.fixture(scope="module")
def lanes(matrix_units: VulkanBackend) -> Iterator[VulkanBackend]:
    """A backend whose products convert weights in the lanes of matrix units."""
    with mock.patch("pumice_vulkan.probe._probe", _probe):  # the fixture above denies them
        backend = VulkanBackend(VulkanBackend.Options(driver="native", prepare="never"))
        known = backend._open()[0].lanes
    if known:
        yield backend
    backend.close()
    if not known:
        pytest.skip("no matrix units whose division of fragments among lanes is known, which lavapipe's is not")


def check_order_of_lanes(backend: VulkanBackend, type: GGMLType) -> None:
    """Check that single vectors, few rows, tiles and lookups read a matrix in the order of lanes."""
    w, rows = weight("w", type, 48, 256)
    x, ids = f32(40, 256), rng.permutation(40).astype(np.int32)
    with (
        mock.patch.object(backend._open()[0], "lanes", True),
        mock.patch.object(few, "use_lanes", return_value=False),
        mock.patch.object(products, "SMALL", 0),  # so that tiles read it, too
    ):
        product = compiled(backend, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
        lookup = compiled(backend, [w], {"ids": ids}, lambda g, a: g.embedding(g.weight("w"), a["ids"]))
        for n in (1, 9, 40):
            assert error(product(n), x[:n] @ rows.T) < FLOAT16, n
        assert np.array_equal(lookup(40), rows[ids])


@pytest.mark.parametrize("type", IN_LANES, ids=lambda type: type.name)
@pytest.mark.parametrize("vulkan", ["float"], indirect=True)
def test_other_kernels_read_the_order_of_lanes(vulkan: VulkanBackend, type: GGMLType) -> None:
    check_order_of_lanes(vulkan, type)


def test_batch_invariance_in_the_order_of_lanes(vulkan_device: None) -> None:
    """Wide matrices have other lanes along a row where several vectors share it."""
    backend = VulkanBackend(VulkanOptions(batch_invariant=True, prepare="never"))
    try:
        w, rows = weight("w", GGMLType.F16, 16, 4096)
        x = f32(16, 4096)
        with mock.patch.object(backend._open()[0], "lanes", True):
            run = compiled(backend, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
            expected = run(16)
            assert error(expected, x @ rows.T) < FLOAT
            for n in (1, 2, 3, 8):
                np.testing.assert_array_equal(run(n), expected[:n])
    finally:
        backend.close()


@pytest.mark.parametrize("type", IN_LANES, ids=lambda type: type.name)
def test_matrix_units_read_the_order_of_lanes(matrix_units: VulkanBackend, type: GGMLType) -> None:
    check_order_of_lanes(matrix_units, type)


LANES = [(1, 4, 1, 1, 2), (2, 2, 2, 2), (4, 2, 2, 4), (1, 4, 2, 8), (1, 3, 4, 1, 3), (7, 2, 2, 3), (1, 4, 2, 6, 2)]
LANES = [*(LanesShape(*shape) for shape in LANES), LanesShape(2, 2, 4, 4, x_first=True)]


@pytest.mark.parametrize("name", [type.name for type in TYPES if type != GGMLType.F32])
def test_linear_in_lanes(lanes: VulkanBackend, name: str) -> None:
    n_rows = 80 if GGMLType[name] in IN_LANES else 76
    with mock.patch.object(few, "lanes_shape", wraps=lanes_shape) as shapes:
        check_on_matrix_units(lanes, GGMLType[name], n_rows, COLUMNS, (3, 8, 9, 40, 64))
    assert {call.args[2] for call in shapes.call_args_list} == {4, 8, 16, 64}


@pytest.mark.parametrize("shape", LANES, ids=str)
@pytest.mark.parametrize("type", [GGMLType.Q4_K, GGMLType.F16], ids=lambda type: type.name)
def test_shapes_of_lanes(lanes: VulkanBackend, shape: LanesShape, type: GGMLType) -> None:
    if type == GGMLType.F16 and shape.depth == 3:
        pytest.skip("the depth of numbers divides the four quarters of a step")
    with mock.patch.object(few, "lanes_shape", return_value=shape):
        check_on_matrix_units(lanes, type, 184, 768, (3, 17, 48, 64))


def check_in_tiles(backend: VulkanBackend, type: GGMLType, shape: BlockShape, columns: int, counts: list[int]) -> None:
    """Products without matrix units, whose tiles are half empty at all edges."""
    w, numbers = weight("w", type, 75, columns)
    b, x = f32(75), f32(40, columns)
    x[:, :70] = 0  # blocks without a scale
    bias = GGUFTensor("b", GGMLType.F32, b.shape, 0, b.nbytes, b.tobytes())
    with (
        mock.patch.object(backend._open()[0], "cooperative", False),
        mock.patch.object(products, "SMALL", 0),  # so that dense matrices are read in tiles, too
        mock.patch.object(products, "block_shape", return_value=shape),
        mock.patch.object(products, "tiled_product", wraps=products.tiled_product) as tiled,
    ):
        run = compiled(backend, [w, bias], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w"), g.weight("b")))
        for n in counts:
            assert error(run(n), x[:n] @ numbers.T + b) < tolerance(backend, type, False), n
    assert {call.args[2] for call in tiled.call_args_list} == {shape}


@pytest.mark.parametrize("name", variants([type.name for type in TYPES], ["F32", *DAILY]))
def test_linear_in_tiles(vulkan: VulkanBackend, name: str) -> None:
    type = GGMLType[name]
    check_in_tiles(vulkan, type, BLOCKS[numbers_of(vulkan, type)][0], COLUMNS, [13, 40])


@pytest.mark.parametrize(("place", "splits"), crossed([0, 1, 2, 3, 4], [1, 3]))
def test_shapes_of_tiles(vulkan: VulkanBackend, place: int, splits: int) -> None:
    """Rows have an odd number of blocks, which no step divides and several workgroups share unevenly."""
    shapes = BLOCKS[numbers_of(vulkan, GGMLType.Q5_1)]
    if place < len(shapes):
        check_in_tiles(vulkan, GGMLType.Q5_1, dataclasses.replace(shapes[place], splits=splits), 416, [40, 33])


@pytest.mark.parametrize("name", variants([type.name for type in TYPES], ["F32", *DAILY]))
def test_linear_in_tiles_of_float16(halves: VulkanBackend, name: str) -> None:
    type = GGMLType[name]
    numbers = numbers_of(halves, type)
    assert numbers == (TileNumbers.FLOAT if type == GGMLType.F32 else TileNumbers.HALF)
    shared = halves._open()[0].device.threadgroup_memory_bytes
    check_in_tiles(halves, type, BLOCKS[numbers][0].within(shared, numbers), COLUMNS, [40])


@pytest.mark.parametrize("place", range(len(BLOCKS[TileNumbers.HALF])))
def test_shapes_of_tiles_of_float16(halves: VulkanBackend, place: int) -> None:
    shared = halves._open()[0].device.threadgroup_memory_bytes
    shape = BLOCKS[TileNumbers.HALF][place].within(shared, TileNumbers.HALF)
    check_in_tiles(halves, GGMLType.Q5_1, dataclasses.replace(shape, splits=1 + 2 * (place % 2)), 416, [33])


def test_large_activations_and_small_ones_in_float16(halves: VulkanBackend) -> None:
    """Sums of 64 products of a hundred thousand, which exceed float16, and of numbers that are its smallest."""
    w, numbers = weight("w", GGMLType.Q8_0, 75, 512)
    for scale in (6_000, 2.0**-9):
        x = f32(33, 512) * np.float32(scale)
        block = mock.patch.object(products, "block_shape", return_value=BLOCKS[TileNumbers.HALF][1])
        with mock.patch.object(halves._open()[0], "cooperative", None), block:
            run = compiled(halves, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
            assert error(run(33), x @ numbers.T) < HALF, scale


@pytest.mark.parametrize("type", [GGMLType.F32, GGMLType.Q6_K, GGMLType.IQ4_NL], ids=lambda type: type.name)
def test_more_parts_of_columns_than_columns(vulkan: VulkanBackend, type: GGMLType) -> None:
    shape = BLOCKS[numbers_of(vulkan, type)][-1]
    check_in_tiles(vulkan, type, dataclasses.replace(shape, splits=48), 512, [17])


@pytest.mark.parametrize(("type", "columns"), [("F32", 172), ("F32", 6), ("F16", 2), ("F16", 12), ("BF16", 20)])
def test_dense_rows_of_any_width(vulkan: VulkanBackend, type: str, columns: int) -> None:
    w, numbers = weight("w", GGMLType[type], 33, columns)
    values = f32(12, columns)
    x = np.full_like(values, np.nan)
    run = compiled(vulkan, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
    run(12)  # so that numbers lie beyond the last row which zeros do not cancel
    x[:] = values
    for n in (1, 5, 12):
        assert error(run(n), x[:n] @ numbers.T) < FLOAT


def test_large_matrix_goes_up_in_pieces(vulkan: VulkanBackend) -> None:
    w, numbers = weight("w", GGMLType.Q8_0, 9000, 1024)
    x = f32(1, 1024)
    run = compiled(vulkan, [w], {"x": x}, lambda g, a: g.linear(a["x"], g.weight("w")))
    assert error(run(1), x @ numbers.T) < tolerance(vulkan, GGMLType.Q8_0, True)


def normalized(x: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * factors


ACTIVATIONS = {
    "silu_mul": lambda x: x / (1 + np.exp(-x)),
    "gelu_mul": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize(("n_tokens", "gate_op"), [(1, "silu_mul"), (3, "gelu_mul"), (8, "silu_mul")])
def test_gated_values_are_left_in_int8_for_the_next_product(vulkan: VulkanBackend, n_tokens: int, gate_op: str) -> None:
    (gate, gates), (up, ups) = (weight(f"{name} {n_tokens}", GGMLType.Q4_0, 1056, 256) for name in ("gate", "up"))
    down, downs = weight(f"down {n_tokens}", GGMLType.Q8_0, 70, 1056)
    factors, x = f32(256), f32(n_tokens, 256)
    norm = GGUFTensor(f"norm {n_tokens}", GGMLType.F32, factors.shape, 0, factors.nbytes, factors.tobytes())

    def build(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
        seen = g.rms_norm(a["x"], g.weight(norm.name), 1e-5)
        values = getattr(g, gate_op)(g.linear(seen, g.weight(gate.name)), g.linear(seen, g.weight(up.name)))
        return g.linear(values, g.weight(down.name))

    with closing(VulkanBackend(vulkan.options)) as backend:  # where the matrices lie side by side
        no_matrix_units = mock.patch.object(backend._open()[0], "cooperative", False)
        with no_matrix_units, mock.patch.object(vectors, "quantized", wraps=vectors.quantized) as quantized:
            y = compiled(backend, [norm, gate, up, down], {"x": x}, build)(n_tokens)
        rows = {call.args[0].n_tokens for call in quantized.call_args_list}
        made = {1, 4} if n_tokens == 3 else {1}  # when compiled, and for this step
        fits = backend._open()[0].device.subgroup_size <= 32  # whole blocks of results in a workgroup of 512
        assert rows == (made if vulkan.options.activations == "int8" and fits else set())
        values = ACTIVATIONS[gate_op](normalized(x, factors) @ gates.T) * (normalized(x, factors) @ ups.T)
        assert error(y, values @ downs.T) < 2 * tolerance(vulkan, GGMLType.Q4_0, True)


GATES = [FewShape(1, 4, 2, 32), TileShape(64, 32, 2, 1, 64, 2), None]  # tiles with split columns; tiles of rows of x


def check_gate(backend: VulkanBackend, n_inner: int, counts: Sequence[int], gate_op: str = "silu_mul") -> None:
    """A norm, two products and the one behind them, which find what the one before left in float16."""
    gate, gate_numbers = weight("gate", GGMLType.Q4_K, n_inner, 256)
    up, up_numbers = weight("up", GGMLType.Q4_K, n_inner, 256)
    down, down_numbers = weight("down", GGMLType.Q8_0, 256, n_inner)
    scale, x = f32(256), f32(64, 256)
    norm = GGUFTensor("norm", GGMLType.F32, scale.shape, 0, scale.nbytes, scale.tobytes())

    def build(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
        h = g.rms_norm(a["x"], g.weight("norm"), 1e-5)
        h = getattr(g, gate_op)(g.linear(h, g.weight("gate")), g.linear(h, g.weight("up")))
        return a["x"] + g.linear(h, g.weight("down"))

    run = compiled(backend, [gate, up, down, norm], {"x": x}, build)
    for n in counts:
        h = x[:n] / np.sqrt(np.mean(x[:n] ** 2, axis=1, keepdims=True) + 1e-5) * scale
        gated = ACTIVATIONS[gate_op](h @ gate_numbers.T) * (h @ up_numbers.T)
        expected = x[:n] + gated @ down_numbers.T
        assert error(run(n), expected) < 2e-6, n


@pytest.mark.parametrize("shape", GATES, ids=str)
def test_a_gate_on_matrix_units(matrix_units: VulkanBackend, shape: FewShape | TileShape | None) -> None:
    with mock.patch.object(few, "few_shape", return_value=shape):
        for gate_op in ACTIVATIONS:
            check_gate(matrix_units, 96, (9, 16, 40, 64), gate_op)


@pytest.mark.parametrize("shape", [None, LanesShape(1, 2, 4, 2), LanesShape(1, 2, 4, 4, x_first=True)], ids=str)
@pytest.mark.parametrize("n_inner", [96, 128], ids=["the last product elsewhere", "all in lanes"])
def test_a_gate_in_lanes(lanes: VulkanBackend, shape: LanesShape | None, n_inner: int) -> None:
    """96 columns are no step of lanes: the product of another kernel behind them reads float32."""
    with mock.patch.object(few, "lanes_shape", **({"return_value": shape} if shape else {"wraps": lanes_shape})):
        for gate_op in ACTIVATIONS:
            check_gate(lanes, n_inner, (9, 16, 40, 64), gate_op)
