"""Steps of an encoder's graph: pieces of images, such as tiles, that one run encodes together, each a sequence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Batch
from pumice.graph import N_TOKENS, Graph, Input, Node
from pumice.media_encoder import Inputs

Rows: TypeAlias = NDArray[np.float32]

MOST_ROWS = 4096
"""Rows of a step up to which pieces share it: more occupy no device better."""
MOST_PIECES = 64
_OF_STEP = frozenset({"tokens", "positions", "output_ids"})  # inputs that the batch has itself


class StepRoom:
    """The room that pieces leave in a step.

    Args:
        left: maximum of each named size.
        n_pieces: maximum pieces.
        counts: returns the number of each named size of a piece.
    """

    def __init__(self, left: dict[str, int], n_pieces: int, counts: Callable[[Inputs], dict[str, int]]) -> None:
        self._left = left
        self._n_left = self._n_pieces = n_pieces
        self._counts = counts

    def take(self, *pieces: Inputs) -> bool:
        """Take the room of pieces; return False if there is too little. The first ones have a step in any case."""
        counts: Counter[str] = Counter()
        for piece in pieces:
            counts.update(self._counts(piece))
        has_room = len(pieces) <= self._n_left and all(n <= self._left[size] for size, n in counts.items())
        if not has_room and self._n_left < self._n_pieces:
            return False
        self._n_left -= len(pieces)
        for size, n in counts.items():
            self._left[size] -= n
        return True


class PieceSteps:
    """Joins the inputs of pieces in one step, and divides its result.

    Inputs of several pieces follow each other; those that name rows of a piece then name rows of the step. Pieces of a
    graph with other inputs, such as masks of all pairs of rows, are alone.

    Attributes:
        n_rows: maximum rows of a step.
        sizes: maxima of the sizes that the graph names.
    """

    def __init__(self, graph: Graph, n_rows: int, most_rows: int = MOST_ROWS) -> None:
        self._inputs = {name: tensor for name, tensor in graph.inputs.items() if name not in _OF_STEP}
        self._result = graph.outputs["rows"].shape[0]
        self._ids = _row_ids(graph, self._inputs) if most_rows else None
        factor = max(most_rows // n_rows, 1) if self._ids is not None else 1
        self.n_rows = n_rows * factor
        self.sizes = {name: most * factor for name, most in graph.sizes.items()}

    def room(self) -> StepRoom:
        """Return the room of a step without pieces."""
        return StepRoom({N_TOKENS: self.n_rows, **self.sizes}, MOST_PIECES if self._ids is not None else 1, self.counts)

    def batch(self, pieces: Sequence[Inputs], n_rows: Sequence[int]) -> Batch:
        """Return the step of pieces with these numbers of rows."""
        starts = np.cumsum([0, *n_rows], dtype=np.int32)
        positions = np.concatenate([np.arange(n, dtype=np.int32) for n in n_rows])
        inputs = pieces[0] if len(pieces) == 1 else self._joined(pieces)
        none, slots = np.zeros(0, np.int32), np.arange(len(pieces), dtype=np.int32)
        return Batch(np.zeros_like(positions), positions, none, starts, slots, {}, inputs)

    def divided(self, rows: Rows, pieces: Sequence[Inputs]) -> list[Rows]:
        """Return a copy of the rows of each piece."""
        if len(pieces) == 1:
            return [rows.copy()]
        ends = np.cumsum([self.counts(piece)[str(self._result)] for piece in pieces])
        return [part.copy() for part in np.split(rows, ends[:-1])]

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of each named size of a piece."""
        return {str(tensor.shape[0]): len(inputs[name]) for name, tensor in self._inputs.items() if name in inputs}

    def _joined(self, pieces: Sequence[Inputs]) -> Inputs:
        assert self._ids is not None
        joined: dict[str, list[NDArray[np.generic]]] = {name: [] for name in pieces[0]}
        before = dict.fromkeys((N_TOKENS, *self.sizes), 0)
        for piece in pieces:
            for name, values in piece.items():
                joined[name].append(values + np.int32(before[self._ids[name]]) if name in self._ids else values)
            for size, n in self.counts(piece).items():
                before[size] += n
        return {name: np.concatenate(values) for name, values in joined.items()}


def _row_ids(graph: Graph, inputs: Mapping[str, Input]) -> dict[str, str] | None:
    """Return the size whose rows each input names, of inputs that name rows; None if pieces cannot share a step."""
    named = {N_TOKENS, *graph.sizes}
    if not all(tensor.shape and tensor.shape[0] in named for tensor in inputs.values()):
        return None
    ids: dict[str, str] = {}
    others: set[str] = set()
    for node in itertools.chain.from_iterable(node.parts() for node in graph.nodes):
        if _mixes_rows(node):
            return None
        for name, tensor in node.inputs.items():
            if not isinstance(tensor, Input):
                continue
            if node.op == "get_rows" and name == "ids":
                size = str(node.inputs["x"].shape[0])
                if ids.setdefault(tensor.name, size) != size:
                    return None
            else:
                others.add(tensor.name)
    return None if others & set(ids) else ids


def _mixes_rows(node: Node) -> bool:
    """Return True for an operation that may read rows of other pieces."""
    if node.op == "attention":
        own = all(node.inputs[name].shape[0] == N_TOKENS for name in ("q", "k", "v") if name in node.inputs)
        return node.state is not None or "mask" in node.inputs or not own
    if node.op == "get_rows":
        return not isinstance(node.inputs["ids"], Input) or not isinstance(node.inputs["x"].shape[0], str)
    return node.state is not None
