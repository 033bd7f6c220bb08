"""The engine through the Python API, on a small random model: scheduling must never change what a sequence gets."""

import pytest

import pumice
from gguf_files import tiny_llama
from pumice.gguf import KV_TYPES

PROMPTS = ["a", "the cat sat", "one two three four five six seven", "zzz", "the cat sat on the mat and then some more"]
EXACT = {"backend": "numpy", "kv_type": "f32"}
GREEDY = {"temperature": 0.0, "max_tokens": 20}


@pytest.fixture(scope="module")
def alone(path):
    """Return the answer to each prompt alone, without sharing anything."""
    results = []
    for prompt in PROMPTS:
        with pumice.load(path, **EXACT) as model:
            results.append(model.generate(prompt, **GREEDY).tokens)
    return results


def tokens(completions):
    return [completion.tokens for completion in completions]


@pytest.mark.parametrize("kv_type", [name for name in KV_TYPES if name != "f32"])
def test_a_smaller_cache_type_changes_logits_a_little(path, kv_type):
    ids = list(range(3, 60))
    with pumice.load(path, **EXACT) as exact, pumice.load(path, backend="numpy", kv_type=kv_type) as model:
        a, b = exact.logits(ids), model.logits(ids)
    error = ((a - b) ** 2).mean() / (a**2).mean()
    limit = {"f16": 1e-6, "bf16": 1e-4, "q8_0": 1e-3, "q5_0": 0.03, "q5_1": 0.03, "q4_0": 0.1, "q4_1": 0.1}
    assert 0 < error < limit[kv_type]


def test_an_end_token_stops_and_is_left_out(path, alone):
    with pumice.load(path, **EXACT) as model:
        stopper = alone[1][4]
        model.tokenizer.eog = frozenset([stopper])
        completion = model.generate(PROMPTS[1], **GREEDY)
        assert completion.finish_reason == "stop"
        assert completion.tokens == alone[1][: alone[1].index(stopper)]
        ignored = model.generate(PROMPTS[1], ignore_eos=True, **GREEDY)
        assert len(ignored.tokens) == 20
        assert stopper not in ignored.tokens


def test_a_full_context_finishes_with_its_own_reason(path):
    with pumice.load(path, n_ctx=64, **EXACT) as model:
        completion = model.generate("hello", max_tokens=None, temperature=0, ignore_eos=True)
    assert completion.finish_reason == "context_full"
    assert len(completion.tokens) == 64 + 1 - completion.timings.prompt_tokens


def test_context_shift_goes_on_from_the_newer_half(path):
    options = {"temperature": 0, "ignore_eos": True}
    with pumice.load(path, n_ctx=64, **EXACT) as model:
        shifted = model.generate("hello", max_tokens=70, context_shift=True, **options)
        assert (len(shifted.tokens), shifted.finish_reason) == (70, "length")
        context = model.tokenizer.tokenize("hello") + shifted.tokens
        # At 65 tokens the first is kept and half of the other 64 dropped.
        again = model.generate([context[0], *context[33:65]], max_tokens=5, **options)
    assert again.tokens == context[65:70]


def test_a_model_without_tokenizer_takes_ids(tmp_path):
    with pumice.load(tiny_llama(tmp_path / "bare.gguf", tokenizer=False), **EXACT) as model:
        completion = model.generate([1, 2, 3], **GREEDY)
        assert len(completion.tokens) == 20
        assert completion.text == ""
        with pytest.raises(pumice.PumiceError, match="tokenizer"):
            model.generate("text")


def test_streams_can_be_read_in_turns_and_closed_at_any_token(path, alone):
    with pumice.load(path, n_parallel=2, **EXACT) as model:
        first, second = (model.stream(prompt, **GREEDY) for prompt in PROMPTS[:2])
        next(first), next(second), next(first)
        first.close()
        assert first.completion().finish_reason == "cancelled"
        assert second.completion().tokens == alone[1]
        assert tokens(model.generate_many(PROMPTS, **GREEDY)) == alone  # nothing leaked


def test_a_closed_model_says_so(path):
    model = pumice.load(path, **EXACT)
    model.close()
    model.close()
    calls = (lambda: model.stream("a"), lambda: model.generate("a"), lambda: model.logits([1]), model.engine.snapshot)
    for use in calls:
        with pytest.raises(pumice.PumiceError, match="closed"):
            use()
