"""Steps of an encoder: pieces of images or sounds, of several threads at once, that share runs of its graphs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN
from pumice.backend import Backend
from pumice.config import Config
from pumice.engine.media.piece_steps import MOST_ROWS, PieceSteps
from pumice.engine.media.projector_parts import IMAGE
from pumice.engine.placement.backends import backend_line
from pumice.engine.placement.placement import PlacementRules
from pumice.engine.placement.runner import Runner
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.errors import ModelClosedError
from pumice.graph import Graph
from pumice.images import check_wanted
from pumice.media_encoder import ImagePiece, Inputs, JoinedPieces, MediaEncoder, SoundPiece
from pumice.registry import Registry

Rows = NDArray[np.float32]
Piece = ImagePiece | SoundPiece
Part = str | ImagePiece | JoinedPieces | SoundPiece
"""What stands for media in a prompt: texts, and pieces whose rows are computed."""


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
            backends = _backends(stack, registry, config)
            together = encoder.kind == IMAGE and not encoder.stages and backends[0][1].offload
            self.steps = PieceSteps(graphs[0], encoder.n_rows, MOST_ROWS if together else 0)
            self.runners = [_runner(stack, self.steps.n_rows, graphs[0], backends, config, self.steps.sizes)]
            for stage, graph in zip(encoder.stages, graphs[1:], strict=True):
                own = _backends(stack, registry, config)
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


def _backends(stack: ExitStack, registry: Registry, config: Config) -> list[tuple[str, Backend]]:
    """Return backends that ``stack`` closes."""
    backends = backend_line(registry, config)
    for _, backend in backends:
        stack.callback(backend.close)
    return backends


def _runner(
    stack: ExitStack,
    n_rows: int,
    graph: Graph,
    backends: Sequence[tuple[str, Backend]],
    config: Config,
    sizes: Mapping[str, int],
) -> Runner:
    """Return a compiled graph with at most ``n_rows`` rows and ``sizes`` that it names, which ``stack`` closes."""
    graphs = {MAIN: graph}
    limits = replace(make_limits(graphs, EngineSizes(n_rows, n_rows, 1, "f32")), more_sizes=sizes)
    runner = Runner(graphs, backends, limits, PlacementRules(config.n_gpu_layers))
    stack.callback(runner.close)
    runner.compile()
    return runner
