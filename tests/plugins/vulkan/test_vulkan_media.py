"""Encoders of images and sounds on a Vulkan device, as a whole: also their ends, whose rows are fewer."""

import json
from dataclasses import replace

import numpy as np
import pytest

import hearing_models
from pumice.config import load_config
from pumice.convert import ConvertOptions, write_model
from pumice.engine.media.projector import Projector
from pumice.gguf import GGMLType
from pumice.media_encoder import Embeddings
from pumice.model_files.opening import open_model
from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS
from pumice.plugin.unstable import Limits
from pumice.registry import get_registry
from pumice.testing import is_supported
from pumice_vulkan.buckets import Buckets
from pumice_vulkan.lower.linear import MOST_COPIES
from vision_files import picture
from vision_models import SHAPES, SIZE, converted

pytest.importorskip("PIL")
FILES = json.loads(SHAPES.read_text())
LIMITS = Limits(n_ctx=64, n_batch=64, n_outputs=64, n_seqs=1, block_size=32, n_blocks={}, kv_type="f32")


SEVERAL = ((64, 64), (32, 96), (20, 20))
# Kinds of rotations, merged squares, positions and rows between rows that those of several sizes lack.
KINDS = ("hunyuanvl", "kimik25", "lfm2vl", "llama4", "pixtral")


@pytest.mark.usefixtures("vulkan_device")
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [*((kind, SEVERAL) for kind in ("gemma3", "qwen3vl", "internvl")), *((kind, [SIZE]) for kind in KINDS)],
)
def test_rows_of_images_are_those_of_numpy(tmp_path, kind, sizes):
    folder = converted(tmp_path / kind, kind, FILES[kind]["shapes"])
    check(folder / "mmproj.gguf", lambda projector: [projector.encode(picture(*size)) for size in sizes])


@pytest.mark.usefixtures("vulkan_device")
@pytest.mark.parametrize("kind", ["gemma3n", "granitespeech"])
def test_rows_of_sounds_are_those_of_numpy(tmp_path, kind):
    """Products of several vectors of a row with one matrix, of frames as well as of tokens."""
    files = json.loads(hearing_models.SHAPES.read_text())
    folder = hearing_models.write_folder(tmp_path / kind, kind, files[kind]["shapes"])
    with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    sound = hearing_models.sound(hearing_models.SECONDS)
    check(folder / "mmproj.gguf", lambda projector: [projector.encode_sound(sound)])


@pytest.mark.parametrize(("n_vectors", "claimed"), [(MOST_COPIES, True), (MOST_COPIES + 1, False)])
def test_products_of_too_many_vectors_of_a_row_are_left_to_others(vulkan, n_vectors, claimed):
    """Copies of a small matrix are few bytes, but each is a slice of a grid, which has 65,535."""
    x, w = np.ones((1, n_vectors, 4), np.float32), np.eye(8, 4, dtype=np.float32)
    assert is_supported(vulkan, lambda g, a: g.linear(a["x"], g.weight("w")), {"x": x}, {"w": w}) == claimed


def check(path, encode):
    """Compare rows with NumPy's; every operation is computed by its backend."""
    rows = {}
    for backend in ("numpy", "vulkan"):
        config = load_config(overrides={"backend": backend})
        projector = Projector(path, config, get_registry(config))
        rows[backend] = [part.rows for parts in encode(projector) for part in parts if isinstance(part, Embeddings)]
        runners = [runner for line in projector._runners.values() for runner in line]
        assert {segment.backend for runner in runners for segment in runner._last.segments} == {backend}
        projector.close()
    for mine, right in zip(rows["vulkan"], rows["numpy"], strict=True):
        np.testing.assert_allclose(mine, right, atol=1e-5 * np.abs(right).max())


def test_a_bucket_has_room_for_sizes_that_the_architecture_names():
    buckets = Buckets(replace(LIMITS, more_sizes={"n_merged": 16}))
    step = {N_TOKENS: 8, N_OUTPUTS: 0, N_SEQS: 1}
    assert buckets.of({**step, "n_merged": 2}).n_tokens == 8
    assert buckets.of({**step, "n_merged": 3}).n_tokens == 16
    assert buckets.of({**step, "n_merged": 16}).n_tokens == 64
