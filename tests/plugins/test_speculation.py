"""Models give the same tokens with drafts and without, whatever a request asks for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from drafting import PROPOSERS
from nightly import variants
from pumice.engine.placement.runner import Runner
from pumice.plugin import hookimpl
from pumice.quantize import quantize
from tiny_drafts import ALONE, EAGLES, FOR_TARGETS, fitted
from tiny_drafts import MODELS as DRAFTING
from tiny_encoders import MODELS as ENCODERS
from tiny_models import IDS, N_VOCAB
from tiny_zoo import ZOO

MODELS = ["rope-plain", "gemma2", "gpt-oss", "qwen3moe", "mamba", "rwkv7", "qwen3next", "deepseek2"]
WITH_NUMPY = ["rope-plain", "mamba"]
"""Models that NumPy computes in every run, which takes many times as long as with compiled kernels."""

REPEATING = [*IDS[:9], *IDS[:9], *IDS[:4]]


def on_backends(names: list[str], with_numpy: list[str]) -> list[Any]:
    """Return each name with the CPU backend, and with NumPy's, of which ``with_numpy`` are in every run."""
    pairs = [(name, backend) for name in names for backend in ("cpu", "numpy")]
    return variants(pairs, [(name, backend) for name, backend in pairs if backend == "cpu" or name in with_numpy])


class Drafts:
    """A plugin: proposers that are right, wrong, and both by turns."""

    @hookimpl
    def pumice_register_proposers(self, register):
        for name in ("liar", "erring"):
            register(name, type(name, (type(PROPOSERS[name]()),), {"__init__": _init(name)}))


def _init(name):
    made = PROPOSERS[name]()

    def init(self):
        vars(self).update(vars(made))

    return init


def random_requests(seed: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    wanted = []
    for _ in range(5):
        begin = random.integers(N_VOCAB, size=random.integers(1, 12)).tolist()
        options: dict[str, Any] = {"max_tokens": int(random.integers(1, 40)), "seed": int(random.integers(1000))}
        options |= [
            {"temperature": 0},
            {"temperature": 0.3},
            {"temperature": 1.0, "top_k": 5, "repeat_penalty": 1.2},
            {"mirostat": 2},
            {"temperature": 0, "logit_bias": {int(random.integers(N_VOCAB)): 3.0}},
        ][random.integers(5)]
        options |= [{}, {"logprobs": 3}, {"n_ctx": 40, "context_shift": True}][random.integers(3)]
        options["stop_tokens"] = random.integers(N_VOCAB, size=random.integers(2)).tolist()
        wanted.append({"prompt": begin * int(random.integers(1, 4)), **options})
    return wanted


def results(model: pumice.Model, wanted: list[dict[str, Any]], **options: Any) -> list[Any]:
    each = [{name: value for name, value in request.items() if name != "prompt"} for request in wanted]
    completions = model.generate_many([request["prompt"] for request in wanted], each=each, **options)
    return [(done.tokens, done.finish_reason, done.logprobs) for done in completions]


@pytest.mark.parametrize(("name", "backend"), on_backends(MODELS, WITH_NUMPY))
def test_texts_are_the_same(tmp_path: Path, name: str, backend: str) -> None:
    path = ZOO[name].write(tmp_path / "model.gguf")
    if backend == "cpu":
        quantize(path, tmp_path / "encoded.gguf", "Q8_0")
        path = tmp_path / "encoded.gguf"
    config = {backend: {"batch_invariant": True}, "n_draft": 5}
    wanted = [{"prompt": REPEATING, "max_tokens": 30, "temperature": 0}, *random_requests(1)]
    n_parallel = 1 if name == "deepseek2" else 3  # which reads the first step of a prompt in another form
    with pumice.load(
        path, backend=backend, n_ctx=128, n_batch=16, n_parallel=n_parallel, config=config, plugins=[Drafts()]
    ) as model:
        expected = results(model, wanted, cache_salt="without", speculate="off")
        n_drafted = 0
        for choice in ("ngram", "erring,ngram"):
            assert results(model, wanted, speculate=choice, cache_salt=choice) == expected
            done = model.generate(REPEATING, max_tokens=30, temperature=0, speculate=choice)
            n_drafted += done.timings.n_drafted
        assert n_drafted > 0


@pytest.mark.parametrize(("name", "draft"), [("rope-plain", "gemma2"), ("qwen3next", "mamba"), ("mamba", "qwen3next")])
def test_texts_are_the_same_with_a_draft_model(tmp_path: Path, name: str, draft: str) -> None:
    for each in (name, draft):
        ZOO[each].write(tmp_path / f"{each}.gguf")
        quantize(tmp_path / f"{each}.gguf", tmp_path / f"{each}-q8.gguf", "Q8_0")
    config = {"cpu": {"batch_invariant": True}, "n_draft": 5, "draft_p_min": 0.0}
    wanted = [{"prompt": REPEATING, "max_tokens": 30, "temperature": 0}, *random_requests(2)]
    options: dict[str, Any] = {"backend": "cpu", "n_ctx": 128, "n_batch": 16, "n_parallel": 3}
    path = tmp_path / f"{name}-q8.gguf"
    with pumice.load(path, draft=str(tmp_path / f"{draft}-q8.gguf"), config=config, **options) as model:
        expected = results(model, wanted, cache_salt="without", speculate="off")
        assert results(model, wanted) == expected
        assert results(model, wanted, speculate="ngram,draft") == expected
    with pumice.load(path, draft=str(path), config=config, **options) as model:  # which knows what comes
        assert results(model, wanted) == expected
        done = model.generate(REPEATING, max_tokens=30, temperature=0, speculate="draft")
        assert done.timings.n_drafted == done.timings.n_accepted > 20


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("bert", "not a draft model: it does not generate text from left to right"),
        ("rope-plain", "only .* of the draft's tokens are in the model's vocabulary|no tokenizer"),
    ],
)
def test_files_that_cannot_draft_are_refused(tmp_path: Path, draft: str, message: str) -> None:
    path = (ENCODERS if draft == "bert" else ZOO)[draft].write(tmp_path / "draft.gguf")
    with pytest.raises(pumice.ModelError, match=message):
        pumice.load(draft=str(path), backend="cpu")


@pytest.fixture(scope="module")
def demo():
    with pumice.load(backend="cpu", n_ctx=512, config={"n_draft": 6, "speculate": "off"}) as model:
        yield model


SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Anna", "Annabel"]}, "old": {"type": "boolean"}}}
CASES: dict[str, dict[str, Any]] = {
    "text": {},
    "sampled": {"temperature": 0.9},
    "stop": {"stop": [" and", "the "]},
    "grammar": {"grammar": 'root ::= ("one " | "two " | "three ")+ "."', "ignore_eos": False},
    "schema": {"json_schema": {**SCHEMA, "required": ["name", "old"]}},
    "logprobs of a schema": {"json_schema": {**SCHEMA, "required": ["name", "old"]}, "logprobs": 2},
    "choices": {"choices": ["a long answer that is forced", "a long answer that is not"], "logprobs": 1},
    "several": {"n": 3, "temperature": 0.7},
}


@pytest.mark.parametrize("case", list(CASES))
def test_options_of_a_request_hold_with_drafts(demo: pumice.Model, case: str) -> None:
    prompt = "one two one two one two one two the cat and the dog and the cat and the"
    options: dict[str, Any] = {"max_tokens": 60, "temperature": 0, "seed": 7, **CASES[case]}

    def made(choice: str) -> list[Any]:
        done = demo.generate(prompt, speculate=choice, **options)
        many = done if isinstance(done, list) else [done]
        drafts = choice == "ngram" and case != "schema"  # whose tokens are forced, so that few are left to guess
        assert (sum(each.timings.n_drafted for each in many) > 0) == drafts
        return [(each.text, each.tokens, each.finish_reason, each.logprobs) for each in many]

    assert made("ngram") == made("off")


def test_a_prediction_is_drafted(demo: pumice.Model) -> None:
    """By its text, also where the request names no proposer."""
    options: dict[str, Any] = {"max_tokens": 60, "temperature": 0}
    expected = demo.generate("Once upon a time", **options)
    wrong = expected.text[:40] + " zebra" + expected.text[40:]
    for predicted, least in [(expected.text, 50), (wrong, 30), ("nothing like it", 0)]:
        done = demo.generate("Once upon a time", prediction=predicted, **options)
        assert (done.tokens, done.text) == (expected.tokens, expected.text)
        assert done.timings.n_accepted >= least
    off = demo.generate("Once upon a time", prediction=expected.text, speculate="off", **options)
    assert (off.tokens, off.timings.n_drafted) == (expected.tokens, 0)


def test_an_unknown_proposer_is_named(demo: pumice.Model) -> None:
    with pytest.raises(pumice.RequestError, match="unknown proposer 'ngran'; did you mean 'ngram'"):
        demo.generate("x", speculate="ngran")
    with pytest.raises(pumice.RequestError, match=r"known: auto, ngram, .*, off, prediction"):
        demo.generate("x", speculate="true")
    for empty in ("", " ", "ngram,"):
        with pytest.raises(pumice.RequestError, match=r"a name is empty, in .*: use auto, off, or names"):
            demo.generate("x", speculate=empty)
    with pytest.raises(pumice.RequestError, match="'ngram' is named twice, in 'ngram, prediction,ngram'; name each"):
        demo.generate("x", speculate="ngram, prediction,ngram")
    with pytest.raises(pumice.ConfigError, match="unknown proposer 'ngran'"):
        pumice.load(config={"speculate": "ngran"})
    with pytest.raises(pumice.ConfigError, match="'ngram' is named twice, in 'ngram,ngram'; name each proposer once"):
        pumice.load(config={"speculate": "ngram,ngram"})
    with pytest.raises(pumice.ConfigError, match="a name is empty, in ''"):
        pumice.load(config={"speculate": ""})


@pytest.mark.parametrize(("name", "backend"), on_backends(["glm4moe", "qwen35", "nemotron_h_moe"], ["glm4moe"]))
def test_layers_of_the_model_draft(tmp_path: Path, name: str, backend: str) -> None:
    """With prompts in parts, shared prefixes, contexts that shift, and recurrent states."""
    DRAFTING[name].write(tmp_path / "model.gguf")
    path = tmp_path / "encoded.gguf"
    quantize(tmp_path / "model.gguf", path, "Q8_0")
    config = {backend: {"batch_invariant": True}, "n_draft": 5, "draft_p_min": 0.0, "speculate": "auto"}
    wanted = [{"prompt": REPEATING * 2, "max_tokens": 30, "temperature": 0}, *random_requests(3)]
    with pumice.load(path, backend=backend, n_ctx=128, n_batch=16, n_parallel=3, config=config) as model:
        expected = results(model, wanted, speculate="off", cache_salt="without")
        for choice in ("mtp", "auto"):
            assert results(model, wanted, speculate=choice, cache_salt=choice) == expected
        assert model.generate(REPEATING, max_tokens=30, temperature=0, speculate="mtp").timings.n_drafted > 0
    with (
        pumice.load(path, backend=backend, n_ctx=128, config={**config, "speculate": "off"}) as model,
        pytest.raises(pumice.RequestError, match="'mtp': this model has no layer that drafts"),
    ):
        model.generate(REPEATING, speculate="mtp")


def with_draft(name: str, folder: Path) -> dict[str, Any]:
    """Arguments of ``load`` for a model and its draft, which reads inputs of the model's layers, or its caches."""
    if name in FOR_TARGETS:
        target, draft = FOR_TARGETS[name]
        quantize(ZOO[target].write(folder / "model.gguf"), folder / "encoded.gguf", "Q8_0")
        path = draft.write(folder / "draft.gguf")
        return {"path": folder / "encoded.gguf", "draft": str(path), "n_ctx": 128, "n_batch": 16}
    model = ZOO["rope-plain"]
    path = fitted(ALONE[name], model).write(folder / "draft.gguf")
    quantize(model.write(folder / "model.gguf"), folder / "encoded.gguf", "Q8_0")
    return {"path": folder / "encoded.gguf", "draft": str(path), "n_ctx": 128, "n_batch": 16}


FOLLOWING = ["eagle3-few-tokens", "dflash-windows", "dspark", "dspark-behind-a-token", "dflash2", "gemma4-assistant"]
"""Drafts that read inputs of the model's layers, or its caches."""

DAILY_FOLLOWING = ["eagle3-few-tokens", "dspark-behind-a-token", "dflash2", "gemma4-assistant"]


@pytest.mark.parametrize("name", variants(FOLLOWING, DAILY_FOLLOWING))
def test_texts_are_the_same_with_drafts_that_read_layers(tmp_path: Path, name: str) -> None:
    config = {"numpy": {"batch_invariant": True}, "n_draft": 5, "draft_p_min": 0.0}
    wanted = [{"prompt": REPEATING * 2, "max_tokens": 30, "temperature": 0}, *random_requests(4)]
    with pumice.load(**with_draft(name, tmp_path), backend="numpy", n_parallel=3, config=config) as model:
        expected = results(model, wanted, speculate="off", cache_salt="without")
        assert results(model, wanted) == expected
        assert model.generate(REPEATING, max_tokens=30, temperature=0, speculate="draft").timings.n_drafted > 0


@pytest.mark.parametrize(
    ("layers", "message"), [([1, 1, 1], "reads 144 values per token"), ([0, 1, 2], "expected numbers from 1 to 1")]
)
def test_a_draft_of_another_model_is_refused(tmp_path: Path, layers: list[int], message: str) -> None:
    draft = EAGLES["eagle3"]
    draft = replace(draft, metadata=draft.metadata | {"target_layers": layers})
    path = ZOO["rope-plain"].write(tmp_path / "model.gguf")
    with pytest.raises(pumice.ModelError, match=message):
        pumice.load(path, draft=str(draft.write(tmp_path / "draft.gguf")), backend="numpy")


def test_errors_of_a_draft_model_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, draft = (ZOO["rope-plain"].write(tmp_path / f"{name}.gguf") for name in ("model", "small"))
    compile_one = Runner.compile

    def compile_model(runner: Runner) -> None:
        if runner.limits.n_ctx == 256:
            raise pumice.BackendError("not enough memory: KV cache needs 9 MiB")
        compile_one(runner)

    monkeypatch.setattr(Runner, "compile", compile_model)
    with pytest.raises(pumice.BackendError, match=r"small\.gguf: the draft model does not load: .*draft_n_ctx"):
        pumice.load(path, draft=str(draft), n_ctx=64, config={"draft_n_ctx": 256})
