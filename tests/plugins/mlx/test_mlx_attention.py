"""Attention of the MLX backend against the NumPy backend's, over shapes, cache types, and ways to cut a sequence."""

import numpy as np
import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from attention_steps import BIASED, STEPS, WITHOUT_CACHE, attend_to_chosen, attend_to_memory, compare_attention
from pumice.gguf import KV_TYPES
from pumice.plugin.unstable import KVState, Limits
from pumice_mlx import kv_cache
from pumice_mlx.backend import MlxBackend, MlxOptions
from pumice_mlx.kv_cache import KVCache, Span
from pumice_numpy import NumpyBackend


def backend():
    return MlxBackend(MlxOptions(activations="float32"))


def compare(folder, steps, tolerance=1e-5, **options):
    compare_attention(folder, backend(), NumpyBackend(), steps, tolerance, **options)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("dims", [(64, 96), (80, 40)])
def test_cache_types(tmp_path, kv_type, dims):
    """Heads of 80 and 40 values share quantized blocks."""
    compare(tmp_path, STEPS, kv_type=kv_type, heads=(16, 4), dims=dims)


@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (8, 1), (20, 2)])
def test_grouped_heads(tmp_path, heads):
    compare(tmp_path, STEPS, heads=heads, dims=(20, 50))


@pytest.mark.parametrize(("block_size", "kv_type"), [(5, "f16"), (8, "q5_1"), (64, "q4_0")])
def test_block_sizes(tmp_path, block_size, kv_type):
    compare(tmp_path, STEPS, block_size=block_size, kv_type=kv_type, window=40)


@pytest.mark.parametrize("window", [1, 7, 64, 300])
def test_windows(tmp_path, window):
    compare(tmp_path, [*STEPS, (1, 380, 1), (0, 1, 0), (1, 1, 2)], window=window)


def test_softcap_and_sinks(tmp_path):
    compare(tmp_path, STEPS, softcap=3.0, sinks=True, window=30)
    compare(tmp_path, [(400,), (1,), (300,), (1,)], softcap=3.0, sinks=True)
    compare(tmp_path, STEPS, sinks=True)


def test_logarithms_of_sums(tmp_path):
    compare(tmp_path, STEPS, log_sum=True, sinks=True, window=30)
    compare(tmp_path, [(400,), (1,), (300,), (1,)], log_sum=True, dims=(32, 40))


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_values_inside_the_keys(tmp_path, kv_type):
    compare(tmp_path, STEPS, heads=(17, 1), dims=(576, 512), values=False, kv_type=kv_type, scale=0.05)


@pytest.mark.parametrize("options", BIASED.values(), ids=BIASED)
def test_scores_with_a_bias_and_chunks(tmp_path, options):
    compare(tmp_path, STEPS, heads=(8, 2), dims=(64, 32), **options)


@pytest.mark.parametrize("options", WITHOUT_CACHE)
@pytest.mark.parametrize("lengths", [(70, 1, 300), (1,)])
def test_attention_over_the_step_alone(tmp_path, options, lengths):
    compare(tmp_path, [lengths, lengths[::-1]][:1], heads=(6, 2), dims=(40, 24), cache=False, **options)


def test_every_query_sees_what_came_before_and_all_of_its_step(tmp_path):
    compare(tmp_path, STEPS, heads=(4, 2), dims=(32, 32), causal=False)


@pytest.mark.parametrize("lengths", [[3, 1], [1, 2, 30]])
@pytest.mark.parametrize("weights", [(), ("sinks", "bias")], ids=["plain", "relative"])
def test_attention_to_keys_stored_by_another_graph(tmp_path, lengths, weights):
    mine, right = (attend_to_memory(tmp_path, each, lengths, weights) for each in (backend(), NumpyBackend()))
    np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
@pytest.mark.parametrize(("pool", "n_local"), [(1, 0), (4, 0), (8, 0), (4, 2)])
def test_indexers_choose(tmp_path, kv_type, pool, n_local):
    options = {"kv_type": kv_type, "block_size": 32, "pool": pool, "n_local": n_local}
    mine, right = (attend_to_chosen(tmp_path, each, **options) for each in (backend(), NumpyBackend()))
    for a, b in zip(mine, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_1"])
@pytest.mark.parametrize("blocks", [[2, 3, 4], [4, 1, 2], [5]], ids=str)
def test_cells_in_place(monkeypatch, kv_type, blocks):
    """Blocks that follow each other are read where they are; others give the same, by copies."""
    limits = Limits(64, 8, 8, 1, 8, {0: 6}, kv_type)
    cache = KVCache(KVState(0, n_head_kv=2, k_dim=32, v_dim=64), limits)
    rng = np.random.default_rng(1)
    k, v = (mx.array(rng.normal(size=(48, 2, width)).astype(np.float32)) for width in (32, 64))
    cache.write(mx.arange(48), k, v)
    read = cache.read(mx.array(blocks)[None], 64, mx.float32)
    span = Span(np.array(blocks), 3, 8 * len(blocks) - 4, 8)
    in_place = cache.read_span(span, 64, mx.float32)
    for whole, part in zip(read, in_place, strict=True):
        np.testing.assert_array_equal(np.array(whole)[:, :, 3:-1], np.array(part))
    monkeypatch.setattr(kv_cache, "MOST_PIECES", 0)
    for whole, part in zip(in_place, cache.read_span(span, 64, mx.float32), strict=True):
        np.testing.assert_array_equal(np.array(whole), np.array(part))
    assert len(span.pieces) == (2 if blocks == [4, 1, 2] else 1)
