"""Encoder-decoders: logits as llama.cpp's on three backends, generation, and what a wrong file leads to."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.evaluate.speed import prompt_seconds
from pumice.gguf import GGUFFile
from pumice.gguf.metadata import Metadata
from pumice.plugin import HParams, ModelError
from pumice.tracing import trace
from pumice_architectures.t5 import T5
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import SOFTWARE
from reference_models import error
from tiny_models import N_CTX
from tiny_t5 import DECODED, MODELS, PROMPT

BACKENDS = ["numpy", "cpu", "vulkan"]
PROMPTS = [PROMPT[:n] for n in (3, 24, 7, 1, 15, 20)]
HOSTILE = [0, 1, 3, 2**32 - 1, 2**63, -1, 0.0, float("nan"), float("inf"), True, "text", []]


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


# --- wrong files


def refusal(file: GGUFFile, changes: dict[str, Any], tensors: Any = None) -> str:
    """The ModelError's message, empty if there is none; any other exception is the test's failure."""

    changed = SimpleNamespace(
        path="file", metadata=Metadata(dict(file.metadata) | changes), tensors=tensors or file.tensors
    )
    try:
        trace(changed, T5(HParams(changed.metadata)), N_CTX)  # type: ignore[arg-type]
    except ModelError as wrong:
        return str(wrong)
    return ""


def test_every_hostile_value_of_every_key(t5_file: Any) -> None:
    with GGUFFile.open(t5_file("t5-every-bias")) as file:
        for key in [key for key in file.metadata if key.startswith("t5.")]:
            for value in HOSTILE:
                assert "\n" not in refusal(file, {key: value})
        wrong = {
            "attention.relative_buckets_count": (1, "is 1, it must be at least 4 and at most 252"),
            "decoder_start_token_id": (99, "is 99, no token of the vocabulary"),
            "decoder_block_count": (-1, "is -1, it must be at least 1"),
        }
        for key, (value, message) in wrong.items():
            assert message in refusal(file, {f"t5.{key}": value})
        assert "dec.blk.2" in refusal(file, {"t5.decoder_block_count": 2**32})
        assert "enc.blk.3" in refusal(file, {"t5.block_count": 2**32})


def test_a_missing_tensor_is_named(t5_file: Any) -> None:
    with GGUFFile.open(t5_file("t5")) as file:
        for name in file.tensors:
            others = {other: tensor for other, tensor in file.tensors.items() if other != name}
            assert name in refusal(file, {}, others)
