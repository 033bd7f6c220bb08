"""With llama.cpp's random numbers a seed gives llama-server's text: see tests/make_fixtures/README.md."""

import json
from pathlib import Path

import numpy as np
import pytest

import pumice
from pumice.quantize import QuantizeOptions, quantize

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


def test_other_random_numbers(model):
    for kind in ("dice", ["pcg64"], np.zeros(2)):
        with pytest.raises(pumice.RequestError, match="rng must be pcg64 or mt19937, not "):
            model.generate("a", rng=kind)
