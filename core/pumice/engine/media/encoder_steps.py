"""Steps of an encoder: pieces of images or sounds, of several threads at once, that share runs of its graphs."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN
from pumice.backend.step import Batch
from pumice.clients import check_wanted
from pumice.config import Config
from pumice.engine.media.encoders import IMAGE
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.placement import Backends
from pumice.engine.placement.runner import Runner, compiled_graph
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.errors import ModelClosedError
from pumice.graph import N_TOKENS, Graph, Input, Node
from pumice.media_encoder import ImagePiece, Inputs, JoinedPieces, MediaEncoder, SoundPiece
from pumice.registry import Registry

Rows: TypeAlias = NDArray[np.float32]

MOST_ROWS = 4096
"""Rows of a step up to which pieces share it: more occupy no device better."""
MOST_PIECES = 64
_OF_STEP = frozenset({"tokens", "positions", "output_ids"})  # inputs that the batch has itself

Piece = ImagePiece | SoundPiece
Part = str | ImagePiece | JoinedPieces | SoundPiece
"""What stands for media in a prompt: texts, and pieces whose rows are computed."""


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

    def __init__(self, graph: Graph, n_rows: int, most_rows: int) -> None:
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


class EncoderSteps:
    """Computes pieces of one encoder, a step at a time.

    Several threads may compute: one prepares pieces while another's are computed, and pieces of several that wait share
    a step.

    Args:
        encoder: the encoder.
        graphs: the graph of each of its stages.
        config: options of the backends.
        registry: registered plugins.
        lock: held while a step is computed, by all encoders of a file.

    Raises BackendError if the graphs cannot be compiled.
    """

    def __init__(
        self, encoder: MediaEncoder, graphs: Sequence[Graph], config: Config, registry: Registry, lock: threading.Lock
    ) -> None:
        with ExitStack() as stack:
            backends = open_backends(stack, registry, config)
            together = encoder.kind == IMAGE and not encoder.stages and backends[0][1].offload
            self.steps = PieceSteps(graphs[0], encoder.n_rows, MOST_ROWS if together else 0)
            self.runners = [_runner(stack, self.steps.n_rows, graphs[0], backends, config, self.steps.sizes)]
            for stage, graph in zip(encoder.stages, graphs[1:], strict=True):
                own = open_backends(stack, registry, config)
                self.runners.append(_runner(stack, stage.n_rows, graph, own, config, graph.sizes))
            self._lock = lock
            self._waiting: deque[_WaitingPieces] = deque()  # the oldest first
            self._close = stack.pop_all().close

    def close(self) -> None:
        """Free the memory; the lock is held."""
        self.runners.clear()  # their weights are views of the file
        self._close()

    def grouped(self, parts: Iterable[Part]) -> Iterator[list[Part]]:
        """Yield parts in groups whose pieces one step has room for; joined pieces are alone."""
        group: list[Part] = []
        room = self.steps.room()
        for part in parts:
            check_wanted()
            if isinstance(part, JoinedPieces):
                yield group
                yield [part]
                group, room = [], self.steps.room()
                continue
            if not isinstance(part, str) and not room.take(part.inputs):
                yield group
                group, room = [], self.steps.room()
                room.take(part.inputs)
            group.append(part)
        yield group

    def rows(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Rows | None]]:
        """Yield parts in order with their rows, None for texts."""
        for group in self.grouped(parts):
            pieces = [part for part in group if isinstance(part, (ImagePiece, SoundPiece))]
            computed = iter(self.compute(pieces) if pieces else ())
            for part in group:
                if isinstance(part, JoinedPieces):
                    made = [rows for _, rows in self.rows(part.pieces) if rows is not None]
                    yield part, np.concatenate(made)[part.order]
                else:
                    yield part, None if isinstance(part, str) else next(computed)

    def compute(self, pieces: Sequence[Piece]) -> Sequence[Rows]:
        """Return the rows of pieces that one step has room for. What other threads wait for may share the step."""
        check_wanted()
        own = _WaitingPieces(pieces)
        self._waiting.append(own)
        with self._lock:
            if own.results is None:
                self._compute(own)
        assert own.results is not None
        return own.results

    def _compute(self, own: _WaitingPieces) -> None:
        """Compute a step with a thread's pieces, and as many of those that wait as it has room for."""
        self._waiting.remove(own)
        together, inputs = [own], [piece.inputs for piece in own.pieces]
        room = self.steps.room()
        room.take(*inputs)
        for other in list(self._waiting):
            more = [piece.inputs for piece in other.pieces]
            if room.take(*more):
                together.append(other)
                inputs += more
        results = iter(self._step(inputs, own.pieces[0]))
        for one in together:
            one.results = [next(results) for _ in one.pieces]
            if one is not own:
                self._waiting.remove(one)

    def _step(self, inputs: Sequence[Inputs], piece: Piece) -> list[Rows]:
        """Return the rows of pieces with these inputs; further stages are those of a piece that is alone."""
        if not self.runners:
            raise ModelClosedError("the model is closed")
        first, *others = self.runners
        batch = self.steps.batch(inputs, [len(one["patches"]) for one in inputs])
        results = self.steps.divided(first.outputs(batch)["rows"], inputs)
        later = piece.later if isinstance(piece, ImagePiece) else ()
        for runner, following in zip(others, later, strict=True):
            inputs = [{**following, "rows": results[0]}]
            batch = self.steps.batch(inputs, [len(following["row_ids"])])
            results = self.steps.divided(runner.outputs(batch)["rows"], inputs)
        return results


@dataclass(eq=False)
class _WaitingPieces:
    """Pieces of a thread that fit one step; ``results``: the rows of each, once they are computed."""

    pieces: Sequence[Piece]
    results: list[Rows] | None = None


def _runner(
    stack: ExitStack, n_rows: int, graph: Graph, backends: Backends, config: Config, sizes: Mapping[str, int]
) -> Runner:
    """Return a compiled graph with at most ``n_rows`` rows and ``sizes`` that it names, which ``stack`` closes."""
    limits = make_limits({MAIN: graph}, EngineSizes(n_rows, n_rows, 1, "f32"))
    return compiled_graph(stack, graph, backends, replace(limits, more_sizes=sizes), config)
