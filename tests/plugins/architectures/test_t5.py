"""Encoder-decoders: logits as llama.cpp's on three backends, and generation. Wrong files: test_hostile_models.py."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.evaluate.speed import prompt_seconds
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import SOFTWARE
from reference_models import error
from tiny_models import N_CTX
from tiny_t5 import DECODED, MODELS, PROMPT

BACKENDS = ["numpy", "cpu", "vulkan"]
PROMPTS = [PROMPT[:n] for n in (3, 24, 7, 1, 15, 20)]


@pytest.fixture(scope="module")
def expected() -> Any:
    return dict(np.load(Path(__file__).parents[2] / "fixtures" / "tiny_t5.npz"))


@pytest.fixture(scope="module")
def t5_file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("t5")
    return cache(lambda name: MODELS[name].write(folder / f"{name}.gguf"))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "vulkan":
        monkeypatch.setenv(SOFTWARE, "1")
        if reason := VulkanBackend.unavailable():
            pytest.skip(reason)
    return str(request.param)


def load(path: Path, backend: str = "numpy", **options: Any) -> pumice.Model:
    return pumice.load(path, **{"backend": backend, "kv_type": "f32", "n_ctx": N_CTX} | options)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_llama_cpp(t5_file: Any, expected: Any, backend: str, name: str) -> None:
    with load(t5_file(name), backend) as model:
        assert model.backends == [backend]
        assert error(model.logits(DECODED, PROMPT), expected[name]) < 1e-6


def test_sequences_generated_together_are_as_alone(t5_file: Any, backend: str) -> None:
    with load(t5_file("t5-every-bias"), backend, n_parallel=3) as model:
        alone = [model.generate(prompt, max_tokens=15, temperature=0).tokens for prompt in PROMPTS]
        together = [each.tokens for each in model.generate_many(PROMPTS, max_tokens=15, temperature=0)]
        assert together == alone
        assert model.generate(PROMPT, n=2, max_tokens=5, temperature=0)[1].tokens == alone[1][:5]
        assert model.engine.snapshot().n_blocks_free == model.engine.snapshot().n_blocks


def test_a_step_without_the_memory_of_its_encoder_is_refused(t5_file: Any, backend: str) -> None:
    with load(t5_file("t5"), backend) as model:
        runner = model.engine.runner
        submit = runner.submit
        runner.submit = lambda batch, *more, **named: submit(replace(batch, memory=None), *more, **named)
        with pytest.raises(pumice.RequestError, match="an encoder, whose result this step does not have"):
            model.generate(PROMPT, max_tokens=2)
        runner.submit = submit
        assert model.generate(PROMPT, max_tokens=2).tokens


def test_an_encoder_decoder_reads_no_text_alone(t5_file: Any) -> None:
    with pumice.load(t5_file("t5"), backend="numpy") as model:
        for read in (lambda: prompt_seconds(model, 2), lambda: model.logits([1])):
            with pytest.raises(pumice.RequestError, match="does not continue a text: it is an encoder-decoder"):
                read()


def test_a_decoder_alone_has_no_prompt(tmp_path: Path) -> None:
    with pumice.load(backend="numpy") as model, pytest.raises(pumice.RequestError, match="has no encoder"):
        model.logits([1, 2], [3])
