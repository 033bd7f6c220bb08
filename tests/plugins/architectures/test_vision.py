"""Encoders of images, beside transformers': pixels, texts around, rows."""

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gguf_files import write_gguf
from pumice.config import load_config
from pumice.engine.media.projector import Projector
from pumice.errors import ModelError, PromptTooLongError
from pumice.hub.projectors import find_projector
from pumice.registry import get_registry
from vision_files import FIXTURE, opened, parts_of, picture, write_projector

pytest.importorskip("PIL")
KINDS = ("idefics3", "mlp")


@pytest.fixture(scope="module")
def expected():
    with np.load(FIXTURE) as file:
        return dict(file)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def projector(tmp_path_factory, kind):
    projector = opened(write_projector(tmp_path_factory.mktemp("vision") / "mmproj.gguf", kind))
    yield projector
    projector.close()


def images(parts):
    """Undo patches: float32 [n, 3, 32, 32], scaled as pixels are."""
    rows = [part.inputs["patches"][-16:].reshape(4, 4, 3, 8, 8) for part in parts if not isinstance(part, str)]
    return np.stack([row.transpose(2, 0, 3, 1, 4).reshape(3, 32, 32) for row in rows])


def test_pixels_are_those_of_transformers(projector, kind, expected):
    names = [name for name in expected if name.startswith(f"{kind}.pixels.")]
    assert names
    for name in names:
        parts = projector.encoders["image"].prepare(picture(*map(int, name.rpartition(".")[2].split("x"))))
        pixels = images(parts)
        if kind == "idefics3":
            pixels = (pixels * 0.5 + 0.5) * 255
        np.testing.assert_allclose(pixels, expected[name], atol=1e-4 if kind == "idefics3" else 1e-6, err_msg=name)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_rows_are_those_of_transformers(tmp_path, kind, expected, backend):
    parts = parts_of(write_projector(tmp_path / "mmproj.gguf", kind), picture(50, 30), backend)
    rows = np.concatenate([part.rows for part in parts if not isinstance(part, str)])
    reference = expected[f"{kind}.rows.50x30"].reshape(rows.shape)
    limit = {"numpy": 1e-6, "cpu": 1e-4}[backend]
    assert np.abs(rows - reference).max() <= limit * np.abs(reference).max()


def test_texts_around_tiles(tmp_path):
    projector = opened(write_projector(tmp_path / "mmproj.gguf", "idefics3"))
    parts = projector.encode(picture(50, 30))
    n_rows = sum(len(part.rows) for part in parts if not isinstance(part, str))
    assert len(projector.encode(picture(50, 30), n_rows)) == len(parts)
    first = next(len(part.rows) for part in parts if not isinstance(part, str))
    with pytest.raises(PromptTooLongError, match=f"at least {2 * first} tokens"):  # encodes no third tile
        projector.encode(picture(50, 30), first)
    projector.close()
    texts = ["|" if not isinstance(part, str) else part for part in parts]
    fake = "<fake_token_around_image>"
    rows = "".join(f"{fake}<row_{r}_col_1>|{fake}<row_{r}_col_2>|\n" for r in (1, 2))
    assert "".join(texts) == f"{rows}\n{fake}<global-img>|{fake}"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"clip.projector_type": "nothing"}, "nothing"),
        ({"clip.has_vision_encoder": False}, "not a projector of images"),
        ({"image_std": [0.0, 1.0, 1.0]}, "image_std"),
        ({"patch_size": 64}, "image_size has 0 patches a side, expected 1 to 256"),
        ({"image_size": 1 << 20, "patch_size": 1 << 13}, "image_size is 1048576, expected at most 8192 pixels"),
        ({"projector.scale_factor": 3}, "projector.scale_factor"),
        ({"embedding_length": 64}, "v.patch_embd.weight"),
    ],
)
def test_wrong_files_are_refused(tmp_path, keys, problem):
    with pytest.raises(ModelError, match=problem):
        opened(write_projector(tmp_path / "mmproj.gguf", "idefics3", **keys))


def test_the_projector_beside_a_model_is_found(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"")
    assert find_projector(model) is None
    first = write_projector(tmp_path / "mmproj-model.gguf", "mlp")
    assert find_projector(model) == first
    write_projector(tmp_path / "mmproj-other.gguf", "mlp")
    assert find_projector(model) is None


def test_the_encoder_of_the_tutorial(tmp_path):
    tutorial = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL) if "ImageEncoder" in code)
    plugin = ModuleType("mosaic")
    exec(compile(code, "docs/plugins.md", "exec"), vars(plugin))
    keys = {"clip.has_vision_encoder": True, "clip.projector_type": "mosaic"}
    keys |= {"clip.vision.block_count": 1, "clip.vision.projection_dim": 8}
    weight = np.random.default_rng(0).normal(size=(8, 768)).astype(np.float32)
    path = write_gguf(tmp_path / "mmproj.gguf", {"general.architecture": "clip", **keys}, {"mosaic.weight": weight})
    config = load_config(overrides={"backend": "numpy"})
    projector = Projector(path, config, get_registry(config, [plugin]))
    pixels = np.repeat(np.repeat(picture(4, 4), 32, 0), 16, 1)  # a square is of one color
    before, image, after = projector.encode(pixels)
    projector.close()
    assert (before, after) == ("<image>", "</image>")
    colors = picture(4, 4).reshape(16, 3).astype(np.float32) / 255
    np.testing.assert_allclose(image.rows, np.tile(colors, 256) @ weight.T, rtol=1e-4, atol=1e-4)
