"""Options of requests, and reasons for which requests are refused."""

import asyncio
import re
import warnings

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.frontend.prompts import NO_PROMPT

EXACT = {"backend": "numpy", "kv_type": "f32"}
GREEDY = {"temperature": 0.0, "max_tokens": 20}
RANDOM = {"temperature": 1.5, "top_k": 30, "max_tokens": 20, "seed": 7}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with pumice.load(tiny_llama(tmp_path_factory.mktemp("requests") / "tiny.gguf"), **EXACT) as loaded:
        yield loaded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": 5}, "stop must be a string or a list of strings, not 5"),
        ({"stop": ["x", 5]}, "stop must be a string or a list of strings, not ['x', 5]"),
        ({"stop_tokens": ["x"]}, "stop_tokens must be a list of token ids, not ['x']"),
        ({"progress": "yes"}, "progress must be a function, not 'yes'"),
        ({"prompt": b"abc"}, f"{NO_PROMPT}, not b'abc'"),
        ({"prompt": [1.5]}, f"{NO_PROMPT}, not [1.5]"),
        ({"prompt": None}, f"{NO_PROMPT}, not None"),
        ({"prompt": []}, "the prompt has no tokens; give some text"),
    ],
)
def test_arguments_are_checked(model, options, message):
    with pytest.raises(pumice.RequestError, match=f"^{re.escape(message)}$"):
        model.generate(**{"prompt": "a", **options})


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, **terms: model.embed("a", **terms),
        lambda model, **terms: model.score([5, 6], **terms),
        lambda model, **terms: model.hidden([5, 6], [0], **terms),
        lambda model, **terms: model.logits([5, 6], **terms),
        lambda model, **terms: model.cache.save([5, 6], **terms),
    ],
    ids=["embed", "score", "hidden", "logits", "save"],
)
def test_each_kind_of_request_has_a_timeout(model, ask):
    with pytest.raises(pumice.RequestTimeoutError, match="timeout of 0 seconds"):
        ask(model, timeout=0.0)
    ask(model, timeout=600.0)
    with warnings.catch_warnings(action="error"):
        ask(model, timeout=1e308)
        ask(model, timeout=np.float32(600))  # whose deadline is compared with the other one's
    with pytest.raises(pumice.RequestError, match=r"^timeout must be a number of seconds, at least 0, not 'soon'$"):
        ask(model, timeout="soon")


HUGE = 10**5000  # of more digits than Python writes
BITS = "an integer of 16610 bits"
MANY = "an integer has too many digits"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": HUGE}, f"n must be a number of at most 64 bits, not {BITS}"),
        ({"n": 10**9}, "n must be an integer, at least 1 and at most 65536, not 1000000000"),
        ({"temperature": HUGE}, f"temperature must be a number of at most 64 bits, not {BITS}"),
        ({"stop_tokens": [HUGE]}, f"stop_tokens must be a list of token ids, not [{BITS}]"),
        ({"adapters": {"a": HUGE}}, f"adapters must be a mapping of names to numbers, not {{'a': {BITS}}}"),
        ({"logit_bias": {HUGE: 1.0}}, f"logit_bias must be a mapping of token ids to numbers, not {{{BITS}: 1.0}}"),
        ({"logit_bias": {"a": HUGE}}, f"logit_bias must be a mapping of token ids to numbers, not {{'a': {BITS}}}"),
        ({"json_schema": {"const": HUGE}}, f"json_schema: cannot be represented in JSON: {MANY}"),
        ({"json_schema": f'{{"const": {"9" * 5000}}}'}, f"json_schema: not valid JSON: {MANY}"),
        ({"prompt": [1, HUGE]}, f"token id {BITS} is outside the vocabulary of 300"),
        ({"prompt": HUGE}, f"{NO_PROMPT}, not {BITS}"),
    ],
)
def test_integers_of_more_than_64_bits_are_refused_in_one_line(model, options, message):
    with pytest.raises(pumice.RequestError, match=f"^{re.escape(message)}$"):
        model.generate(**{"prompt": "a", **options})


@pytest.mark.parametrize(
    "call",
    [lambda model: model.tokenizer.detokenize([HUGE]), lambda model: model.score([HUGE]), lambda m: m.embed([[HUGE]])],
)
def test_tokens_of_more_than_64_bits_are_named_in_one_line(model, call):
    with pytest.raises(pumice.PumiceError, match=f"token (id )?{BITS} is outside the vocabulary"):
        call(model)


@pytest.mark.parametrize("name", ["n_ctx", "n_batch", "n_parallel", "n_cpu_moe", "threads"])
def test_loading_refuses_numbers_that_no_file_may_have(name):
    options = {"cpu": {"threads": HUGE}} if name == "threads" else {name: HUGE}
    for load in (pumice.load, pumice.load_process, pumice.plan):
        with pytest.raises(pumice.ConfigError, match=f": a number beyond 9007199254740992: {BITS}$"):
            load(pumice.demo_model_path(), config=options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.tokenizer.tokenize(None), "tokenize takes a string, not None"),
        (lambda model: model.tokenizer.tokenize(b"a"), "tokenize takes a string, not b'a'"),
        (lambda model: model.tokenizer.detokenize("12"), "detokenize takes a list of token ids, not '12'"),
        (lambda model: model.tokenizer.detokenize(["a"]), "detokenize takes a list of token ids, not ['a']"),
    ],
)
def test_arguments_of_tokens_are_checked(model, call, message):
    with pytest.raises(pumice.RequestError, match=f"^{re.escape(message)}$"):
        call(model)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": 5}, pumice.PumiceError, "a model is a path or a name, not 5"),
        ({"path": b"a.gguf"}, pumice.PumiceError, "a model is a path or a name, not b'a.gguf'"),
        ({"config": "pumice.yaml"}, pumice.ConfigError, r"config must be a mapping .*, not 'pumice.yaml'; `"),
        ({"config": [1]}, pumice.ConfigError, r"config must be a mapping .*, not \[1\]"),
    ],
)
def test_arguments_of_load_are_checked(arguments, error, message):
    for load in (pumice.load, pumice.load_process, pumice.plan):
        with pytest.raises(error, match=message):
            load(**arguments)


@pytest.mark.parametrize(
    ("prompts", "each", "message"),
    [
        ("abc", None, "prompts must be a list, not 'abc'"),
        (5, None, "prompts must be a list, not 5"),
        (["a"], [5], "each must be a list of options, a mapping for each prompt, not [5]"),
        (["a"], {"seed": 1}, "each must be a list of options, a mapping for each prompt, not {'seed': 1}"),
        (["a"], [{}, {}], "there are 1 prompts, and options for 2"),
    ],
)
def test_several_prompts_are_a_list(model, prompts, each, message):
    with pytest.raises(pumice.RequestError, match=f"^{re.escape(message)}$"):
        model.generate_many(prompts, each=each)


def test_a_minimum_of_tokens(model):
    """No end token is chosen before it, and a stop string that begins before it ends nothing."""
    whole = model.generate("a", **GREEDY)
    stopper = whole.tokens[3]
    for n in (1, 9):
        longer = model.generate("a", stop_tokens=[stopper], min_tokens=n, **GREEDY)
        assert stopper not in longer.tokens
        assert len(longer.tokens) >= n
    assert len(model.generate("a", stop_tokens=[stopper], **GREEDY).tokens) < 9
    text = model.generate("a", min_tokens=9, **GREEDY).text
    assert len(model.generate("a", stop=list(filter(None, text)), min_tokens=9, **GREEDY).tokens) == 10
    assert model.generate("a", choices=["yes"], min_tokens=19, **GREEDY).text == "yes"
    with pytest.raises(pumice.RequestError, match=r"^min_tokens: 21 is above max_tokens, 20$"):
        model.generate("a", min_tokens=21, **GREEDY)


def test_options_of_single_prompts(model):
    each = [{"seed": 1}, {"seed": 2, "max_tokens": 5}]
    found = model.generate_many(["a", "a"], each=each, **RANDOM)
    expected = [model.generate("a", **{**RANDOM, **options}).tokens for options in each]
    assert [completion.tokens for completion in found] == expected
    with pytest.raises(pumice.RequestError, match=r"^prompt 1: max_tokens must be"):
        model.generate_many(["a", "a"], each=[{}, {"max_tokens": "x"}])


def log_softmax(logits):
    wide = logits.astype(np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


@pytest.mark.parametrize("options", [GREEDY, RANDOM])
def test_logprobs_are_those_of_the_model(model, options):
    prompt = [5, 6, 7]
    found = model.generate(prompt, logprobs=4, **options)
    assert found.tokens == model.generate(prompt, **options).tokens
    rows = model.logits([*prompt, *found.tokens])[len(prompt) - 1 :]
    for token, logprobs, row in zip(found.tokens, found.logprobs, rows, strict=False):
        expected = log_softmax(row)
        best = np.argsort(-expected)[:4]
        np.testing.assert_allclose(logprobs.logprob, expected[token], atol=1e-4)
        assert [each for each, _ in logprobs.top] == best.tolist()
        np.testing.assert_allclose([p for _, p in logprobs.top], expected[best], atol=1e-4)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_logprobs_of_a_prompt_are_those_of_the_model(tmp_path, backend):
    """Longer than a step has rows for; the prompt is not read again to go on with it."""
    prompt = [5 + i % 40 for i in range(150)]
    with pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend=backend, kv_type="f32") as model:
        found = model.score(prompt, 3)
        assert model.generate(prompt, max_tokens=1).timings.prompt_cached == 149
        rows = [log_softmax(row) for row in model.logits(prompt)[:-1]]
        np.testing.assert_allclose(
            [each.logprob for each in found],
            [row[token] for row, token in zip(rows, prompt[1:], strict=True)],
            atol=1e-4,
        )
        for each, row in zip(found, rows, strict=True):
            np.testing.assert_allclose([p for _, p in each.top], np.sort(row)[::-1][:3], atol=1e-4)
        assert model.generate(prompt, max_tokens=1, cache_salt="other").timings.prompt_cached == 0
        assert model.score([5]) == []
        for wrong in ([-1, 2], [5] * (model.n_ctx + 1)):
            with pytest.raises(pumice.RequestError):
                model.score(wrong)
        with pytest.raises(pumice.RequestError, match="cache_salt must be a string, not 5"):
            model.score(prompt, cache_salt=5)


def test_logprobs_after_sampling_are_of_what_is_left(model):
    prompt = [5, 6, 7]
    options = {**RANDOM, "top_p": 1.0, "min_p": 0.0, "top_k": 3}
    found = model.generate(prompt, logprobs=5, logprobs_sampled=True, **options)
    rows = model.logits([*prompt, *found.tokens])[len(prompt) - 1 :]
    for token, logprobs, row in zip(found.tokens, found.logprobs, rows, strict=False):
        best = np.argsort(-row)[:3]
        expected = log_softmax(row[best] / 1.5)
        assert [each for each, _ in logprobs.top] == best.tolist()
        np.testing.assert_allclose([p for _, p in logprobs.top], expected, atol=1e-3)
        np.testing.assert_allclose(logprobs.logprob, expected[best.tolist().index(token)], atol=1e-3)
    greedy = model.generate(prompt, logprobs=5, logprobs_sampled=True, **GREEDY)
    assert {each.logprob for each in greedy.logprobs} == {0.0}


def test_several_completions_share_a_prompt(model):
    prompt = list(range(3, 103))
    alone = [model.generate(prompt, **{**RANDOM, "seed": seed}, cache_salt="1").tokens for seed in (7, 8, 9)]
    several = model.generate(prompt, n=3, **RANDOM, cache_salt="2")
    assert [each.tokens for each in several] == alone
    assert [each.timings.prompt_cached for each in several] == [0, 96, 96]
    assert model.generate(prompt, n=1, **RANDOM)[0].tokens == alone[0]
    again = asyncio.run(model.agenerate(prompt, n=3, **RANDOM))
    assert [each.tokens for each in again] == alone
    for use in (lambda: model.stream("a", n=2), lambda: model.generate_many(["a"], n=2)):
        with pytest.raises(pumice.RequestError, match="a stream or chat has one completion, not 2"):
            use()


def test_streams_carry_logprobs(model):
    pieces = list(model.stream("a", logprobs=2, **GREEDY))
    assert [len(piece.logprobs.top) for piece in pieces[:-1]] == [2] * 20
    assert pieces[-1].logprobs is None
    assert model.generate("a", **GREEDY).logprobs is None
