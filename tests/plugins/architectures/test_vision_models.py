"""Tiny vision models, beside transformers: their conversion, pixels, rows, and the text after an image."""

import asyncio
import math
import re

import numpy as np
import pytest

import pumice
from checkpoints import weights
from gguf_files import write_gguf
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.engine.messages import Encode
from pumice.engine.placement.sizing import BLOCK_SIZE
from pumice.gguf import GGUFFile
from pumice.media_encoder import ImagePiece, JoinedPieces
from pumice.streaming.stream import Stream
from reference_models import check_text
from vision_files import opened, parts_of, picture
from vision_models import CASES, FIXTURE, IMAGE, SIZE, SIZES, converted, described, raster

pytest.importorskip("PIL")
VALUES = np.load(FIXTURE)
# What llama.cpp's converter leaves out: limits of sizes, a rate of places, other windows than 112 pixels, and an
# embedding that its reader of Pixtral wants.
MORE_KEYS = "image_min_pixels image_max_pixels video_min_pixels video_max_pixels tokens_per_second preproc_max_tiles"
MORE_KEYS = {f"clip.vision.{key}" for key in (*MORE_KEYS.split(), "window_size")}
MORE_TENSORS = {"v.token_embd.img_break"}
TORCHVISION = 1.01  # largest difference of a pixel resized by it, of 255; it rounds otherwise than Pillow
IN_BLOCKS = ("qwen", "glm", "exaone", "dots3note")  # whose processors order patches by square
ON_CPU = ("gemma3", "granite4vision", "qwen3vl")  # attention in both directions, by windows; positions of three axes


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")

    def make(kind):
        return converted(root / kind, kind)

    return make


def expected(kind, name):
    return VALUES[f"{kind}.{name}"]


def pixels_of(projector, part, reference):
    """Undo patches and the scaling of pixels; ``reference`` has the form of the result."""
    encoder = projector.encoders["image"]
    patches = part.inputs["patches"]
    if "kinds" in part.inputs:
        patches = patches[part.inputs["kinds"] == 1]
    patches = patches[raster(part.inputs)]
    cells = patches.reshape(len(patches), 3, -1) * np.array(encoder.std)[:, None] + np.array(encoder.mean)[:, None]
    if reference.ndim == 3 and not projector.path.parent.name.startswith(IN_BLOCKS):
        return 255 * cells.swapaxes(1, 2)
    if reference.ndim == 3:
        rows, columns = part.inputs["places"].max(0) + 1
        blocks = cells.reshape(rows // encoder.merge, encoder.merge, -1, encoder.merge, *cells.shape[1:])
        assert columns == blocks.shape[2] * encoder.merge
        return 255 * blocks.swapaxes(1, 2).reshape(-1, *cells.shape[1:]).swapaxes(1, 2)
    n, size = reference.shape[1] // encoder.patch_size, encoder.patch_size
    image = cells.reshape(n, -1, 3, size, size).transpose(0, 3, 1, 4, 2)
    return 255 * image.reshape(*reference.shape[1:])


def pieces_of(parts):
    """Return the pieces among the parts of an image, also those that are joined."""
    single = [part.pieces if isinstance(part, JoinedPieces) else [part] for part in parts if not isinstance(part, str)]
    return [piece for pieces in single for piece in pieces]


def flat_pixels(part):
    """Return the pixels of patches ``[patches, size * size, 3]``, whose mean and standard deviation are one half."""
    return 255 * (part.inputs["patches"].reshape(len(part.inputs["patches"]), 3, -1).swapaxes(1, 2) + 1) / 2


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case["theirs"]])
def test_projectors_are_those_of_llama_cpps_converter(folders, kind):
    ours, theirs = described(folders(kind) / "mmproj.gguf"), CASES[kind]["theirs"]
    if kind == "llama4":  # it calls the second norm by a name of Gemma 4's that its reader takes for another
        theirs["tensors"] = {name.replace("attn_post_norm", "ln2"): it for name, it in theirs["tensors"].items()}
    if kind == "janus":  # whose matrices follow another key of its configuration
        assert theirs["metadata"].pop("clip.vision.feed_forward_length") == 48
        assert ours["metadata"].pop("clip.vision.feed_forward_length") == 64
    read = {key: value for key, value in theirs["metadata"].items() if not key.startswith("vision.")}
    more = MORE_KEYS - read.keys()
    assert {key: value for key, value in ours["metadata"].items() if key not in more} == read
    assert {key: value for key, value in ours["tensors"].items() if key not in MORE_TENSORS} == theirs["tensors"]


@pytest.mark.parametrize("kind", CASES)
def test_pixels_are_those_of_transformers(folders, kind):
    projector = opened(folders(kind))
    for size in (*SIZES, SIZE):
        pieces = pieces_of(projector.encoders["image"].prepare(picture(*size)))
        reference = expected(kind, "pixels.{}x{}".format(*size))
        if kind in ("lfm2vl", "minicpmv46"):  # tiles and the whole, of other sizes
            ours = [np.concatenate([flat_pixels(part) for part in pieces])]
        else:
            ours = [pixels_of(projector, part, reference) for part in pieces]
        atol = TORCHVISION if kind == "lfm2vl" else 1e-3
        np.testing.assert_allclose(np.stack(ours) if reference.ndim == 4 else ours[0], reference, atol=atol)
    projector.close()


def rows_like_transformers(folder, kind, backend):
    """Return the parts of an image, whose rows are those of transformers."""
    parts = [part for part in parts_of(folder, picture(*SIZE), backend) if isinstance(part, Embeddings)]
    rows, reference = np.concatenate([part.rows for part in parts]), expected(kind, "rows")
    limit = {"numpy": 2e-6, "cpu": 1e-4}[backend] * (2 if kind == "gemma4" else 1)  # whose scores are not scaled
    assert np.abs(rows - reference).max() <= limit * np.abs(reference).max()
    return parts


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, "numpy") for kind in CASES), *((kind, "cpu") for kind in ON_CPU)]
)
def test_texts_after_an_image_are_those_of_transformers(folders, kind, backend):
    folder = folders(kind)
    parts = rows_like_transformers(folder, kind, backend)
    logprobs = expected(kind, "logprobs")
    ids = expected(kind, "ids").tolist()
    spans, at = [], 0
    for part in parts:
        at = ids.index(IMAGE, at)
        spans.append(part.at(at))
        at += len(part.rows)
    with pumice.load(folder / "model.gguf", backend=backend, kv_type="f32", n_ctx=128) as model:
        atol = 3e-4 if kind == "gemma4" else 2e-4
        _, again = (check_text(model, ids, spans, logprobs, atol) for _ in range(2))
    whole = (len(ids) - 1) // BLOCK_SIZE * BLOCK_SIZE
    if len(ids) + len(logprobs) > whole + BLOCK_SIZE:  # tokens filled the prompt's last block, which is shared whole
        assert again.prompt_cached == whole
    elif kind not in ("lfm2vl", "qwen35"):  # which keep states at some places only
        assert again.prompt_cached == len(ids) - 1


@pytest.mark.parametrize(("kind", "head"), [("gemma3", "token_embd.weight"), ("qwen3vl", "output.weight")])
def test_embeddings_with_an_image_are_the_states_before_transformers_logits(folders, kind, head):
    folder = folders(kind)
    with GGUFFile.open(folder / "model.gguf") as file:
        to_logits = np.array(file.tensors[head].dequantize())
    ids, logprobs = expected(kind, "ids").tolist(), expected(kind, "logprobs")[0]
    texts = [ids[:9], ids]
    with pumice.load(folder / "model.gguf", backend="numpy", kv_type="f32", n_ctx=128, n_batch=40) as model:
        (image,) = [part for part in model.engine.media.encode("image", picture(*SIZE)) if isinstance(part, Embeddings)]
        media = [[], [image.at(ids.index(IMAGE))]]
        alone, vector = model.engine.client.ask(Encode, texts, "last", media=media).result()
        np.testing.assert_allclose(alone, model.embed([ids[:9]], pooling="last", normalize=False)[0], atol=1e-5)
        logits = to_logits @ vector
        np.testing.assert_allclose(logits - np.logaddexp.reduce(logits), logprobs, atol=2e-4)
        prompt = ["a", pumice.Image(picture(*SIZE)), "b"]
        mixed = model.embed([prompt, "a", pumice.Image(picture(*SIZE))])
        states = model.embed([prompt], pooling="none")[0]
        np.testing.assert_allclose(mixed[0], states[-1], atol=1e-5)
        assert len(states) > len(image.rows)
        np.testing.assert_allclose(mixed, asyncio.run(model.aembed([prompt, "a", prompt[1]])), atol=1e-6)
        with pytest.raises(pumice.RequestError, match=r"an input to embed must be .*, not 5"):
            model.embed([["a", 5]])


def test_sound_beside_an_image_that_attends_both_ways_is_causal(folders):
    """Embeddings of tokens as rows of a sound are read as the tokens; as those of an image they are not."""
    folder = folders("gemma3")
    with GGUFFile.open(folder / "model.gguf") as file:
        table = 8 * np.array(file.tensors["token_embd.weight"].dequantize())  # which Gemma scales by the width's root
    ids, rows = expected("gemma3", "ids").tolist(), expected("gemma3", "rows")
    image, end = Embeddings(rows, start=ids.index(IMAGE)), slice(len(ids) - 12, len(ids) - 2)
    options = {"sampling": {"temperature": 0.0}, "max_tokens": 3, "logprobs": 1, "end_tokens": frozenset()}
    with pumice.load(folder / "model.gguf", backend="numpy", kv_type="f32", n_ctx=128) as model:

        def logprobs(*more):
            stream = Stream.open(model.engine.client, Request(ids, media=[image, *more], **options))[0]
            return [token.logprob for token in stream.completion().logprobs]

        alone = logprobs()
        rows = table[ids[end]]
        sound, picture = (logprobs(Embeddings(rows, None, kind, start=end.start)) for kind in ("audio", "image"))
    np.testing.assert_allclose(sound, alone, atol=1e-5)
    assert np.abs(np.subtract(picture, alone)).max() > 1e-3


@pytest.mark.parametrize("kind", ["qwen2vl", "qwen3vl", "pixtral", "mistral3"])
def test_the_options_bound_the_tokens_of_an_image(folders, kind):
    for options, least, most in (
        ({"image_max_tokens": 6}, 1, 6),
        ({"image_min_tokens": 12}, 12, 99),
        ({"image_min_tokens": 5, "image_max_tokens": 5}, 1, 5),
    ):
        projector = opened(folders(kind), **options)
        for size in ((90, 50), (20, 11), (201, 130), *([(1900, 10)] if options.get("image_max_tokens") else [])):
            parts = projector.encoders["image"].prepare(picture(*size))
            (piece,) = [part for part in parts if isinstance(part, ImagePiece)]
            assert least <= math.prod(piece.grid) <= most, (options, size)
        projector.close()


def contents(folder):
    """Return the metadata and the tensors of a projector, to be written again."""
    with GGUFFile.open(folder / "mmproj.gguf") as file:
        values = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
        return values, {name: tensor.dequantize().copy() for name, tensor in file.tensors.items()}


def test_kimi_vl_reads_the_same_encoder_in_its_own_order(folders, tmp_path):
    """Files of Kimi-VL have the pairs of queries and keys as the checkpoint has them."""
    values, tensors = contents(folders("kimik25"))
    for name, shape in CASES["kimik25"]["shapes"].items():
        if match := re.search(r"blocks\.(\d+)\.wqkv\.(\w+)", name):
            tensors[f"v.blk.{match[1]}.attn_qkv.{match[2]}"] = weights(name, shape)
    tensors["v.position_embd.weight"] = tensors["v.position_embd.weight"].reshape(36, 32)
    write_gguf(tmp_path / "mmproj.gguf", values | {"clip.projector_type": "kimivl"}, tensors)
    (rows,) = [part.rows for part in parts_of(tmp_path, picture(*SIZE)) if isinstance(part, Embeddings)]
    reference = expected("kimik25", "rows")
    assert np.abs(rows - reference).max() <= 2e-6 * np.abs(reference).max()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"image_grid_pinpoints": [32, 100]}, "image_grid_pinpoints has 32 x 100, expected 1 to 64 tiles of 32"),
        ({"image_grid_pinpoints": [32 * 70, 32]}, "expected 1 to 64 tiles"),
        ({"feature_layer": [9]}, r"feature_layer is \[9\], expected numbers from 0 to 3"),
        ({"feature_layer": [1, 2]}, r"tensor mm.0.weight has shape"),
    ],
)
def test_wrong_files_of_tiled_images_are_refused(folders, tmp_path, keys, problem):
    values, tensors = contents(folders("llavanext"))
    keys = {f"clip.vision.{key}": value for key, value in keys.items()}
    write_gguf(tmp_path / "mmproj.gguf", values | keys, tensors)
    with pytest.raises(pumice.ModelError, match=problem):
        opened(tmp_path)
