"""Tiny vision encoders beside transformers' modules and formulas in PyTorch: conversion, pixels and rows."""

import math
from pathlib import Path

import numpy as np
import pytest

import pumice
from checkpoints import weights, write_checkpoint
from gguf_files import write_gguf
from pumice import ConvertError, ModelError
from pumice.convert import ConvertOptions, write_model
from pumice.embeddings import Embeddings
from pumice.gguf import GGMLType, GGUFFile
from pumice.media_encoder import ImagePiece, JoinedPieces
from pumice.model_files.opening import open_model
from pumice_architectures.hearing import SOUND_ENCODERS
from pumice_architectures.vision import ENCODERS
from pumice_numpy.ops import OPS
from reference_models import check_text
from vision_files import opened, parts_of, picture
from vision_formulas import CASES, CONVERTED, FIXTURE, OLD, SIZES, old_metadata, size_of, write_folder
from vision_models import described

pytest.importorskip("PIL")
MMPROJ = ConvertOptions(GGMLType.F32, mmproj=True)
VALUES = np.load(FIXTURE)
# What llama.cpp's converter leaves out: limits of sizes.
MORE_KEYS = {f"clip.vision.{key}" for key in ("image_min_pixels", "image_max_pixels", "preproc_max_tiles")}
# convolutions, masks with sinks, both kinds of rotation, and windows without masks
ON_CPU = ("cogvlm", "deepseekocr", "gemma3n", "ldp", "mimovl", "minimax_m3", "step3vl", "yasa2")
ON_GREY = (20, 11), (63, 40), (90, 50), (200, 24)  # the last one is stretched
WITH_PIXELS = ("deepseekocr", "deepseekocr2", "glm5v", "minimax_m3", "step3vl")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("formulas")

    def make(kind):
        folder = root / kind
        if folder.exists():
            return folder
        if kind in OLD:
            folder.mkdir()
            tensors = {name: weights(name, shape) for name, shape in OLD[kind].items()}
            write_gguf(folder / "mmproj.gguf", old_metadata(kind), tensors)
            return folder
        write_folder(folder, kind)
        with open_model(folder, options=MMPROJ) as file:
            write_model(file, folder / "mmproj.gguf")
        return folder

    return make


@pytest.mark.parametrize(
    ("kind", "backend"),
    [*((kind, "numpy") for kind in (*CASES, *OLD) if kind not in CONVERTED), *((kind, "cpu") for kind in ON_CPU)],
)
def test_rows_are_those_of_the_formulas(folders, kind, backend):
    parts = parts_of(folders(kind), picture(*size_of(kind)), backend)
    rows = np.concatenate([part.rows for part in parts if isinstance(part, Embeddings)])
    reference = VALUES[f"{kind}.rows"]
    limit = {"numpy": 2e-6, "cpu": 1e-4}[backend]
    assert rows.shape == reference.shape
    if kind.startswith("cogvlm"):  # the first and last row are stored, and larger
        np.testing.assert_allclose(rows[:, -1], reference[:, -1])
        np.testing.assert_array_equal(rows[[0, -1]], reference[[0, -1]])
        rows, reference = rows[1:-1, :-1], reference[1:-1, :-1]
    assert np.abs(rows - reference).max() <= limit * np.abs(reference).max()


def test_rows_of_mobilenet_differ_by_the_rounding_of_products_and_norms(folders, monkeypatch):
    def linear(x, weight, bias):
        y = x.astype(np.float64) @ np.asarray(weight, np.float64).T
        return (y if bias is None else y + bias).astype(np.float32)

    def rms_norm(x, weight, eps):
        wide = x.astype(np.float64)
        y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
        return (y if weight is None else y * weight).astype(np.float32)

    monkeypatch.setitem(OPS, "linear", linear)
    monkeypatch.setitem(OPS, "rms_norm", rms_norm)
    parts = parts_of(folders("gemma3n"), picture(*size_of("gemma3n")))
    (image,) = [part for part in parts if isinstance(part, Embeddings)]
    reference = VALUES["gemma3n.rows"]
    assert np.abs(image.rows - reference).max() <= 1e-6 * np.abs(reference).max()


@pytest.mark.parametrize(("kind", "backend"), [("cogvlm", "numpy"), ("cogvlm", "cpu"), ("cogvlm2", "numpy")])
def test_visual_experts_read_an_image_whose_patches_have_one_position(folders, kind, backend):
    folder, ids = folders(kind), VALUES[f"{kind}.ids"].tolist()
    if not (folder / "model.gguf").exists():
        with open_model(folder, options=ConvertOptions(GGMLType.F32)) as file:
            write_model(file, folder / "model.gguf")
    (image,) = parts_of(folder, picture(*size_of(kind)))
    # the image is read in two steps, and the text behind it in a third
    with pumice.load(folder / "model.gguf", backend=backend, kv_type="f32", n_ctx=128, n_batch=40) as model:
        check_text(model, ids, [image.at(ids.index(0))], VALUES[f"{kind}.logprobs"][None], 2e-4)


def raster(piece):
    """Return the rows of an image's patches in their order, without the empty ones."""
    place, inside = piece.inputs["place"], piece.inputs["inside"][:, 0] > 0
    return np.flatnonzero(inside)[np.argsort(place[inside])]


@pytest.mark.parametrize("kind", WITH_PIXELS)
@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_those_of_transformers(folders, kind, size):
    projector = opened(folders(kind))
    encoder = projector.encoders["image"]
    pieces = []
    for part in encoder.prepare(picture(*size)):
        pieces += [part] if isinstance(part, ImagePiece) else part.pieces if isinstance(part, JoinedPieces) else []
    projector.close()
    sam, images = getattr(encoder, "sam", None), []
    p = sam.patch_size if sam else encoder.patch_size
    for piece in pieces:
        order = raster(piece) if sam else slice(None)
        rows, columns = (math.isqrt(len(order)),) * 2 if sam else piece.inputs["places"].max(0) + 1
        patches = piece.inputs["patches"][order].reshape(rows, columns, 3, p, p)
        scaled = patches * np.array(encoder.std)[:, None, None] + np.array(encoder.mean)[:, None, None]
        if kind == "step3vl" or sam:
            images.append(scaled.transpose(0, 3, 1, 4, 2).reshape(-1, 3))
        else:  # patches by square
            squares = scaled.reshape(rows // 2, 2, columns // 2, 2, 3, p * p).transpose(0, 2, 1, 3, 5, 4)
            images.append(squares.reshape(-1, p * p, 3))
    np.testing.assert_allclose(255 * np.concatenate(images), VALUES[f"{kind}.pixels.{size[0]}x{size[1]}"], atol=1e-3)


@pytest.mark.parametrize("size", ON_GREY)
def test_images_of_deepseek_v4_keep_their_ratio_on_grey(folders, size):
    projector = opened(folders("deepseek4v"))
    shown = projector.encoders["image"].resized(picture(*size))
    projector.close()
    np.testing.assert_array_equal(shown.reshape(-1, 3), VALUES[f"deepseek4v.pixels.{size[0]}x{size[1]}"])


@pytest.mark.parametrize("kind", ["dots_ocr", "glm5v", "kimivl", "mimovl", "minimax_m3", "youtuvl"])
def test_no_tensor_of_a_block_may_be_missing_where_other_blocks_have_it(folders, tmp_path, kind):
    with GGUFFile.open(folders(kind) / "mmproj.gguf") as file:
        metadata = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
        tensors = {name: tensor.dequantize() for name, tensor in file.tensors.items()}
    for name in [name for name in tensors if name.startswith("v.blk.1.") and "attn_qkv.weight" not in name]:
        write_gguf(tmp_path / "mmproj.gguf", metadata, {other: tensors[other] for other in tensors if other != name})
        with pytest.raises(ModelError, match=f"tensor {name} is missing from the file"):
            opened(tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        ("vision.blocks.1.mlp.w1.weight", (97, 32), "tensor 'vision.blocks.1.mlp.w1.weight'.* 97 values .* 48 \\+ 48"),
        ("image_newline", None, "tensor 'image_newline' is missing"),
        ("image_pad", None, "tensor 'image_pad' is missing"),
    ],
)
def test_checkpoints_of_deepseek_v4_with_wrong_tensors(tmp_path, name, shape, problem):
    case = CASES["deepseek4v"]
    shapes = {key: value for key, value in {**case["shapes"], name: shape}.items() if value}
    write_checkpoint(tmp_path, case["config"], shapes, "bpe")
    with pytest.raises(ConvertError, match=problem), open_model(tmp_path, options=MMPROJ):
        pass


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case["theirs"]])
def test_projectors_are_those_of_llama_cpps_converter(folders, kind):
    ours, theirs = described(folders(kind) / "mmproj.gguf"), CASES[kind]["theirs"]
    more = MORE_KEYS - theirs["metadata"].keys()
    # Gemma 3n's part of sounds is not converted.
    read = {key: value for key, value in theirs["metadata"].items() if "audio" not in key}
    if kind == "kimivl":  # the side of the published table of positions; other tables have other sides here
        assert (read.pop("clip.vision.image_size"), ours["metadata"].pop("clip.vision.image_size")) == (896, 48)
    assert {key: value for key, value in ours["metadata"].items() if key not in more} == read
    assert ours["tensors"] == theirs["tensors"]


def test_the_documentation_has_a_row_for_every_type():
    lines = (Path(__file__).parents[3] / "docs" / "media_types.md").read_text().splitlines()
    named = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert set(named) == {*ENCODERS, *SOUND_ENCODERS}
