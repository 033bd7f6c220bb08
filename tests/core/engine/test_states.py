"""``model.cache.state`` and ``restore``: the KV cache of a prompt as bytes."""

import pytest

import pumice

PROMPT = "Once upon a time there was a little dog who liked to run in the park with a ball. " * 5


@pytest.fixture(scope="module")
def state():
    with pumice.load(n_ctx=512) as model:
        yield model.cache.state(PROMPT)


def test_another_model_goes_on_where_the_state_ends(state):
    with pumice.load(n_ctx=512) as model:
        n_prompt = len(model.tokenizer.tokenize(PROMPT))
        n_held = model.cache.restore(state)
        assert n_prompt - 64 <= n_held < n_prompt
        restored = model.generate(PROMPT, max_tokens=20, temperature=0)
        assert restored.timings.prompt_cached == n_held
    with pumice.load(n_ctx=512) as model:
        plain = model.generate(PROMPT, max_tokens=20, temperature=0)
        assert plain.timings.prompt_cached == 0
    assert restored.tokens == plain.tokens


def test_a_state_holds_for_its_salt(state):
    with pumice.load(n_ctx=512) as model:
        model.cache.restore(state)
        assert model.generate(PROMPT, max_tokens=1, cache_salt="other").timings.prompt_cached == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: b"", "these bytes are none that state returned"),
        (lambda state: b"pumice-state-1\n" + b"\xff" * 20, "these bytes are none that state returned"),
        (lambda state: state[:60], "these bytes are none that state returned"),
        (lambda state: state[:-5], "the state is cut or damaged"),
        (lambda state: state + b"x", "the state is cut or damaged"),
        (lambda state: 5, "state must be the bytes that state returned, not 5"),
    ],
)
def test_wrong_bytes_are_refused(state, change, message):
    with pumice.load(n_ctx=512) as model, pytest.raises(pumice.RequestError, match=message):
        model.cache.restore(change(state))


def test_a_state_of_another_type_of_cache_is_refused(state):
    with pumice.load(n_ctx=512, kv_type="q8_0") as model:
        with pytest.raises(pumice.RequestError, match="state: it was made with another model"):
            model.cache.restore(state)
        assert model.generate(PROMPT, max_tokens=1).tokens


def test_an_engine_elsewhere_has_no_state(state):
    with pumice.load_process(n_ctx=512) as model:
        with pytest.raises(pumice.RequestError, match="state: the engine is not in this process"):
            model.cache.state("Once")
        with pytest.raises(pumice.RequestError, match="restore: the engine is not in this process"):
            model.cache.restore(state)


def test_logits_from_a_position_on_are_those_of_all():
    with pumice.load(n_ctx=512) as model:
        ids = model.tokenizer.tokenize(PROMPT)
        every = model.logits(ids)
        assert (abs(model.logits(ids, first=len(ids) - 3) - every[-3:]) < 1e-3).all()
        with pytest.raises(pumice.RequestError, match="logits: first must be a position among the"):
            model.logits(ids, first=len(ids))
