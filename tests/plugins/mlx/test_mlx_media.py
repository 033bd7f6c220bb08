"""Encoders of images and sounds on the MLX backend, beside transformers."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hearing_models
import pocket_models
import pumice
import qwen_speech_models
import vision_models
from nightly import variants
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.gguf import GGMLType
from pumice.media.audio import VOICE_RATE
from pumice.model_files.opening import open_model
from vision_files import opened, picture

LIMIT = 1e-5  # of the largest value; products of float32 activations


def check(folder: Path, values: Any, kind: Any, reference: NDArray[np.float32]) -> None:
    with closing(opened(folder, "mlx", mlx={"activations": "float32", "compile": "never"})) as projector:
        parts = projector.encode(values, kind=kind)
    rows = np.concatenate([part.rows for part in parts if isinstance(part, Embeddings)])[:, : reference.shape[1]]
    assert rows.shape == reference.shape
    assert np.abs(rows - reference).max() <= LIMIT * np.abs(reference).max()


@pytest.mark.parametrize("kind", variants(vision_models.CASES, vision_models.SPANNING))
def test_rows_of_an_image_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("PIL")
    folder = vision_models.converted(tmp_path / kind, kind)
    check(folder, picture(*vision_models.SIZE), "image", np.load(vision_models.FIXTURE)[f"{kind}.rows"])


@pytest.mark.parametrize("kind", variants(hearing_models.CASES, ["gemma3n", "granitespeech", "mimo", "qwen3omni"]))
def test_rows_of_a_sound_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    hearing_models.write_folder(tmp_path / kind, kind)
    with open_model(tmp_path / kind, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, tmp_path / "mmproj.gguf")
    rate = hearing_models.CASES[kind].get("rate", hearing_models.RATE)
    sound = hearing_models.sound(hearing_models.SECONDS, rate)
    check(tmp_path, sound, "audio", np.load(hearing_models.FIXTURE)[f"{kind}.rows"])


def test_a_speech_is_that_of_its_package(tmp_path: Path) -> None:
    path = pocket_models.write_converted(tmp_path, 40.0)
    with pumice.load(path, backend="mlx", kv_type="f32", config={"mlx": {"activations": "float32"}}) as model:
        sound = model.speech.speak(pocket_models.TEXT, temperature=0.0).source
    with np.load(pocket_models.FIXTURE) as file:
        expected, length = file["ends, plain"], int(file["ends, plain, length"])
    assert len(sound) == length
    np.testing.assert_allclose(np.concatenate([sound[:3000], sound[3000::37]]), expected, atol=2e-5)


def test_sines_of_a_codec_are_those_of_its_package(tmp_path: Path) -> None:
    path = qwen_speech_models.write_converted(tmp_path)
    with np.load(qwen_speech_models.FIXTURE) as file:
        n_frames, expected = len(file["plain, codes"]), file["plain"]
    with pumice.load(path, backend="mlx", kv_type="f32", config={"mlx": {"activations": "float32"}}) as model:
        seconds = (n_frames + 1) * 1920 / VOICE_RATE
        sound = model.speech.speak(qwen_speech_models.TEXT, temperature=0.0, max_seconds=seconds).source
    np.testing.assert_allclose(np.concatenate([sound[:3000], sound[3000::37]]), expected, atol=2e-5)
