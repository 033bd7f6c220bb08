"""The quantizers of the tests, read back by the gguf package."""

import gguf
import numpy as np
import pytest

from pumice.gguf import GGMLType
from quantizers import ENCODERS, quantize

# Root mean square error of normally distributed numbers: about their range over the number of codes, by √12.
ERROR = {"Q6_K": 0.019, "Q5_K": 0.039, "Q4_K": 0.079, "IQ4_NL": 0.081, "IQ4_XS": 0.081, "Q3_K": 0.16, "Q2_K": 0.33}


@pytest.mark.parametrize("name", ENCODERS)
def test_the_error_is_as_small_as_the_bits_allow(name):
    x = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    y = gguf.quants.dequantize(quantize(x, GGMLType[name]), GGMLType[name])
    error = float(np.sqrt(np.mean((x - y) ** 2)))
    assert 0.9 * ERROR[name] < error < ERROR[name]


@pytest.mark.parametrize("name", ENCODERS)
def test_groups_of_very_different_sizes_keep_their_places(name):
    """A scale, bit or code in a wrong place would show: each group of 32 has its own size, from 1 down to 1/8."""
    rng = np.random.default_rng(1)
    x = (rng.uniform(-1, 1, (32, 8, 32)) * np.linspace(1, 1 / 8, 8)[:, None]).astype(np.float32).reshape(32, 256)
    y = gguf.quants.dequantize(quantize(x, GGMLType[name]), GGMLType[name])
    correlation = [
        np.corrcoef(x[:, group : group + 16].ravel(), y[:, group : group + 16].ravel())[0, 1]
        for group in range(0, 256, 16)
    ]
    assert min(correlation) > (0.9 if name == "Q2_K" else 0.97)


@pytest.mark.parametrize("name", ENCODERS)
def test_zeros_stay_zeros(name):
    assert not gguf.quants.dequantize(quantize(np.zeros((2, 256), np.float32), GGMLType[name]), GGMLType[name]).any()
