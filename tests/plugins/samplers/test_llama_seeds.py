"""With llama.cpp's random numbers a seed gives llama-server's text: see tests/make_fixtures/llama_seeds.py."""

import json
from pathlib import Path

import numpy as np
import pytest

import pumice
from pumice.quantize import QuantizeOptions, quantize
from pumice.sampler import SamplerContext
from pumice.sampler.chain import Chain
from pumice.sampler.random import make_rng
from pumice_samplers import SAMPLERS

CASES = json.loads((Path(__file__).parents[2] / "fixtures" / "llama_seeds.json").read_text())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("seeds") / "demo.gguf"
    quantize(pumice.demo_model_path(), path, "F32", options=QuantizeOptions(allow_requantize=True))
    with pumice.load(path, backend="numpy", kv_type="f32") as model:
        yield model


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"seed{case['seed']}")
def test_the_same_text(model, case):
    options = {name: value for name, value in case.items() if name != "tokens"}
    assert model.generate("Once upon a time", max_tokens=40, rng="mt19937", **options).tokens == case["tokens"]


def test_numbers_are_those_of_the_c_standard_library():
    """Printed by g++ 12 for std::mt19937(1234567): four doubles, then four floats of the range 0 to 1."""
    rng = make_rng("mt19937", 1234567)
    doubles = [0.465175062240341, 0.36261613806887727, 0.93125294941007863, 0.92870810565377881]
    assert [rng.random() for _ in range(4)] == doubles
    floats = [0.0994546637, 0.061066363, 0.195174292, 0.0511189029]
    assert rng.random(4, dtype=np.float32) == pytest.approx(floats, rel=1e-8)


def test_a_device_is_told_the_numbers_that_come():
    context = SamplerContext(10, seed=7, kind="mt19937")
    chain = Chain([SAMPLERS["dist"]()], context)
    coming = chain.peek(3)
    assert coming == pytest.approx([context.rng.random() for _ in range(3)])


def test_other_random_numbers(model):
    with pytest.raises(pumice.RequestError, match="rng must be pcg64 or mt19937, not 'dice'"):
        model.generate("a", rng="dice")
