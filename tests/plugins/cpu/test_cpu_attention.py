"""Attention of the CPU backend beside the NumPy backend's, with one thread and with two."""

import numpy as np
import pytest

from attention_tests import SLOPES, AttentionTests, attend, attend_fixed, attend_to_memory
from pumice.errors import BackendError
from pumice.gguf import KV_TYPES, GGMLType
from pumice_cpu.backend import CpuBackend, CpuOptions
from pumice_numpy import NumpyBackend


class TestAttention(AttentionTests):
    pass


def test_a_type_without_kernels_is_left_to_others(tmp_path, monkeypatch):
    monkeypatch.setitem(KV_TYPES, "mxfp4", GGMLType.MXFP4)
    with pytest.raises(BackendError, match="no backend can run operation attention"):
        attend(tmp_path, CpuBackend(), [(1,)], kv_type="mxfp4")
    assert len(attend(tmp_path, NumpyBackend(), [(3,), (1,)], kv_type="mxfp4")) == 2


def test_rows_of_no_whole_blocks_are_left_to_others(tmp_path):
    with pytest.raises(BackendError, match="no backend can run operation attention"):
        attend(tmp_path, CpuBackend(), [(1,)], heads=(2, 2), dims=(20, 20), kv_type="q4_0")


ALONE = [[(500, 0)], [(1, 0)] * 500, [(37, 0), (200, 64), (1, 1), (1, 0), (2, 9), (259, 3)]]


OPTIONS = [
    *({"kv_type": "f16"}, {"chunk": 128}, {"slopes": SLOPES[:4]}),
    *({"kv_type": "q8_0", "heads": (12, 2), "dims": (64, 48)}, {"window": 70, "sinks": True, "softcap": 3.0}),
    {"window": 300, "sinks": True, "heads": (20, 2)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_token_gets_the_same_bits_whatever_is_beside_it(tmp_path, options):
    """A sequence in one step, token by token, and in parts with another one beside it."""
    backend = CpuBackend(CpuOptions(threads=2))
    whole, *others = (attend_fixed(tmp_path, backend, steps, 500, scale=0.2, **options) for steps in ALONE)
    for other in others:
        np.testing.assert_array_equal(other, whole)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("dim", [16, 64])
def test_attention_to_a_long_memory(tmp_path, kv_type, dim):
    options = {"kv_type": kv_type, "dim": dim, "stored": (700, 33, 256)}
    for lengths in ((1,), (1, 1, 1), (7, 1, 2)):
        (expected,) = attend_to_memory(tmp_path, NumpyBackend(), lengths, **options)
        (actual,) = attend_to_memory(tmp_path, CpuBackend(CpuOptions(threads=2)), lengths, **options)
        np.testing.assert_allclose(actual, expected, rtol=4e-6, atol=2e-6)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_a_query_of_a_memory_gets_the_same_bits_whatever_is_beside_it(tmp_path, kv_type):
    alone, among = (
        attend_to_memory(tmp_path, CpuBackend(), lengths, kv_type=kv_type, dim=64, stored=(700, 33, 256))[0]
        for lengths in ((1, 1, 1), (7, 1, 2))
    )
    np.testing.assert_array_equal(alone[0], among[0])
