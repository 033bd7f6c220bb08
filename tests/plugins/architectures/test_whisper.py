"""Whisper: logits as transformers', conversion of transformers' and CTranslate2's files, and what wrong input gives."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from hearing_models import RATE, SECONDS, sound
from pumice.convert import ConvertOptions, write_model
from pumice.engine.messages import Encode
from pumice.errors import ConvertError, RequestError
from pumice.gguf import GGMLType, GGUFFile
from pumice.media.audio import SoundBudget
from pumice.model_files.opening import architecture_problems, open_model
from pumice.plugin import HParams, ModelError
from pumice.tracing import trace
from pumice_architectures.whisper import Whisper
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import SOFTWARE
from whisper_models import CONFIG, DECODED, FIRST_TIME, FIXTURES, ROWS, START, STEP, write_folder

TOLERANCE = {"numpy": 1e-5, "cpu": 1e-4, "vulkan": 1e-4}
AUDIO = pumice.Audio(sound(SECONDS), rate=RATE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("whisper") / "tiny")


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    with open_model(folder, options=ConvertOptions(GGMLType.F32)) as model:
        write_model(model, folder / "model.gguf")
    return folder / "model.gguf"


@pytest.fixture(params=TOLERANCE)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(SOFTWARE, "1")
    if request.param == "vulkan" and (reason := VulkanBackend.unavailable()):
        pytest.skip(reason)
    return str(request.param)


def test_logits_are_those_of_transformers(file: Path, backend: str) -> None:
    with pumice.load(file, backend=backend, kv_type="f32") as model:
        logits = model.logits(DECODED, prompt=[AUDIO])[:, ::STEP]
    expected = np.load(FIXTURES / "logits.npz")["logits"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE[backend] * np.abs(expected).max())


def test_attention_to_the_sound_is_that_of_transformers(file: Path, backend: str) -> None:
    """Of the heads that follow the speech: standardized over the tokens, a median over seven rows, their mean."""
    weights = np.load(FIXTURES / "logits.npz")["attention"].astype(np.float64)
    weights = (weights - weights.mean(axis=1, keepdims=True)) / weights.std(axis=1, keepdims=True)
    around = np.lib.stride_tricks.sliding_window_view(np.pad(weights, ((0, 0), (0, 0), (3, 3)), "reflect"), 7, axis=2)
    expected = np.median(around, axis=3).mean(axis=0)[:, : ROWS - 3]
    with pumice.load(file, backend=backend, kv_type="f32") as model:
        (part,) = [part for part in model.media.encode(AUDIO, "", SoundBudget()) if not isinstance(part, str)]
        tokens = [*[0] * part.n_rows, *DECODED]
        for n_rows in (part.n_rows, 5):
            found = model.engine.client.ask(Encode, [tokens], "none", media=[[part]], aligned=n_rows).result()[0]
            assert found.shape == (len(DECODED), n_rows)
            if n_rows > ROWS:
                np.testing.assert_allclose(found[:, : ROWS - 3], expected, atol=30 * TOLERANCE[backend])
        for wrong, n in ((tokens, 9999), (tokens[: part.n_rows], 5)):
            with pytest.raises(RequestError, match="too few"):
                model.engine.client.ask(Encode, [wrong], "none", media=[[part]], aligned=n).result()


def test_embeddings_are_refused(file: Path) -> None:
    """The decoder's hidden states need a sound, whose memory a text has not."""
    with pumice.load(file, backend="numpy") as model:
        assert not model.facts.n_embd
        for texts in ("hi", ["hi"], [AUDIO]):
            with pytest.raises(RequestError, match="this model gives no embeddings"):
                model.embed(texts)
        for ask in (lambda: model.score("hi"), lambda: model.hidden("hi", [1])):
            with pytest.raises(RequestError):
                ask()


def test_encoder_in_the_file_is_no_unused_tensor(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with GGUFFile.open(file) as model:
        assert not list(architecture_problems(model))
    with pumice.load(file, backend="numpy"):
        assert "has no use for" not in caplog.text


HOSTILE = [0, 1, 3, 2**32 - 1, 2**63, -1, 0.0, float("nan"), float("inf"), True, "text", []]


def test_hostile_metadata_is_a_model_error(file: Path) -> None:
    refusals: list[str] = []
    with GGUFFile.open(file) as model:
        for key in [key for key in model.metadata if key.startswith("whisper.")]:
            for value in HOSTILE:
                try:
                    trace(model, Whisper(HParams({**model.metadata, key: value})), 64)
                except ModelError as error:
                    refusals.append(str(error))
    assert len(refusals) > 50
    assert not any("\n" in refusal for refusal in refusals)


def test_a_prompt_is_a_sound_and_the_tokens_after_it(file: Path) -> None:
    texts = ["<|startoftranscript|><|de|><|transcribe|>", "<|startoftranscript|>"]
    with pumice.load(file, backend="numpy", kv_type="f32", n_ctx=4096, n_parallel=2) as model:
        streams = [model.stream([AUDIO, text], max_tokens=5, temperature=0, logprobs=1) for text in texts]
        together = [[piece.token for piece in stream if piece.token is not None] for stream in streams]
        for text, tokens in zip(texts, together, strict=True):
            ids = model.tokenizer.tokenize(text)
            logits = model.logits([*ids, *tokens], prompt=[AUDIO])
            assert logits[len(ids) - 1 : -1].argmax(axis=1).tolist() == tokens
        for ask in (lambda: model.generate("text"), lambda: model.logits([START], prompt=[1, 2])):
            with pytest.raises(pumice.RequestError, match="give it a sound"):
                ask()


def test_a_context_shorter_than_a_sound_and_its_text_is_lengthened(file: Path, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(logging.getLogger("pumice"), "propagate", True)
    options = {"backend": "numpy", "n_parallel": 2}
    with pumice.load(file, n_ctx=64, **options) as model, pumice.load(file, **options) as whole:
        assert model.n_ctx == whole.n_ctx
        assert str(model.n_ctx) in caplog.text
        text = "<|startoftranscript|>"
        texts = [loaded.generate([AUDIO, text], max_tokens=5, temperature=0).text for loaded in (model, whole)]
        assert texts[0] == texts[1]


def test_a_file_of_ctranslate2_has_the_same_tensors(folder: Path, file: Path, tmp_path: Path) -> None:
    """Its converter has made int8 matrices of the same weights, with a factor a row."""
    for name in ("model.bin", "config.json"):
        shutil.copy(FIXTURES / name, tmp_path)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    with open_model(tmp_path, options=ConvertOptions(GGMLType.F32)) as theirs, GGUFFile.open(file) as ours:
        assert theirs.tensors.keys() == ours.tensors.keys()
        for name, tensor in ours.tensors.items():
            own, other = tensor.dequantize(), theirs.tensors[name].dequantize()
            step = np.abs(own).max() / 127 if own.ndim > 1 else 2e-3
            np.testing.assert_allclose(other, own, rtol=0, atol=step, err_msg=name)
        keys = {key for key in ours.metadata if key.startswith(("whisper.", "clip.", "tokenizer."))}
        for key in keys - {"tokenizer.ggml.padding_token_id", "whisper.alignment_heads"}:
            assert np.array_equal(ours.metadata[key], theirs.metadata[key]), key
        assert ours.metadata["tokenizer.ggml.tokens"][FIRST_TIME + 75] == "<|1.50|>"
        assert ours.metadata["whisper.alignment_heads"].tolist() == [1, 0, 2, 1]
        assert theirs.metadata["whisper.alignment_heads"].tolist() == [1, 0, 1, 1, 2, 0, 2, 1]  # without config.json's


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:1000], "the file ends at byte 1000"),
        (lambda data: b"\5" + data[1:], "version 5"),
        (lambda data: data[:4] + b"\xff\xff" + data[6:], "a name at byte"),
        (lambda data: b"", "the file is empty"),
    ],
)
def test_damaged_files_of_ctranslate2_are_refused(folder: Path, tmp_path: Path, change, message: str) -> None:
    shutil.copy(FIXTURES / "config.json", tmp_path)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    (tmp_path / "model.bin").write_bytes(change((FIXTURES / "model.bin").read_bytes()))
    with pytest.raises(ConvertError, match=message):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("activation_function", "relu"), ("scale_embedding", True), ("tie_word_embeddings", False)]
)
def test_what_the_graph_does_not_have_is_refused(folder: Path, tmp_path: Path, key: str, value: object) -> None:
    shutil.copytree(folder, tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text(json.dumps(CONFIG | {key: value}))
    with pytest.raises(ConvertError, match=f"unsupported '{key}'"):
        open_model(tmp_path / "m")
