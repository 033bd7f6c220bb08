"""Videos of tiny vision models, beside transformers: sampled frames, sizes, texts, pixels, rows, and the text after."""

import json

import numpy as np
import pytest

import pumice
from pumice.config import load_config
from pumice.embeddings import Embeddings
from pumice.engine.media.projector import Projector
from pumice.media.videos import Video, VideoForm
from pumice.media_encoder import JoinedPieces
from pumice.registry import get_registry
from reference_models import check_text
from videos import FIXTURE, MODELS, SIZE, frames
from vision_files import write_projector
from vision_models import IMAGE, converted, raster

pytest.importorskip("PIL")
VALUES, TOLD = np.load(FIXTURE), json.loads(FIXTURE.with_suffix(".json").read_text())
VIDEO_TOKEN = 415
WITH_TEXTS = ("qwen2vl", "qwen25vl", "qwen3vl", "glm4v", "gemma4")
AROUND = dict.fromkeys(("qwen2vl", "qwen25vl"), ("<|vision_start|>", "<|vision_end|>"))
AROUND["glm4v"] = ("<|begin_of_video|>", "<|end_of_video|>")
# Where transformers samples no frame or leaves one out, of a video of one frame.
ALONE = {"qwen2vl": [0], "qwen25vl": [0]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")

    def make(kind):
        folder = root / kind
        if not folder.exists() and kind == "smolvlm":
            folder.mkdir()
            write_projector(folder / "mmproj.gguf", "idefics3")
        return folder if kind == "smolvlm" else converted(folder, kind)

    return make


@pytest.fixture(scope="module")
def opened(folders):
    config = load_config(overrides={"backend": "numpy"})
    projectors = {kind: Projector(folders(kind) / "mmproj.gguf", config, get_registry(config)) for kind in TOLD}
    yield projectors
    for projector in projectors.values():
        projector.close()


def form_of(text, size=SIZE):
    n, rate = text.split()
    return VideoForm(int(n), float(rate), size[1], size[0])


@pytest.mark.parametrize("kind", TOLD)
def test_the_frames_of_a_video_are_those_of_transformers(opened, kind):
    for text, expected in TOLD[kind]["frames"].items():
        plan = opened[kind].encoders["image"].plan_video(form_of(text))
        assert plan.frames == (ALONE[kind] if expected is None else expected), text


@pytest.mark.parametrize("kind", TOLD)
def test_plans_of_any_video_name_its_frames(opened, kind):
    """Rates that are no decimal numbers: the last second may begin a rounding error before the end."""
    random, encoder = np.random.default_rng(1), opened[kind].encoders["image"]
    forms = [VideoForm(3, 0.05084745762711864, 64, 64), VideoForm(1, 960.0, 64, 64)]
    for _ in range(300):
        n, seconds = int(random.integers(1, 4000)), float(random.integers(1, 3000))
        rate = min(max(np.nextafter(n / seconds, 0), 1e-3), 960.0)
        forms.append(VideoForm(n, float(rate), *(int(side) for side in random.integers(20, 900, 2))))
    for form in forms:
        try:
            plan = encoder.plan_video(form)
        except pumice.RequestError:  # sides that are too unlike
            continue
        assert plan.frames, form
        assert 0 <= min(plan.frames) <= max(plan.frames) < form.n_frames, form


@pytest.mark.parametrize("kind", [kind for kind in TOLD if "sizes" in TOLD[kind]])
def test_sizes_of_frames_are_those_of_transformers(opened, kind):
    encoder = opened[kind].encoders["image"]
    for text, expected in TOLD[kind]["sizes"].items():
        n, height, width = map(int, text.split())
        if kind in ("gemma4", "minicpmv46"):
            ours = encoder.plan_video(VideoForm(n, 1.0, height, width)).size
        else:
            ours = encoder.frame_size(n, height, width)
        assert ours == tuple(expected), text


@pytest.mark.parametrize("kind", TOLD)
def test_texts_among_frames_are_those_of_transformers(opened, kind):
    for text, expected in TOLD[kind]["texts"].items():
        form, encoder = form_of(text), opened[kind].encoders["image"]
        plan = encoder.plan_video(form)
        parts = encoder.prepare_video(form, np.zeros((len(plan.frames), *plan.size, 3), np.uint8))
        ours = "".join(part if isinstance(part, str) else "#" for part in parts)
        before, after = AROUND.get(kind, ("", ""))
        assert ours == before + expected + after


def parts_of(projector, kind):
    """Return what stands for the video by formula in a prompt, and its pieces."""
    n, rate = MODELS[kind]
    video = Video(frames(n), rate)
    seen = video.frames(projector.plan_video(video.form()))
    pieces = []
    for part in projector.encoders["image"].prepare_video(video.form(), seen):
        pieces += [] if isinstance(part, str) else part.pieces if isinstance(part, JoinedPieces) else [part]
    return projector.encode(seen, None, "video", video.form()), pieces


@pytest.mark.parametrize("kind", ["qwen2vl", "qwen25vl", "qwen3vl", "glm4v"])
def test_patches_of_pairs_of_frames_are_those_of_transformers(opened, kind):
    _, pieces = parts_of(opened[kind], kind)
    merge, expected = 2, VALUES[f"{kind}.pixels"]
    for i, piece in enumerate(pieces):
        rows, columns = piece.inputs["places"].max(0) + 1
        order = raster(piece.inputs)
        both = np.stack([piece.inputs[name][order].reshape(-1, 3, 64) for name in ("patches", "next_patches")], 2)
        squares = both.reshape(rows // merge, merge, columns // merge, merge, -1).swapaxes(1, 2)
        reference = expected[i * rows * columns : (i + 1) * rows * columns]
        np.testing.assert_allclose(squares.reshape(rows * columns, -1), reference, atol=1e-5)
    assert (i + 1) * rows * columns == len(expected)


@pytest.mark.parametrize("kind", ["internvl", "smolvlm"])
def test_pixels_of_frames_are_those_of_transformers(opened, kind):
    encoder = opened[kind].encoders["image"]
    _, pieces = parts_of(opened[kind], kind)
    expected = VALUES[f"{kind}.pixels"].reshape(-1, 3, 32, 32)
    assert len(pieces) == len(expected)
    for piece, reference in zip(pieces, expected, strict=True):
        patches = piece.inputs["patches"]
        patches = patches[piece.inputs["kinds"] == 1] if "kinds" in piece.inputs else patches
        size = encoder.patch_size
        image = patches.reshape(32 // size, -1, 3, size, size).transpose(2, 0, 3, 1, 4).reshape(3, 32, 32)
        np.testing.assert_allclose(image, reference, atol=1e-5)


def test_frames_of_minicpmv_are_images_without_slices(opened):
    parts, pieces = parts_of(opened["minicpmv46"], "minicpmv46")
    patches = np.concatenate([piece.inputs["patches"] for piece in pieces])
    np.testing.assert_allclose(patches, VALUES["minicpmv46.pixels"], atol=1e-5)
    texts = "".join(part if isinstance(part, str) else "#" for part in parts)
    assert texts == "<image>#</image>" * len(pieces) == "<image>#</image>" * 2


@pytest.mark.parametrize("kind", WITH_TEXTS)
def test_texts_after_a_video_are_those_of_transformers(opened, folders, kind):
    parts, _ = parts_of(opened[kind], kind)
    media = [part for part in parts if isinstance(part, Embeddings)]
    rows, reference = np.concatenate([part.rows for part in media]), VALUES[f"{kind}.rows"]
    assert np.abs(rows - reference).max() <= (4e-6 if kind == "gemma4" else 2e-6) * np.abs(reference).max()
    logprobs, ids = VALUES[f"{kind}.logprobs"], VALUES[f"{kind}.ids"].tolist()
    spans, start = [], 0
    for part in media:
        start = ids.index(IMAGE if kind == "glm4v" else VIDEO_TOKEN, start)
        spans.append(part.at(start))
        start += len(part.rows)
    with pumice.load(folders(kind) / "model.gguf", backend="numpy", kv_type="f32", n_ctx=512) as model:
        check_text(model, ids, spans, logprobs, 3e-4)
