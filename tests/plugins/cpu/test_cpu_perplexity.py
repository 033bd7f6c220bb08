"""A trained model in every quantization type: the kernels predict as well as the NumPy backend and llama.cpp."""

import json
from pathlib import Path

import pytest

from demo_models import TYPES, perplexity
from nightly import variants

EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "demo_model.json").read_text())


@pytest.mark.parametrize("name", variants(TYPES, ["Q8_0", "Q4_K", "IQ4_XS"]))
def test_perplexity(demo_model, name):
    measured = perplexity(demo_model(name), EXPECTED["held_out"]["texts"], backend="cpu")
    recorded = EXPECTED["types"][name]["tests"]
    assert measured == pytest.approx(recorded["numpy"], rel=5e-3)
    assert measured == pytest.approx(recorded["llama.cpp"], rel=5e-3)
