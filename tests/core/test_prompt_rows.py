"""Prompts of rows of embeddings, mixed with texts."""

from threading import Event

import numpy as np
import pytest

import pumice

PROMPT = "Once upon a time, there was a dog"
GREEDY = {"max_tokens": 10, "temperature": 0}


@pytest.fixture(scope="module")
def model(demo_model):
    with pumice.load(demo_model("F16"), n_ctx=256, kv_type="f32") as model:
        yield model


@pytest.fixture(scope="module")
def rows(model):
    return model.hidden(PROMPT, layers=["embeddings"])["embeddings"]


def test_rows_of_a_text_stand_for_the_text(model, rows):
    plain = model.generate(PROMPT, **GREEDY)
    assert model.generate([rows], **GREEDY).tokens == plain.tokens
    assert model.generate([rows[:4], rows[4:].astype(np.float64)], **GREEDY).tokens == plain.tokens


def test_rows_are_mixed_with_texts(model, rows):
    tokenizer = model.tokenizer
    before, after = tokenizer.tokenize("Once"), tokenizer.tokenize_following(" who ran")
    inner = tokenizer.tokenize_following(" upon a time, there was a dog")
    expected = model.generate([*before, *inner, *after], **GREEDY)
    middle = model.hidden([*before, *inner], layers=["embeddings"])["embeddings"][len(before) :]
    assert model.generate(["Once", middle, " who ran"], **GREEDY).tokens == expected.tokens
    assert model.generate(["Once", -middle, " who ran"], **GREEDY).tokens != expected.tokens


def test_rows_go_to_another_process(demo_model, model, rows):
    with pumice.load_process(demo_model("F16"), n_ctx=256, kv_type="f32") as other:
        assert other.generate([rows], **GREEDY).tokens == model.generate(PROMPT, **GREEDY).tokens


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([np.zeros((2, 5), np.float32)], r"rows of a prompt must be floats \[n, 256\], not float32 \[2, 5\]"),
        ([np.zeros(256, np.float32)], r"rows of a prompt must be floats \[n, 256\], not float32 \[256\]"),
        ([np.zeros((0, 256), np.float32)], r"rows of a prompt must be floats \[n, 256\], not float32 \[0, 256\]"),
        ([np.zeros((2, 256), np.int32)], r"rows of a prompt must be floats \[n, 256\], not int32 \[2, 256\]"),
        ([np.full((2, 256), np.nan, np.float32)], "rows of a prompt must be finite"),
        ([np.zeros((2, 256), np.float32), 5], "a prompt with rows must be a list of texts and arrays, not 5"),
        (["a", np.zeros((300, 256), np.float32)], "the prompt has 302 tokens, n_ctx is 256"),
    ],
)
def test_wrong_rows_are_refused(model, prompt, message):
    with pytest.raises(pumice.RequestError, match=message):
        model.generate(prompt)


def test_rows_have_no_text_to_echo(model, rows):
    with pytest.raises(pumice.RequestError, match="echo: a prompt with images or sound"):
        model.generate([rows], echo=True)


def test_rows_are_read_beside_functions_of_layers(model, rows):
    expected = model.generate([-rows, " who ran"], cache_salt="alone", **GREEDY).tokens
    begun, waiting = Event(), Event()

    def hold(values, positions):  # the first step of one request, until the other one waits
        begun.set()
        assert waiting.wait(30)

    with model.stream(PROMPT, max_tokens=30, temperature=0, on_layer={0: hold}) as beside:
        assert begun.wait(30)
        with model.stream([-rows, " who ran"], cache_salt="beside", **GREEDY) as stream:
            waiting.set()
            assert stream.completion().tokens == expected
        assert beside.completion().finish_reason == "length"


def test_functions_of_layers_see_rows_of_embeddings(model, rows):
    prompt, seen = [-rows, " who ran"], dict[int, np.ndarray]()

    def watch(values, positions):
        seen.update(zip(positions.tolist(), values, strict=True))

    expected = model.generate(prompt, cache_salt="plain", **GREEDY)
    assert model.generate(prompt, on_layer={0: watch}, **GREEDY).tokens == expected.tokens
    assert seen.keys() == set(range(expected.timings.prompt_tokens + len(expected.tokens) - 1))
    other = model.generate(prompt, on_layer={0: lambda values, positions: -values}, **GREEDY)
    assert other.tokens != expected.tokens
