"""Attention of the Vulkan backend against the NumPy backend's, over shapes, cache types, and ways to cut a sequence."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from attention_tests import SLOPES, STEPS, AttentionTests, attend, attend_to_memory, batches
from graphs import Case, Graphed
from nightly import crossed, variants
from pumice.backend.step import Limits
from pumice.errors import BackendError
from pumice.gguf import KV_TYPES, GGMLType
from pumice.plugin.nn import Rope
from pumice_numpy import NumpyBackend
from pumice_vulkan import VulkanBackend
from pumice_vulkan.device import list_devices
from pumice_vulkan.kv_cache import is_quantized
from pumice_vulkan.lower import attention, attention_decode, groups
from pumice_vulkan.lower.attention import AttentionBlock
from pumice_vulkan.probe import matrix_shape
from pumice_vulkan.shaders import FOLDERS
from pumice_vulkan.tuning import DecodeShape, LanesAttentionShape, decode_shape

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")


@pytest.fixture(autouse=True)
def no_matrix_units(monkeypatch):
    """Attention as precise as float32 is, also where there are matrix units."""
    monkeypatch.setattr("pumice_vulkan.probe.working_shape", lambda device: None)


FLOAT16 = 1e-6
"""The normalized mean squared error of queries and weights in float16, whose last bit is worth 1/2048."""


def has_rotations(vulkan):
    """Return True if rotations around a cache were dispatches of their own."""
    return any(kernel.startswith("hadamard") for kernel in vulkan.kernels())


def random_inputs(random, n, shapes):
    return {name: random.standard_normal((n, *shape)).astype("f4") for name, shape in shapes.items()}


def compare(folder, steps, tolerance=1e-5, **options):
    options.setdefault("scale", 0.2)
    limit = options.pop("limit", None)
    vulkan = VulkanBackend()
    actual = attend(folder, vulkan, steps, **options)
    vulkan.close()
    assert not has_rotations(vulkan)
    expected = attend(folder, NumpyBackend(), steps, **options)
    for mine, right in zip(actual, expected, strict=True):
        if limit is None and is_quantized(options.get("kv_type", "f32")):  # a value between two codes may go to either
            limit = FLOAT16
        if limit is not None:
            assert np.mean((mine - right) ** 2) < limit * np.mean(right**2)
        else:
            np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance)


class TestAttention(AttentionTests):
    unit = 8

    @pytest.fixture
    def backends(self):
        vulkan = VulkanBackend()
        yield [vulkan]
        vulkan.close()

    def compare(self, actual, expected, kv_type):
        if is_quantized(kv_type):  # a value between two codes may go to either
            assert np.mean((actual - expected) ** 2) < FLOAT16 * np.mean(expected**2)
        else:
            super().compare(actual, expected, kv_type)


SHAPES = {
    "wide": AttentionBlock(64, 8, 4),
    "narrow": AttentionBlock(64, 4, 2),
    "many threads": AttentionBlock(256, 2, 2),
}
IN_BLOCKS = {
    "float16": {"kv_type": "f16", "heads": (6, 2), "dims": (64, 64)},
    "blocks": {"kv_type": "q8_0", "block_size": 5, "sinks": True, "heads": (4, 1), "dims": (64, 128)},
    "window": {"window": 30, "softcap": 3.0, "heads": (3, 3), "dims": (20, 50)},
    "bias": {"slopes": SLOPES[:8], "reach": 3, "sinks": True, "heads": (8, 2), "dims": (32, 32)},
}


@pytest.mark.parametrize(("shape", "options"), crossed(list(SHAPES), list(IN_BLOCKS)))
def test_blocks_of_scores(tmp_path, monkeypatch, shape, options):
    """The kernel for devices that compute faster than they read shared memory."""
    monkeypatch.setattr(attention, "BLOCKS", {32: [SHAPES[shape]]})
    monkeypatch.setattr(attention, "QUANTIZED_BLOCKS", {32: [SHAPES[shape]]})
    monkeypatch.setattr(attention, "_attend_in_tiles", None)
    compare(tmp_path, STEPS, **IN_BLOCKS[options])


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_one_token_in_workgroups_of_a_gpu(tmp_path, kv_type):
    """A software device takes smaller ones."""

    def wide(*args):
        return replace(decode_shape(*args), threads=256, rounds=2)

    with mock.patch.object(attention_decode, "decode_shape", wide):
        compare(tmp_path, [(127, 30), (1, 1), (1, 4), (150, 0), (1, 1)], kv_type=kv_type, heads=(6, 2), sinks=True)


@pytest.mark.parametrize("kv_type", variants(["f16", "q8_0"], ["f16"]))
def test_a_lone_token_of_several_heads_and_parts(tmp_path, kv_type):
    """Workgroups that go around several times, with another number of heads than they have room for."""
    late = kv_type == "f16"
    shape = DecodeShape(threads=64, lanes=4, unroll=2, rounds=1, heads=2, max_parts=1 if late else 4, late=late)
    steps = [(7,), (1,), (1,), (30,), (1,), (260,), (1,), (1,)]
    with mock.patch.object(attention_decode, "decode_shape", return_value=shape):
        compare(tmp_path, steps, kv_type=kv_type, heads=(6, 2))
        compare(tmp_path, steps, kv_type=kv_type, window=100, sinks=True, softcap=3.0)


#: A prompt, then steps of a few tokens of each sequence.
TOGETHER = [(140, 30), (4, 4), (1, 7), (8, 0), (0, 2), (3, 1), (1, 1)]


@pytest.mark.parametrize(
    "options",
    [
        {"kv_type": "f16", "heads": (6, 2), "dims": (64, 64)},
        {"kv_type": "q8_0", "block_size": 5, "sinks": True},
        {"window": 3, "softcap": 3.0, "heads": (3, 3), "dims": (20, 50)},
    ],
    ids=["float16", "blocks", "window"],
)
def test_a_few_tokens_of_a_sequence(tmp_path, monkeypatch, options):
    """One dispatch, whose workgroups compute the keys of the tokens before."""
    shape = DecodeShape(threads=64, lanes=4, unroll=1, rounds=1, heads=2, max_parts=32)  # parts of few positions
    monkeypatch.setattr(attention, "_attend_in_parts", None)
    monkeypatch.setattr(attention_decode, "decode_shape", lambda *_: shape)
    compare(tmp_path, TOGETHER, **options)


HEADS = [((6, 2), 64), ((4, 4), 128), ((8, 1), 40)]


@pytest.mark.parametrize(
    ("heads", "dim", "neox"),
    variants([(*shape, neox) for shape in HEADS for neox in (False, True)], [(*HEADS[1], True), (*HEADS[2], False)]),
)
def test_norms_of_queries_and_keys_in_the_dispatch_of_attention(tmp_path, monkeypatch, heads, dim, neox):
    """Norms are other dispatches if the pairs of a head do not fill subgroups: of 40 values subgroups of 8."""
    random = np.random.default_rng(0)
    weights = {name: random.uniform(0.5, 1.5, dim).astype("f4") for name in ("q_norm", "k_norm")}
    shapes = {"q": (heads[0], dim), "k": (heads[1], dim), "v": (heads[1], dim)}
    rope = Rope(n_rot=dim // 4 * 2, neox=neox, freq_base=10000.0)

    def build(g, a):
        turned = [rope(g, g.rms_norm(a[name], g.weight(f"{name}_norm"), eps=0.1)) for name in "qk"]
        return g.attention(*turned, a["v"], scale=0.1)

    def results(backend, joined):
        monkeypatch.setattr(attention_decode, "WITH_NORMS", joined)
        case = Case(build, {name: np.zeros((1, *shape), "f4") for name, shape in shapes.items()}, weights)
        graphed = Graphed(tmp_path, backend, case, Limits(256, 64, 64, 2, 32, {0: 16}, "f32"))
        rows = np.random.default_rng(1)
        for step in batches([(30, 20), (1, 1), (3, 4), (1, 1)], 256, 32, 0):
            yield graphed(random_inputs(rows, len(step.tokens), shapes), step)

    vulkan = VulkanBackend()
    with mock.patch.object(groups, "attend_alone", wraps=groups.attend_alone) as alone:
        in_one = list(results(vulkan, True))
    apart = list(results(vulkan, False))
    vulkan.close()
    n_lanes = alone.call_args_list[0].args[0].device.subgroup_size
    assert any(len(call.args) > 5 for call in alone.call_args_list) == (dim // 2 % n_lanes == 0)
    for one, other, right in zip(in_one, apart, results(NumpyBackend(), False), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(other, right, rtol=1e-5, atol=1e-5)


#: Sizes of heads of which queries, keys and values are rotated around a cache, the former two, the last one or none.
ROTATED = [(64, 64), (128, 128), (256, 256), (96, 96), (80, 64), (80, 80)]


@pytest.mark.parametrize(
    ("dims", "kv_type"),
    variants(product(ROTATED, ["q8_0", "q5_1", "q4_0"]), [*zip(ROTATED[1::2], ["q4_0", "q8_0", "q4_0"], strict=True)]),
)
def test_rotations_around_a_cache(tmp_path, dims, kv_type):
    """Single tokens, up to eight, and prompts in blocks of scores and in tiles."""
    steps = [(140, 30), (1, 7), (8, 0), (1, 1)]  # others would be other kernels, which do not differ in rotations
    compare(tmp_path, steps, dims=dims, kv_type=kv_type, rotates_caches=True, heads=(6, 2), sinks=True)


@pytest.mark.parametrize("n_ctx", [128, 1024], ids=["one part", "parts"])
@pytest.mark.parametrize("dims", [(64, 64), (32, 192)])
def test_rotations_of_a_few_tokens_in_parts(tmp_path, monkeypatch, dims, n_ctx):
    monkeypatch.setattr(attention, "attend_alone", lambda *_: False)
    steps = [(n_ctx // 4, 30), (1, 5), (0, 1), (3, 3)]
    options = {"dims": dims, "kv_type": "q8_0", "heads": (20, 2), "slopes": SLOPES, "sinks": True}
    compare(tmp_path, steps, rotates_caches=True, n_ctx=n_ctx, **options)


def test_rotations_of_keys_stored_by_another_graph(tmp_path):
    vulkan, options = VulkanBackend(), {"kv_type": "q8_0", "dim": 64, "rotates_caches": True}
    for lengths in ([3, 1], [1, 2, 30]):
        (mine,), (right,) = (attend_to_memory(tmp_path, each, lengths, **options) for each in (vulkan, NumpyBackend()))
        assert np.mean((mine - right) ** 2) < FLOAT16 * np.mean(right**2)
    vulkan.close()
    assert not has_rotations(vulkan)


def test_a_cache_of_floats_is_rotated_by_other_dispatches(tmp_path):
    vulkan, steps, options = VulkanBackend(), [(9, 3), (1, 1)], {"dims": (64, 64), "rotates_caches": True}
    actual, expected = (attend(tmp_path, each, steps, **options) for each in (vulkan, NumpyBackend()))
    vulkan.close()
    for mine, right in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)
    assert has_rotations(vulkan)


@pytest.mark.parametrize("values", [True, False])
def test_a_layer_attends_to_the_cache_of_another(tmp_path, values):
    shapes = {"q": (4, 16), "k": (2, 16), "v": (2, 16)}
    how = {"scale": 0.2, "v_dim": 0 if values else 16}

    def build(g, a):
        own = g.attention(a["q"], a["k"], a["v"] if values else None, **how)
        return own + g.attention(own, None, None, cache=g.cache(0), **how)

    def results(backend):
        random = np.random.default_rng(0)
        case = Case(build, {name: np.zeros((1, *shape), "f4") for name, shape in shapes.items()}, {})
        graphed = Graphed(tmp_path, backend, case, Limits(256, 64, 64, 1, 32, {0: 8}, "f16"))
        for step in batches([(30,), (3,), (1,)], 256, 32, 0):
            yield graphed(random_inputs(random, len(step.tokens), shapes), step)

    for mine, right in zip(results(VulkanBackend()), results(NumpyBackend()), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)


def test_a_type_without_kernels_is_left_to_others(tmp_path, monkeypatch):
    monkeypatch.setitem(KV_TYPES, "mxfp4", GGMLType.MXFP4)
    with pytest.raises(BackendError, match="no backend can run operation attention"):
        attend(tmp_path, VulkanBackend(), [(1,)], kv_type="mxfp4", scale=1.0)
    assert len(attend(tmp_path, NumpyBackend(), [(3,), (1,)], kv_type="mxfp4", scale=1.0)) == 2


@pytest.fixture
def matrix_units(monkeypatch, no_matrix_units):
    """Attention on the matrix units of the first device, of whatever shape they are (8x8x8 in Mesa's lavapipe)."""
    monkeypatch.setattr("pumice_vulkan.quirks.QUIRKS", ())  # which leave lavapipe without matrix units
    shape = matrix_shape(list_devices()[0])
    if not shape:
        pytest.skip("no matrix units")
    monkeypatch.setattr("pumice_vulkan.probe.working_shape", lambda device: shape)
    with mock.patch.object(attention, "_attend_in_tiles", side_effect=AssertionError("not on matrix units")):
        yield


#: Ways to attend to the step alone.
ALONE = [{}, {"causal": False}, {"causal": False, "window": 33}, {"causal": False, "chunk": 33}]


@pytest.mark.usefixtures("matrix_units")
class TestMatrixUnits:
    @pytest.mark.parametrize(
        ("kv_type", "dims"), crossed([name for name in KV_TYPES if name != "f32"], [(64, 64), (128, 128), (64, 96)])
    )
    def test_cache_types(self, tmp_path, kv_type, dims):
        compare(tmp_path, STEPS, kv_type=kv_type, heads=(8, 2), dims=dims, limit=FLOAT16)

    @pytest.mark.parametrize(
        ("dims", "kv_type"),
        variants(
            product([(64, 64), (128, 128), (96, 192)], ["q8_0", "q5_1", "q4_0"]),
            [((64, 64), "q4_0"), ((96, 192), "q8_0")],
        ),
    )
    def test_rotations(self, tmp_path, kv_type, dims):
        compare(tmp_path, STEPS, kv_type=kv_type, heads=(8, 2), dims=dims, rotates_caches=True, limit=FLOAT16)

    @pytest.mark.parametrize("heads", [(3, 3), (6, 2), (20, 2)])
    def test_grouped_heads(self, tmp_path, heads):
        compare(tmp_path, STEPS, kv_type="f16", heads=heads, dims=(16, 48), limit=FLOAT16)

    def test_long_prompt(self, tmp_path):
        compare(tmp_path, [(400,), (200,)], kv_type="f16", dims=(80, 80), limit=FLOAT16)

    @pytest.mark.parametrize("block_size", [5, 64])
    def test_block_sizes_and_windows(self, tmp_path, block_size):
        compare(tmp_path, STEPS, block_size=block_size, kv_type="f16", window=40, limit=FLOAT16)

    def test_softcap_and_sinks(self, tmp_path):
        compare(tmp_path, STEPS, kv_type="f16", softcap=3.0, sinks=True, window=30, limit=FLOAT16)
        compare(tmp_path, [(140,), (30,)], kv_type="f16", sinks=True, limit=FLOAT16)

    @pytest.mark.parametrize(
        ("options", "dims", "heads"), crossed(ALONE, [(40, 24), (72, 72), (64, 64)], [(6, 2), (4, 4)])
    )
    def test_attention_over_the_step_alone(self, tmp_path, heads, dims, options):
        """Heads that are no whole fragments are padded."""
        compare(tmp_path, [(70, 1, 300)], heads=heads, dims=dims, cache=False, limit=FLOAT16, **options)

    def test_attention_over_a_cache_in_both_directions(self, tmp_path):
        compare(tmp_path, [(5, 130, 0), (3, 20, 33)], kv_type="f16", causal=False, limit=FLOAT16)
        compare(tmp_path, [(5, 130, 0), (3, 20, 33)], kv_type="f16", chunk=48, limit=FLOAT16)


def emulate(monkeypatch, sums_by_rows):
    """Let a workgroup of 32 invocations emulate the fragments of matrix units."""
    monkeypatch.setattr("pumice_vulkan.shaders.FOLDERS", [*FOLDERS, Path(__file__).parent / "shaders" / "spv"])
    open_one = VulkanBackend._open_one
    monkeypatch.setattr(VulkanBackend, "_open_one", lambda *args: replace(open_one(*args), sums_by_rows=sums_by_rows))


@pytest.fixture(params=variants([True, False], [False]), ids=["by rows", "by columns"])
def emulated_lanes(request, monkeypatch, no_matrix_units):
    """Attention in the lanes of matrix units."""
    emulate(monkeypatch, request.param)
    shapes = {(64, 64): (2, 32), (128, 128): (1, 32), (96, 64): (2, 16)}
    shapes = {dims: LanesAttentionShape(1, *shape) for dims, shape in shapes.items()}
    monkeypatch.setattr(attention, "LANES_ATTENTION", shapes)
    monkeypatch.setattr(attention, "LANES_KERNEL", "attention_lanes_emulated")
    with mock.patch.object(attention, "_attend_in_tiles", side_effect=AssertionError("not in lanes")):
        yield


@pytest.mark.usefixtures("emulated_lanes")
class TestLanes:
    @pytest.mark.parametrize(
        ("dims", "kv_type"),
        variants(
            product([(64, 64), (128, 128), (96, 64)], ["f16", "q8_0"]),
            [((64, 64), "f16"), ((128, 128), "q8_0"), ((96, 64), "f16")],
        ),
    )
    def test_cache_types(self, tmp_path, kv_type, dims):
        compare(tmp_path, [(1, 70, 0), (1, 12, 33)], kv_type=kv_type, heads=(8, 2), dims=dims, limit=FLOAT16)

    @pytest.mark.parametrize("dims", [(64, 64), (128, 128)])
    def test_rotations(self, tmp_path, dims):
        steps = [(1, 70, 0), (1, 12, 33)]
        compare(tmp_path, steps, kv_type="q8_0", heads=(8, 2), dims=dims, rotates_caches=True, limit=FLOAT16)

    @pytest.mark.parametrize("heads", [(8, 2), (3, 3)])
    def test_many_sequences_of_a_tile(self, tmp_path, heads):
        """Workgroups share a tile's sequences, those of one token and the beginnings of prompts behind them."""
        before, step = [*range(3, 43, 2), 0, 5], [*[1] * 20, 30, 9]
        dispatched, dispatch = [], attention.Lowering.dispatch

        def note(self, kernel, **options):
            dispatched.append((kernel, options.get("push", {}).get("n_parts"), options.get("grid")))
            return dispatch(self, kernel, **options)

        with mock.patch.object(attention.Lowering, "dispatch", note):
            compare(tmp_path, [tuple(before), tuple(step)], kv_type="f16", heads=heads, dims=(64, 64), limit=FLOAT16)
        assert any("lanes" in kernel and n_shared for kernel, n_shared, _ in dispatched)

    def test_a_shared_tile_has_the_same_results(self, tmp_path, monkeypatch):
        """Lavapipe ends loops after 65,535 turns, so one workgroup emulates a dozen blocks of positions at most."""

        def results():
            vulkan = VulkanBackend()
            steps = [(*range(3, 21, 2), 0), (*[1] * 9, 20)]
            outputs = attend(tmp_path, vulkan, steps, kv_type="f16", heads=(3, 3), dims=(64, 64), scale=0.2)
            vulkan.close()
            return outputs

        shared = results()
        monkeypatch.setattr(attention, "_shared_tiles", lambda *_: 0)
        for mine, alone in zip(shared, results(), strict=True):
            np.testing.assert_array_equal(mine, alone)

    def test_a_shape_of_the_text(self, tmp_path, monkeypatch):
        shape = LanesAttentionShape(1, 2, 16, fixed=True)
        monkeypatch.setattr(attention, "LANES_ATTENTION", {(128, 128): shape})
        compare(tmp_path, [(1, 70, 0), (1, 12, 33)], kv_type="f16", heads=(8, 2), dims=(128, 128), limit=FLOAT16)

    def test_windows_softcap_and_sinks(self, tmp_path):
        compare(tmp_path, [(5, 40)], kv_type="f16", dims=(64, 64), softcap=3.0, sinks=True, window=30, limit=FLOAT16)
        compare(tmp_path, [(40,), (30,)], kv_type="f16", dims=(64, 64), sinks=True, block_size=5, limit=FLOAT16)

    @pytest.mark.parametrize("options", ALONE)
    def test_attention_over_the_step_alone(self, tmp_path, options):
        compare(tmp_path, [(40, 1, 90)], heads=(3, 3), dims=(64, 64), cache=False, limit=FLOAT16, **options)


@pytest.fixture(params=variants([True, False], [True]), ids=["by rows", "by columns"])
def emulated_units(request, monkeypatch, no_matrix_units):
    """Attention of single tokens on matrix units."""
    emulate(monkeypatch, request.param)
    monkeypatch.setattr(attention_decode, "UNITS_KERNEL", "attention_decode_units_emulated")
    monkeypatch.setattr(attention, "LANES_ATTENTION", {})
    shapes = mock.Mock(side_effect=lambda per_key, *_: DecodeShape(32, 1, 1, 1, per_key, 1, units=True))
    monkeypatch.setattr(attention_decode, "units_shape", shapes)
    yield shapes
    assert shapes.called


class TestUnits:
    @pytest.mark.parametrize(
        ("heads", "dims"),
        variants(
            product([(8, 2), (3, 3), (8, 1)], [(64, 64), (128, 128), (96, 64)]),
            [((8, 2), (64, 64)), ((3, 3), (128, 128)), ((8, 1), (96, 64))],
        ),
    )
    def test_heads(self, tmp_path, emulated_units, dims, heads):
        steps = [(1, 70, 15), (1, 1, 1), (1, 1, 0), (0, 1, 0)]
        compare(tmp_path, steps, kv_type="f16", heads=heads, dims=dims, block_size=32, limit=FLOAT16)

    @pytest.mark.parametrize("parts", [1, 3])
    def test_windows_softcap_and_sinks(self, tmp_path, emulated_units, parts):
        shape = DecodeShape(32, 1, 1, 1, 4, parts, units=True)
        emulated_units.side_effect = lambda *_: shape
        steps = [(5, 40), (1, 1), (1, 1)]
        options = {"kv_type": "f16", "heads": (8, 2), "dims": (64, 64), "block_size": 16, "limit": FLOAT16}
        compare(tmp_path, steps, softcap=3.0, sinks=True, window=21, **options)
        compare(tmp_path, [(100, 15), *steps], sinks=True, **options)
        compare(tmp_path, [(100, 15), *steps], **options)
