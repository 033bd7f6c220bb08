"""Products with one of several matrices for each row, a pair at a time and in tiles, against the NumPy backend."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from graphs import batch, limits
from nightly import variants
from pumice.backend import Backend, Program
from pumice.backend.step import Step
from pumice.gguf import GGMLType, GGUFTensor
from pumice.graph import GraphBuilder, Tensor
from pumice.testing import compile_graph, trace
from pumice_numpy import NumpyBackend
from pumice_vulkan import VulkanBackend
from pumice_vulkan.device import list_devices, open_device
from pumice_vulkan.flags import FIXED
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.lower import experts, route
from pumice_vulkan.lower.halves import LANE_ORDER
from pumice_vulkan.probe import run
from pumice_vulkan.program import DeviceProgram
from pumice_vulkan.shaders import interface, shader
from pumice_vulkan.tuning import X_UNIT
from random_weights import random_rows

DAILY = ["Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4", "F32"]
MOST = 100  # tokens
LIMITS = dataclasses.replace(limits(), n_batch=MOST, n_outputs=MOST)
FLOAT, HALF, INT8 = 1e-11, 1e-6, 2e-4  # normalized mean squared errors
Build = Callable[[GraphBuilder, dict[str, Tensor]], Tensor]


@pytest.fixture(scope="module", params=["float", "int8"])
def vulkan(vulkan_device: None, request: pytest.FixtureRequest) -> Iterator[VulkanBackend]:
    if request.param == "int8" and list_devices("native")[0].subgroup_size < 8:
        pytest.skip("int8 activations need subgroups of 8")
    backend = VulkanBackend(VulkanBackend.Options(activations=request.param, prepare="never"))
    yield backend
    backend.close()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(list(request.node.name.encode()))


def weight(rng: np.random.Generator, type: GGMLType, *shape: int) -> GGUFTensor:
    rows = random_rows(rng, type.name, shape[0] * shape[1], shape[2])
    return GGUFTensor("w", type, shape, 0, rows.nbytes, rows.tobytes())


def compiled(backend: Backend, w: GGUFTensor, inputs: dict[str, np.ndarray], build: Build) -> Program:
    g = GraphBuilder({"w": w}, 1, 64)
    return compile_graph(backend, g.finish(trace(g, build, inputs)), LIMITS)


def result(program: Program, inputs: dict[str, np.ndarray], n_tokens: int) -> np.ndarray:
    (output,) = program.run(Step(batch([n_tokens]), {name: x[:n_tokens] for name, x in inputs.items()})).values()
    return output.copy()


def check(
    vulkan: VulkanBackend, w: GGUFTensor, steps: list[dict[str, np.ndarray]], build: Build, tokens: tuple[int, ...]
) -> None:
    """Steps with inputs of the same shapes, of which the first ``tokens`` rows are taken."""
    shared = vulkan._open()[0]
    tolerance = HALF if shared.cooperative or shared.half else FLOAT
    if vulkan.options.activations == "int8" and not FORMATS[w.type].dense:
        tolerance = INT8
    mine, right = (compiled(backend, w, steps[0], build) for backend in (vulkan, NumpyBackend()))
    for inputs in steps:
        for n in tokens:
            actual, expected = (result(program, inputs, n) for program in (mine, right))
            assert actual.shape == expected.shape
            assert np.mean((actual - expected) ** 2) <= tolerance * np.mean(expected**2), n
    mine.close()


def experts_of(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
    return g.mul_mat_id(a["x"], g.weight("w"), a["ids"])


def heads_of(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
    return g.batched_linear(a["x"], g.weight("w"))


def f32(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def routing(rng: np.random.Generator, n_matrices: int, n_used: int) -> np.ndarray:
    """Different experts for each token."""
    every = np.tile(np.arange(n_matrices, dtype=np.int32), (MOST, 1))
    return rng.permuted(every, axis=1)[:, :n_used].copy()


@pytest.mark.parametrize("name", variants([type.name for type in FORMATS], DAILY))
def test_experts_of_every_type(vulkan: VulkanBackend, rng: np.random.Generator, name: str) -> None:
    """Rows of a token's own or one for each expert, by turns: all pairs of that, type and activations occur."""
    type = GGMLType[name]
    own_x = (list(FORMATS).index(type) % 2 == 0) == (vulkan.options.activations == "int8")
    x = f32(rng, MOST, 3, 256) if own_x else f32(rng, MOST, 256)
    ids = routing(rng, 5, 3)
    all_to_one = np.full_like(ids, 4)
    without_tokens = np.where(ids == 2, 3, ids)
    steps = [{"x": x, "ids": each} for each in (ids, without_tokens, all_to_one)]
    check(vulkan, weight(rng, type, 5, 76, 256), steps, experts_of, (1, 7, 33, MOST))


def test_experts_in_float16(vulkan_device: None, rng: np.random.Generator) -> None:
    if "float16" not in list_devices("native")[0].features:
        pytest.skip("the device does not compute in float16")
    step = {"x": f32(rng, MOST, 256), "ids": routing(rng, 5, 3)}
    with closing(VulkanBackend(VulkanBackend.Options(activations="half", prepare="never"))) as vulkan:
        check(vulkan, weight(rng, GGMLType.Q4_K, 5, 76, 256), [step], experts_of, (33, MOST))
        if not vulkan._open()[0].cooperative:
            assert any(kernel.startswith("matmul_half.q4_k") for kernel in vulkan._open()[0].kernels.names())


@pytest.mark.parametrize("seed", variants(range(8), range(4)))
def test_tiles_of_random_shapes(vulkan: VulkanBackend, rng: np.random.Generator, monkeypatch: Any, seed: int) -> None:
    """Also where pairs would be products of their own."""
    monkeypatch.setattr(experts, "TILED_TOKENS", 0)
    monkeypatch.setattr(experts, "COOPERATIVE_TOKENS", 0)
    n_matrices = int(rng.integers(1, 300 if seed == 0 else 20))
    n_used, n_rows = int(rng.integers(1, min(n_matrices, 6) + 1)), int(rng.integers(1, 150))
    type, unit = [(GGMLType.Q4_1, 32), (GGMLType.Q6_K, 256), (GGMLType.F16, 1), (GGMLType.F32, 1)][seed % 4]
    columns = int(rng.integers(1, 4)) * unit + (int(rng.integers(0, 90)) if unit == 1 else 0)
    x = f32(rng, MOST, n_used, columns) if rng.integers(2) else f32(rng, MOST, columns)
    inputs = {"x": x, "ids": routing(rng, n_matrices, n_used)}
    tokens = tuple(int(n) for n in rng.integers(1, MOST, 4))
    check(vulkan, weight(rng, type, n_matrices, n_rows, columns), [inputs], experts_of, tokens)


@pytest.mark.parametrize("name", variants(["Q8_0", "Q3_K", "F32"], ["Q3_K", "F32"]))
def test_a_matrix_for_each_head(vulkan: VulkanBackend, rng: np.random.Generator, name: str) -> None:
    check(vulkan, weight(rng, GGMLType[name], 3, 92, 256), [{"x": f32(rng, MOST, 3, 256)}], heads_of, (1, 8, 9, MOST))


@pytest.mark.parametrize(("size", "gate_op"), variants([(64, "silu_mul"), (128, "gelu_mul")], [(128, "gelu_mul")]))
def test_gated_experts_and_their_sum(vulkan: VulkanBackend, rng: np.random.Generator, size: int, gate_op: str) -> None:
    """Gate and up of few pairs are one dispatch, and so are the weighed sum and what it is added to."""

    def build(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
        gate, up = (g.mul_mat_id(a["x"], g.weight("w"), a["ids"]) for _ in range(2))
        down = g.mul_mat_id(getattr(g, gate_op)(gate, up), g.weight("w"), a["ids"])
        return g.expert_sum(down, a["weights"]) + a["x"]

    inputs = {"x": f32(rng, MOST, size), "ids": routing(rng, 40, 3), "weights": f32(rng, MOST, 3)}
    w = weight(rng, GGMLType.Q8_0, 40, size, size)
    check(vulkan, w, [inputs], build, (1, 5, MOST))
    program = compiled(vulkan, w, inputs, build)
    assert isinstance(program, DeviceProgram)
    lone = program.lowered.dispatches(program._buckets.all[0])
    kernels = [each.kernel.split(".")[0] for each in lone]
    assert [name.removesuffix("_int8") for name in kernels] == ["matvec", "matvec", "expert_sum"]
    many = [each.kernel.split(".")[0] for each in program.lowered.dispatches(program._buckets.all[-1])]
    if vulkan._open()[0].lanes and size == 128:
        assert many == ["group", "half", "matmul_lanes", "matmul_lanes", "expert_sum"]
    program.close()


@pytest.mark.parametrize(
    ("n_expert", "gate", "normalize"),
    [(5, "softmax", True), (40, "softmax", False), (9, "sigmoid", True), (70, "softmax_of_chosen", False)],
)
def test_routing_of_a_few_tokens_with_the_order_of_their_pairs(
    vulkan: VulkanBackend, rng: np.random.Generator, monkeypatch: Any, n_expert: int, gate: str, normalize: bool
) -> None:
    """One dispatch gives the shares of two, up to how a driver orders their sums, and the same experts."""
    monkeypatch.setattr(experts, "TILED_TOKENS", 0)
    monkeypatch.setattr(experts, "COOPERATIVE_TOKENS", 0)

    def build(g: GraphBuilder, a: dict[str, Tensor]) -> Tensor:
        ids = g.expert_ids(a["logits"], None, n_used=4, gate=gate)
        weights = g.expert_weights(a["logits"], ids, gate=gate, normalize=normalize, scale=1.5)
        return g.expert_sum(g.mul_mat_id(a["x"], g.weight("w"), ids), weights)

    inputs = {"x": f32(rng, MOST, 64), "logits": 3.0 * f32(rng, MOST, n_expert)}
    inputs["logits"][:3] = np.round(inputs["logits"][:3])  # equal ones: the lower number comes first
    w = weight(rng, GGMLType.Q8_0, n_expert, 64, 64)
    check(vulkan, w, [inputs], build, (3, 16))
    found = []
    for most in (route.MOST_GROUPED, 0):
        monkeypatch.setattr(route, "MOST_GROUPED", most)
        program = compiled(vulkan, w, inputs, build)
        assert isinstance(program, DeviceProgram)
        bucket = next(bucket for bucket in program._buckets.all if bucket.n_tokens == 16)
        assert [each.kernel for each in program.lowered.dispatches(bucket)].count("route_group") == (most > 0)
        found.append(result(program, inputs, 13))
        program.close()
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6 * np.abs(found[0]).max())


@pytest.mark.usefixtures("vulkan_device")
def test_logits_that_are_no_numbers_choose_experts_that_exist() -> None:
    n_expert, n_used = 40, 4
    logits = np.full((2, n_expert), np.nan, np.float32)
    logits[0] = np.arange(n_expert)
    declared = interface("route")
    with open_device("native", 0) as device:
        buffers = {name: device.new_buffer(4 * logits.size, host=True) for name in declared.places}
        buffers["logits"].contents[:] = logits.reshape(-1).view(np.uint8)
        push = declared.pack(rows=FIXED | 2, scale=1.0, **{f"{name}_at": 0 for name in declared.places})
        constants = [32, n_expert, n_used, 0, 1, 0, 1, 1, 1, 1]
        pipeline = device.new_pipeline(shader("route"), 1 + len(buffers), len(push), constants)
        run(device, pipeline, [buffers["logits"], *(buffers[name] for name in declared.places)], push, (2, 1))
        ids = buffers["ids"].contents.view(np.uint32)[: 2 * n_used].reshape(2, n_used).copy()
    assert ids[0].tolist() == [39, 38, 37, 36]
    assert (ids[1] < n_expert).all()


@pytest.mark.usefixtures("vulkan_device")
@pytest.mark.parametrize("in_lanes", [False, True])
def test_a_sum_of_experts_with_the_norm_behind_it(in_lanes: bool) -> None:
    """shaders/norm_half.comp stores the sum, and the norm as float16 in rows or in the order of lanes."""
    n_rows, n_used, width = 5, 3, 256
    random = np.random.default_rng(0)
    x, residual = random.standard_normal((n_rows, n_used, width)), random.standard_normal((n_rows, width))
    shares, weight = random.uniform(0, 1, (n_rows, n_used)), random.uniform(0.5, 1.5, width)
    total = (x * shares[..., None]).sum(1) + residual
    normed = total / np.sqrt((total**2).mean(1, keepdims=True) + 0.1) * weight
    declared = interface("expert_sum_norm")
    with open_device("native", 0) as device:
        operands = {"x": x, "weight": weight, "shares": shares, "residual": residual}
        buffers = {name: device.new_buffer(4 * array.size, host=True) for name, array in operands.items()}
        for name, array in operands.items():
            buffers[name].contents[:] = array.astype(np.float32).reshape(-1).view(np.uint8)
        buffers["sum"] = device.new_buffer(4 * total.size, host=True)
        buffers["y"] = device.new_buffer(2 * 16 * width, host=True)
        places = {f"{name}_at": 0 for name in declared.places}
        push = declared.pack(rows=FIXED | n_rows, n_quads=width // 4, n_used=n_used, eps=0.1, **places)
        constants = [64, 1, 1, LANE_ORDER] if in_lanes else [64, 1, 0, X_UNIT]
        pipeline = device.new_pipeline(shader("expert_sum_norm"), 1 + len(buffers), len(push), constants)
        run(device, pipeline, [buffers["x"], *(buffers[name] for name in declared.places)], push, (n_rows, 1))
        sums = buffers["sum"].contents.view(np.float32).reshape(n_rows, width).copy()
        halves = buffers["y"].contents.view(np.float16).copy()
    np.testing.assert_allclose(sums, total, rtol=1e-5, atol=1e-5)
    if in_lanes:  # of each 128 columns: half of the rows, piece of 16 bytes, row, block of 32, columns
        halves = halves.reshape(2, 2, 4, 8, 4, 8).transpose(1, 3, 0, 4, 2, 5)
    halves = halves.reshape(16, -1, 4)[:n_rows, :, [0, 2, 1, 3]].reshape(n_rows, width)
    np.testing.assert_allclose(halves, normed, rtol=2e-3, atol=2e-3)
