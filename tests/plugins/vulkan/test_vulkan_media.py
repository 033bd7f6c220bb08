"""Encoders of images and sounds on a Vulkan device, as a whole: also their ends, whose rows are fewer."""

import numpy as np
import pytest

import hearing_models
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from vision_files import opened, picture
from vision_models import SIZE, SPANNING, converted

pytest.importorskip("PIL")
pytestmark = pytest.mark.usefixtures("vulkan_device")

SEVERAL = ((64, 64), (32, 96), (20, 20))


@pytest.mark.parametrize(
    ("kind", "sizes"), [(kind, SEVERAL if kind in ("gemma3", "qwen3vl", "internvl") else [SIZE]) for kind in SPANNING]
)
def test_rows_of_images_are_those_of_numpy(tmp_path, rounding, kind, sizes):
    folder = converted(tmp_path / kind, kind)
    check(folder / "mmproj.gguf", lambda projector: [projector.encode(picture(*size)) for size in sizes], rounding)


@pytest.mark.parametrize("kind", ["gemma3n", "granitespeech"])
def test_rows_of_sounds_are_those_of_numpy(tmp_path, rounding, kind):
    """Products of several vectors of a row with one matrix, of frames as well as of tokens."""
    folder = hearing_models.write_folder(tmp_path / kind, kind)
    with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    sound = hearing_models.sound(hearing_models.SECONDS)
    check(folder / "mmproj.gguf", lambda projector: [projector.encode(sound, kind="audio")], rounding)


def check(path, encode, rounding):
    """Compare rows with NumPy's, up to the device's rounding; every operation is computed by its backend."""
    rows = {}
    for backend in ("numpy", "vulkan"):
        projector = opened(path, backend)
        rows[backend] = [part.rows for parts in encode(projector) for part in parts if isinstance(part, Embeddings)]
        runners = [runner for steps in projector.steps.values() for runner in steps.runners]
        assert {segment.backend for runner in runners for segment in runner.placed.main.segments} == {backend}
        projector.close()
    for mine, right in zip(rows["vulkan"], rows["numpy"], strict=True):
        np.testing.assert_allclose(mine, right, atol=max(1e-5, rounding) * np.abs(right).max())
