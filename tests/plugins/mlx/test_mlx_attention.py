"""Attention of the MLX backend beside the NumPy backend's, and its cache."""

import numpy as np
import pytest

pytest.importorskip("mlx.core")

import mlx.core as mx

from attention_tests import AttentionTests
from nightly import crossed
from pumice.plugin.unstable import KVState, Limits
from pumice_mlx import kv_cache
from pumice_mlx.backend import MlxBackend, MlxOptions
from pumice_mlx.kv_cache import KVCache, Span


class TestAttention(AttentionTests):
    @pytest.fixture
    def backends(self):
        return [MlxBackend(MlxOptions(activations="float32"))]


@pytest.mark.parametrize(("kv_type", "blocks"), crossed(["f32", "f16", "q8_0", "q4_1"], [[2, 3, 4], [4, 1, 2], [5]]))
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
