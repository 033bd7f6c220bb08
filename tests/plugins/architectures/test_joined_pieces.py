"""Pieces of images that share a step of an encoder's graph: their rows are those of pieces alone."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from pumice.media_encoder import ImagePiece, JoinedPieces
from pumice_numpy import NumpyBackend
from vision_files import opened, picture
from vision_models import converted
from waiting import wait_until

pytest.importorskip("PIL")
PICTURES = [picture(64, 64), picture(150, 70), picture(40, 90)]
ALONE = ("minicpmv46",)  # with masks of all pairs of patches, or stages


def pieces_of(projector):
    for pixels in PICTURES:
        for part in projector.encoders["image"].prepare(pixels):
            if isinstance(part, JoinedPieces):
                yield from part.pieces
            elif isinstance(part, ImagePiece):
                yield part


def grouped(projector):
    """Return the pieces of all pictures, as many together as a step has room for."""
    steps = projector.steps["image"].steps
    groups, room = [[]], steps.room()
    for piece in pieces_of(projector):
        if not room.take(piece.inputs):
            groups.append([])
            room = steps.room()
            assert room.take(piece.inputs)
        groups[-1].append(piece)
    return groups


@pytest.mark.parametrize(
    "kind", ["gemma3", "qwen25vl", "qwen3vl", "pixtral", "mistral3", "internvl", "llavanext", "llama4", *ALONE]
)
def test_pieces_that_share_a_step(tmp_path, monkeypatch, kind):
    folder = converted(tmp_path / kind, kind)
    rows, n_groups = {}, {}
    for shares in (False, True):  # as on a GPU
        monkeypatch.setattr(NumpyBackend, "offload", shares)
        projector = opened(folder)
        groups = grouped(projector)
        n_groups[shares] = len(groups)
        rows[shares] = [one for group in groups for one in projector.steps["image"].compute(group)]
        projector.close()
    assert n_groups[False] == len(rows[False]) == len(rows[True])
    assert n_groups[True] == (n_groups[False] if kind in ALONE else 1)
    for together, alone in zip(rows[True], rows[False], strict=True):
        np.testing.assert_allclose(together, alone, atol=2e-6 * np.abs(alone).max())


@pytest.fixture
def projector(tmp_path, monkeypatch):
    """Pixtral's, whose pieces share steps, as on a GPU."""
    monkeypatch.setattr(NumpyBackend, "offload", True)
    folder = converted(tmp_path / "pixtral", "pixtral")
    with closing(opened(folder)) as projector:
        yield projector


def held_step(projector, monkeypatch, outputs):
    """Replace the first step's results by those of ``outputs``, once all other pictures wait."""
    (runner,) = projector.steps["image"].runners
    sizes, compute = [], runner.outputs

    def step(batch):
        sizes.append(len(batch.slots))
        if len(sizes) == 1:
            wait_until(lambda: len(projector.steps["image"]._waiting) == len(PICTURES) - 1)
            return outputs(compute, batch)
        return compute(batch)

    monkeypatch.setattr(runner, "outputs", step)
    return sizes


def rows_of(parts):
    return [part.rows for part in parts if not isinstance(part, str)]


def test_pictures_of_several_requests_share_a_step(projector, monkeypatch):
    alone = [rows_of(projector.encode(pixels)) for pixels in PICTURES]
    sizes = held_step(projector, monkeypatch, lambda compute, batch: compute(batch))
    with ThreadPoolExecutor(len(PICTURES)) as pool:
        together = [rows_of(parts) for parts in pool.map(projector.encode, PICTURES)]
    assert sizes == [1, 2]
    assert not projector.steps["image"]._waiting
    for parts, expected in zip(together, alone, strict=True):
        for rows, right in zip(parts, expected, strict=True):
            np.testing.assert_allclose(rows, right, atol=2e-6 * np.abs(right).max())
