"""Drafts and draft models by their names: what is drafted, and what is refused. Texts: test_equal_texts.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pumice
from pumice.engine.placement.runner import Runner
from tiny_drafts import EAGLES
from tiny_encoders import MODELS as ENCODERS
from tiny_zoo import ZOO


def test_files_that_cannot_draft_are_refused(tmp_path: Path) -> None:
    for model, message in (
        (ENCODERS["bert"], "not a draft model: it does not generate text from left to right"),
        (ZOO["rope-plain"], "only .* of the draft's tokens are in the model's vocabulary|no tokenizer"),
    ):
        path = model.write(tmp_path / f"{model.architecture}.gguf")
        with pytest.raises(pumice.ModelError, match=message):
            pumice.load(draft=str(path), backend="cpu")


@pytest.fixture(scope="module")
def demo():
    with pumice.load(backend="cpu", n_ctx=512, config={"n_draft": 6, "speculate": "off"}) as model:
        yield model


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


def test_a_model_without_a_layer_that_drafts_says_so(demo: pumice.Model) -> None:
    with pytest.raises(pumice.RequestError, match="'mtp': this model has no layer that drafts"):
        demo.generate("x", speculate="mtp")


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
