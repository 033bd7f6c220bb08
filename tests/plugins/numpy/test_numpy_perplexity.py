"""A trained model in every quantization type: what quantizing costs, measured on stories it was not trained on.

tests/fixtures/demo_model.json has what this backend measured, and llama.cpp on the same files.
"""

import json
from pathlib import Path

import pytest

from demo_models import TYPES, perplexity
from nightly import variants

EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "demo_model.json").read_text())
TEXTS = EXPECTED["held_out"]["texts"]
RECORDED = {name: measured["tests"] for name, measured in EXPECTED["types"].items()}

# Most that a type may cost, relative to F16.
COST = {"Q8_0": 0.001, "Q6_K": 0.001, "Q5_K": 0.001, "Q5_1": 0.001, "Q5_0": 0.001, "Q3_K": 0.01, "Q2_K": 0.1}
COST_OF_4_BITS = 0.005


@pytest.mark.parametrize("name", variants(TYPES, ["Q4_K"]))
def test_perplexity(demo_model, name):
    measured = perplexity(demo_model(name), TEXTS, backend="numpy")
    assert measured == pytest.approx(RECORDED[name]["numpy"], rel=1e-3)
    assert measured == pytest.approx(RECORDED[name]["llama.cpp"], rel=2e-3)
    assert measured < RECORDED["F16"]["llama.cpp"] * (1 + COST.get(name, COST_OF_4_BITS))
