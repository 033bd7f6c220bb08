"""Attention of the CPU backend against the NumPy backend's, over shapes, cache types, and ways to cut a sequence."""

import random

import numpy as np
import pytest

from attention_steps import (
    BIASED,
    SLOPES,
    STEPS,
    WITHOUT_CACHE,
    attend,
    attend_fixed,
    attend_to_chosen,
    attend_to_memory,
    compare_attention,
)
from pumice.errors import BackendError
from pumice.gguf import KV_TYPES, GGMLType
from pumice_cpu.backend import CpuBackend, CpuOptions
from pumice_numpy import NumpyBackend

each_set = pytest.mark.every_instruction_set


def compare(folder, steps, tolerance=1e-5, **options):
    compare_attention(folder, CpuBackend(CpuOptions(threads=2)), NumpyBackend(), steps, tolerance, **options)


ON_EACH_SET = ("f16", "q4_0")
RARE = ("bf16", "q5_0", "q4_1")


@pytest.mark.parametrize(
    "kv_type",
    [
        pytest.param(name, marks=each_set if name in ON_EACH_SET else pytest.mark.nightly if name in RARE else ())
        for name in KV_TYPES
    ],
)
@pytest.mark.parametrize("dims", [(64, 96), (80, 40)])
def test_cache_types(tmp_path, kv_type, dims):
    """Heads of 80 and 40 values share quantized blocks."""
    compare(tmp_path, STEPS, kv_type=kv_type, heads=(16, 4), dims=dims)


@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (8, 1), (20, 2)])
def test_grouped_heads(tmp_path, heads):
    compare(tmp_path, STEPS, heads=heads, dims=(20, 50))


@pytest.mark.parametrize(
    ("block_size", "kv_type"),
    [(5, "f16"), (8, "q5_1"), (16, "f16"), (64, "q4_0")],
)
def test_block_sizes(tmp_path, block_size, kv_type):
    compare(tmp_path, STEPS, block_size=block_size, kv_type=kv_type, window=40)


@pytest.mark.parametrize("window", [1, 7, 64, 300])
def test_windows(tmp_path, window):
    compare(tmp_path, [*STEPS, (1, 380, 1), (0, 1, 0), (1, 1, 2)], window=window)


@each_set
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_steps_alone_of_random_shapes(tmp_path, threads):
    """Without a cache, as encoders attend: by kernels/attention_step.py where registers are wide."""
    rng = random.Random(threads)
    cpu, numpy = CpuBackend(CpuOptions(threads=threads)), NumpyBackend()
    for _ in range(12):
        n_head_kv = rng.choice([1, 2, 3])
        heads = (n_head_kv * rng.choice([1, 2, 5]), n_head_kv)
        dims = rng.choice([2, 8, 18, 20, 50, 64, 72]), rng.choice([1, 2, 7, 8, 15, 17, 24, 31, 47, 80])
        lengths = tuple(rng.choice([1, 2, 3, 15, 17, 64, 70, 100]) for _ in range(rng.choice([1, 2, 3])))
        if max(lengths) < 3:
            lengths = (*lengths, 257)
        extent = rng.choice([1, 2, 5, 16, 33, 300])
        mask = rng.choice([{}, {"causal": False}, {"window": extent}, {"causal": False, "window": extent}])
        mask = rng.choice([mask, {"causal": False, "chunk": extent}])
        options = {"heads": heads, "dims": dims, "cache": False, "scale": 0.2, **mask}
        mine, right = (attend(tmp_path, backend, [lengths], **options) for backend in (cpu, numpy))
        for a, b in zip(mine, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"{lengths} {options}")


def test_softcap_and_sinks(tmp_path):
    compare(tmp_path, STEPS, softcap=3.0, sinks=True, window=30)
    compare(tmp_path, [(400,), (1,), (300,), (1,)], softcap=3.0, sinks=True)


def test_logarithms_of_sums(tmp_path):
    compare(tmp_path, STEPS, log_sum=True, sinks=True, window=30)
    compare(tmp_path, [(400,), (1,), (300,), (1,)], log_sum=True, dims=(32, 40))


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_values_inside_the_keys(tmp_path, kv_type):
    compare(tmp_path, STEPS, heads=(17, 1), dims=(576, 512), values=False, kv_type=kv_type, scale=0.05)


def test_one_token_at_a_time_over_several_parts(tmp_path):
    compare(tmp_path, [(255,), (1,), (1,), (350,), (1,), (1,)])
    compare(tmp_path, [(500,), (100,), (1,), (1,)], window=290)


@pytest.mark.parametrize("options", BIASED.values(), ids=BIASED)
def test_scores_with_a_bias_and_chunks(tmp_path, options):
    """In float32, whose kernels other tests compile too; ``test_cache_types`` has the types of the cache."""
    compare(tmp_path, STEPS, heads=(8, 2), dims=(64, 32), **{**options, "kv_type": "f32"})


@pytest.mark.parametrize("options", WITHOUT_CACHE)
@pytest.mark.parametrize("lengths", [(70, 1, 300), (1,)])
def test_attention_over_the_step_alone(tmp_path, options, lengths):
    compare(tmp_path, [lengths, lengths[::-1]][:1], heads=(6, 2), dims=(40, 24), cache=False, **options)


@pytest.mark.parametrize("lengths", [(70, 1, 300), (300, 16, 64)])
def test_keys_of_a_step_alone_in_whole_tiles(tmp_path, lengths):
    """Sequences begin at a tile and between two, and end so."""
    compare(tmp_path, [lengths], heads=(2, 2), dims=(64, 96), cache=False, causal=False)


@pytest.mark.parametrize("lengths", [[3, 1], [1, 2, 30]])
@pytest.mark.parametrize("weights", [(), ("sinks", "bias")], ids=["plain", "relative"])
def test_attention_to_keys_stored_by_another_graph(tmp_path, lengths, weights):
    mine, right = (attend_to_memory(tmp_path, backend, lengths, weights) for backend in (CpuBackend(), NumpyBackend()))
    np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)


def test_any_number_of_threads_gives_the_same_bits(tmp_path):
    steps = [(300, 40), (1, 30), (1, 0), (1, 1)]
    one, *others = (
        attend(tmp_path, CpuBackend(CpuOptions(threads=n)), steps, heads=(8, 1), kv_type="f16", scale=0.2)
        for n in (1, 2, 3)
    )
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_type_without_kernels_is_left_to_others(tmp_path, monkeypatch):
    monkeypatch.setitem(KV_TYPES, "mxfp4", GGMLType.MXFP4)
    with pytest.raises(BackendError, match="no backend can run operation attention"):
        attend(tmp_path, CpuBackend(), [(1,)], kv_type="mxfp4", scale=1.0)
    assert len(attend(tmp_path, NumpyBackend(), [(3,), (1,)], kv_type="mxfp4", scale=1.0)) == 2


def test_rows_of_no_whole_blocks_are_left_to_others(tmp_path):
    with pytest.raises(BackendError, match="no backend can run operation attention"):
        attend(tmp_path, CpuBackend(), [(1,)], heads=(2, 2), dims=(20, 20), kv_type="q4_0", scale=1.0)


ALONE = [[(500, 0)], [(1, 0)] * 500, [(37, 0), (200, 64), (1, 1), (1, 0), (2, 9), (259, 3)]]


@pytest.mark.parametrize(
    "options",
    [
        {"kv_type": "f16"},
        {"kv_type": "q8_0", "heads": (12, 2), "dims": (64, 48)},
        {"window": 70, "sinks": True, "softcap": 3.0},
        {"window": 300, "sinks": True, "heads": (20, 2)},
        {"chunk": 128},
        {"slopes": SLOPES[:4]},
    ],
    ids=str,
)
def test_a_token_gets_the_same_bits_whatever_is_beside_it(tmp_path, options):
    """A sequence in one step, token by token, and in parts with another one beside it."""
    backend = CpuBackend(CpuOptions(threads=2))
    whole, *others = (attend_fixed(tmp_path, backend, steps, 500, scale=0.2, **options) for steps in ALONE)
    for other in others:
        np.testing.assert_array_equal(other, whole)


@pytest.mark.parametrize(
    ("kv_type", "block_size", "pool"), [("f32", 32, 1), ("q8_0", 32, 1), ("f16", 5, 1), ("f32", 32, 4), ("f16", 5, 3)]
)
@pytest.mark.parametrize("n_local", [0, 2])
def test_chosen_positions(tmp_path, kv_type, block_size, pool, n_local):
    cpu = attend_to_chosen(tmp_path, CpuBackend(CpuOptions(threads=2)), kv_type, block_size, pool, n_local=n_local)
    numpy = attend_to_chosen(tmp_path, NumpyBackend(), kv_type, block_size, pool, n_local=n_local)
    for actual, expected in zip(cpu, numpy, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
