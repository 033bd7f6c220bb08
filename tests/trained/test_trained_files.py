"""Trained models in other files: quantized again, with other chat formats, and a model that hears."""

import re
from pathlib import Path

import pytest

import pumice
from family_templates import FAMILIES
from pumice.check.answers import count_calls
from pumice.check.template import CITIES
from pumice.gguf import GGUFFile
from pumice.quantize import QuantizeOptions, quantize
from trained_loading import NEEDS_MODELS, loaded, path_of
from trained_measures import digest, expected, prediction

pytestmark = [NEEDS_MODELS, pytest.mark.nightly]
QUANTIZED = {"Q8_0": 5e-3, "Q4_0": 0.3, "Q4_K_M": 0.05, "Q2_K": 0.4}
"""Largest mean KL divergence from float32 of a Q4_1 file that is quantized again."""

SPOKEN = Path(__file__).parents[1] / "fixtures" / "spoken.mp3"
"""espeak-ng's voice."""

WORDS = "good morning and welcome to the program today we will talk about the weather in the mountains"


@pytest.mark.parametrize("mix", QUANTIZED)
def test_quantized_files_are_llama_cpps_and_predict_well(mix, tmp_path):
    path = tmp_path / "quantized.gguf"
    quantize(path_of("smollm2"), path, mix, options=QuantizeOptions(allow_requantize=True))
    with GGUFFile.open(path) as file:
        assert digest(file) == expected()["smollm2"]["quantized"][mix]
    with pumice.load(path, n_ctx=512, n_parallel=1, backend="cpu") as model:
        assert prediction(model, expected()["smollm2"]).divergence < QUANTIZED[mix]


@pytest.mark.parametrize("family", FAMILIES)
def test_required_calls_of_each_chat_format_are_calls(family):
    with loaded("smollm2", config={"chat_template": FAMILIES[family]}) as model:
        calls = count_calls(model, "required", len(CITIES))
    assert (calls.called, calls.n) == (len(CITIES), len(CITIES))


def test_a_model_trained_for_tools_calls_them_by_itself():
    """It writes most calls as JSON in a fence, without the marks that its template asks for."""
    with loaded("qwen") as model:
        calls = count_calls(model, "auto", len(CITIES))
    assert (calls.right, calls.n) == (len(CITIES), len(CITIES))


def test_speech_is_heard():
    with pumice.load(path_of("whisper"), backend="cpu") as model:
        text = model.speech.transcribe(SPOKEN, language="en").text
    assert re.sub(r"[^a-z ]", "", text.lower()).strip() == WORDS
