"""MiniCPM-V's encoder, beside transformers' and torch's."""

import numpy as np
import pytest

import pumice
from minicpmv_files import FIXTURE, N_QUERIES, PATCH, PICTURES, write_minicpmv
from pumice.embeddings import Embeddings
from vision_files import opened, parts_of, picture

pytest.importorskip("PIL")


def pieces(projector, size):
    return [part for part in projector.encoders["image"].prepare(picture(*size)) if not isinstance(part, str)]


@pytest.fixture(scope="module")
def projector(tmp_path_factory):
    projector = opened(write_minicpmv(tmp_path_factory.mktemp("minicpmv") / "mmproj.gguf"))
    yield projector
    projector.close()


@pytest.fixture(scope="module")
def expected():
    with np.load(FIXTURE) as file:
        return dict(file)


@pytest.mark.parametrize("size", PICTURES)
def test_pixels_are_those_of_transformers(projector, expected, size):
    found = pieces(projector, size)
    name = "pixels.{}x{}.".format(*size)
    assert len(found) == sum(key.startswith(name) for key in expected)
    for i, piece in enumerate(found):
        reference = expected[f"{name}{i}"]
        rows, columns = reference.shape[0] // PATCH, reference.shape[1] // PATCH
        cells = piece.inputs["patches"][: rows * columns].reshape(rows, columns, 3, PATCH, PATCH)
        image = cells.transpose(0, 3, 1, 4, 2).reshape(reference.shape)
        np.testing.assert_allclose((image * 0.5 + 0.5) * 255, reference, atol=1e-3)
        assert len(piece.inputs["patches"]) == rows * columns + N_QUERIES


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_rows_are_those_of_transformers_and_torch(tmp_path, expected, backend):
    parts = parts_of(write_minicpmv(tmp_path / "mmproj.gguf"), picture(*PICTURES[0]), backend)
    rows = np.stack([part.rows for part in parts if isinstance(part, Embeddings)])
    reference = expected["rows.{}x{}".format(*PICTURES[0])]
    limit = {"numpy": 2e-6, "cpu": 1e-4}[backend]
    assert np.abs(rows - reference).max() <= limit * np.abs(reference).max()


@pytest.mark.parametrize(
    ("version", "before", "around", "after"),
    [(3, "", ("<slice>", "</slice>"), ""), (2, "<slice>", ("<image>", "</image>"), "</slice>")],
)
def test_texts_around_slices(tmp_path, version, before, around, after):
    projector = opened(write_minicpmv(tmp_path / "mmproj.gguf", **{"clip.minicpmv_version": version}))
    parts = projector.encoders["image"].prepare(picture(201, 130))
    projector.close()
    row = 3 * "|".join(around)
    texts = "".join(part if isinstance(part, str) else "|" for part in parts)
    assert texts == f"<image>|</image>{before}{row}\n{row}{after}"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"clip.minicpmv_query_num": 9}, r"resampler.query has shape \[8, 256\], for 9 queries"),
        ({"clip.minicpmv_version": "a"}, "clip.minicpmv_version is 'a'"),
        ({"clip.vision.image_size": 1 << 10}, "image_size is 1024"),
    ],
)
def test_wrong_files_are_refused(tmp_path, keys, problem):
    with pytest.raises(pumice.ModelError, match=problem):
        opened(write_minicpmv(tmp_path / "mmproj.gguf", **keys))
