"""Functions of a request, ``logits_processor`` and ``stopping_criteria``, and the small options of texts."""

import numpy as np
import pytest

import pumice

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model():
    with pumice.load(n_ctx=256, chat_template="plain") as model:
        yield model


def test_a_processor_that_returns_the_logits_changes_nothing(model):
    plain = model.generate(PROMPT, max_tokens=20, seed=5)
    processed = model.generate(PROMPT, max_tokens=20, seed=5, logits_processor=lambda ids, logits: logits)
    assert processed.tokens == plain.tokens


def test_a_processor_sees_all_tokens_and_decides_the_next(model):
    ids = model.tokenizer.tokenize(PROMPT)
    seen = []

    def count_up(tokens, logits):
        assert tokens.dtype == np.int32
        assert logits.dtype == np.float32
        assert logits.shape == (model.n_vocab,)
        seen.append(tokens.tolist())
        forced = np.full_like(logits, -np.inf)
        forced[300 + len(seen)] = 0
        return forced

    completion = model.generate(PROMPT, max_tokens=3, logits_processor=count_up)
    assert completion.tokens == [301, 302, 303]
    assert seen == [ids, [*ids, 301], [*ids, 301, 302]]


def test_the_logits_are_those_of_the_model(model):
    ids, kept = model.tokenizer.tokenize(PROMPT), []
    model.generate(ids, max_tokens=1, logits_processor=lambda tokens, logits: kept.append(logits.copy()) or logits)
    np.testing.assert_allclose(kept[0], model.logits(ids)[-1], rtol=1e-3, atol=1e-3)


def test_criteria_end_the_text_before_the_next_token(model):
    n = len(model.tokenizer.tokenize(PROMPT))
    completion = model.generate(
        PROMPT, max_tokens=50, temperature=0, stopping_criteria=lambda ids, _: len(ids) >= n + 4
    )
    assert completion.finish_reason == "stop"
    assert completion.tokens == model.generate(PROMPT, max_tokens=4, temperature=0).tokens


def test_functions_see_what_a_grammar_allows(model):
    allowed = []

    def note(ids, logits):
        allowed.append(int(np.isfinite(logits).sum()))
        return logits

    completion = model.generate(PROMPT, choices=["yes", "no"], logits_processor=note)
    assert completion.text in ("yes", "no")
    assert 0 < max(allowed) < 20


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ids, logits: None, "logits_processor: must return the logits, not None"),
        (lambda ids, logits: logits[1:], r"logits_processor: must return logits of the shape \(2048,\), not \(2047,\)"),
        (lambda ids, logits: logits * np.nan, "logits_processor: the returned logits contain NaN"),
        (lambda ids, logits: logits + np.inf, "logits_processor: the returned logits contain NaN or infinity"),
        (lambda ids, logits: logits - np.inf, "logits_processor: every token that may come next has the logit -inf"),
        (lambda ids, logits: "x", "logits_processor: must return an array of numbers, not 'x'"),
        (lambda ids: ids, "logits_processor: raised TypeError"),
        (lambda ids, logits: {}["x"], "logits_processor: raised KeyError: 'x'"),
        (5, "logits_processor must be a function, not 5"),
    ],
)
def test_a_wrong_processor_fails_its_request_alone(model, function, message):
    with pytest.raises(pumice.RequestError, match=message):
        model.generate(PROMPT, logits_processor=function)
    assert model.generate(PROMPT, max_tokens=1).tokens


def test_wrong_criteria_fail_their_request(model):
    with pytest.raises(pumice.RequestError, match="stopping_criteria: must return True or False, not None"):
        model.generate(PROMPT, stopping_criteria=lambda ids, logits: None)
    with pytest.raises(pumice.RequestError, match="stopping_criteria: raised ZeroDivisionError") as error:
        model.generate(PROMPT, stopping_criteria=lambda ids, logits: 1 / 0)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_an_engine_elsewhere_takes_no_functions():
    with pumice.load_process(n_ctx=128) as model:
        with pytest.raises(pumice.RequestError, match=r"logits_processor: functions need an engine in this process"):
            model.generate(PROMPT, logits_processor=lambda ids, logits: logits)
        assert model.generate(PROMPT, max_tokens=3, temperature=0, echo=True).text.startswith(PROMPT)


@pytest.mark.parametrize("prompt", [PROMPT, [1, 2]])
def test_echo_begins_with_the_prompt(model, prompt):
    text = prompt if isinstance(prompt, str) else model.tokenizer.detokenize(prompt)
    plain = model.generate(prompt, max_tokens=5, temperature=0)
    echoed = model.generate(prompt, max_tokens=5, temperature=0, echo=True)
    assert echoed.text == text + plain.text
    assert echoed.tokens == plain.tokens
    pieces = list(model.stream(prompt, max_tokens=5, temperature=0, echo=True))
    assert "".join(piece.text for piece in pieces) == echoed.text
    assert model.generate(prompt, max_tokens=0, echo=True).text == text


def test_log_probabilities_by_the_names_of_chat_completions(model):
    def logprobs(**options):
        return model.generate(PROMPT, max_tokens=2, temperature=0, **options).logprobs

    assert logprobs(logprobs=True) == logprobs(logprobs=0)
    assert logprobs(logprobs=True, top_logprobs=2) == logprobs(top_logprobs=2) == logprobs(logprobs=2)
    assert logprobs(logprobs=False) is None


def test_a_suffix_needs_tokens_that_mark_the_parts(model):
    with pytest.raises(pumice.RequestError, match="suffix: this model cannot fill in text"):
        model.generate(PROMPT, suffix="The end")


def test_a_suffix_follows_the_prompt_between_marks(model, monkeypatch):
    marks = {"fim_pre": 11, "fim_suf": 12, "fim_mid": 13}
    monkeypatch.setattr(model.tokenizer, "fim", marks)
    tokenizer = model.tokenizer
    before, after = (tokenizer.tokenize(text, add_special=False) for text in ("The dog", " runs"))
    request = model.request("The dog", suffix=" runs")
    bos = [tokenizer.bos] if tokenizer.add_bos else []
    assert request.prompt == [*bos, 11, *before, 12, *after, 13]


def test_a_chat_of_one_text_and_its_timings(model):
    messages = [{"role": "user", "content": "Hi"}]
    text, listed = (model.chat(prompt, max_tokens=4, temperature=0) for prompt in ("Hi", messages))
    assert text.message == listed.message
    assert text.timings.generated_tokens == 4
    assert text.timings.prompt_tokens == text.usage.prompt_tokens
    with pytest.raises(pumice.RequestError, match="echo: a chat has no such option"):
        model.chat("Hi", echo=True)
