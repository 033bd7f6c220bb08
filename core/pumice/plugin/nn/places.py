"""Positions of tokens within their sequence's part of a step, for operations on neighbours or on whole blocks.

Tokens before the step are not visible, so these fit steps that contain all relevant tokens, such as a draft's block.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_SEQS, N_TOKENS, GraphBuilder, Tensor
from pumice.plugin.unstable import StepRows


def neighbour(g: GraphBuilder, x: Tensor, distance: int) -> Tensor:
    """Return the rows of ``x [t, n]`` that are ``distance`` tokens later; 0 outside of the sequence's part."""
    if distance == 0:
        return x
    rows = g.input(f"rows {distance:+}", (N_TOKENS,), "i32", fill=partial(_rows, distance))
    inside = g.input(f"inside {distance:+}", (N_TOKENS, 1), fill=partial(_inside, distance))
    return g.get_rows(x, rows) * inside


def at_place(g: GraphBuilder, x: Tensor, place: int) -> Tensor:
    """Return the row of ``x [t, ...]`` at a place of each sequence, or its last row: ``[n_seqs, ...]``."""
    return g.get_rows(x, g.input(f"rows of place {place}", (N_SEQS,), "i32", fill=partial(_rows_of_place, place)))


def of_sequence(g: GraphBuilder, x: Tensor) -> Tensor:
    """Return for each token its sequence's row of ``x [n_seqs, ...]``: ``[t, ...]``."""
    return g.get_rows(x, g.input("sequences", (N_TOKENS,), "i32", fill=_sequences))


def places(g: GraphBuilder, first: int, stop: int) -> Tensor:
    """Return one-hot places of tokens: ``[t, stop - first]``."""
    shape = (N_TOKENS, stop - first)
    return g.input(f"places {first} to {stop}", shape, fill=partial(_places, first, stop))


def _sequences(batch: StepRows) -> NDArray[np.int32]:
    return np.repeat(np.arange(len(batch.slots), dtype=np.int32), np.diff(batch.seq_starts))


def _ends(batch: StepRows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first row of each token's sequence, and the row after its last."""
    sequences = _sequences(batch)
    return batch.seq_starts[sequences], batch.seq_starts[sequences + 1]


def _rows(distance: int, batch: StepRows) -> NDArray[np.int32]:
    starts, stops = _ends(batch)
    return np.clip(np.arange(len(starts)) + distance, starts, stops - 1).astype(np.int32)


def _inside(distance: int, batch: StepRows) -> NDArray[np.float32]:
    starts, stops = _ends(batch)
    rows = np.arange(len(starts)) + distance
    return ((rows >= starts) & (rows < stops)).astype(np.float32)[:, None]


def _rows_of_place(place: int, batch: StepRows) -> NDArray[np.int32]:
    return np.minimum(batch.seq_starts[:-1] + place, batch.seq_starts[1:] - 1).astype(np.int32)


def _places(first: int, stop: int, batch: StepRows) -> NDArray[np.float32]:
    own = np.arange(len(batch.positions)) - _ends(batch)[0]
    return (own[:, None] == np.arange(first, stop)).astype(np.float32)
