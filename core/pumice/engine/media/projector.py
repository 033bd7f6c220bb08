"""A projector file (mmproj): its encoders turn images and sounds into texts and rows of embeddings for prompts."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN, HParams, MediaKind
from pumice.backend import Backend
from pumice.config import Config
from pumice.engine.media.projector_parts import (
    AUDIO,
    IMAGE,
    PARTS,
    VIDEO,
    ChosenProjector,
    ProjectorParts,
    no_projector,
    refusal,
)
from pumice.engine.messages import MAX_MEDIA_BYTES
from pumice.engine.placement.backends import backend_line
from pumice.engine.placement.piece_steps import MOST_ROWS, PieceSteps
from pumice.engine.placement.placement import PlacementRules
from pumice.engine.placement.runner import Runner
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.errors import ModelClosedError, ModelError, PromptTooLongError, RequestError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.guard import guard, guarded
from pumice.images import check_wanted
from pumice.media_encoder import (
    AudioEncoder,
    Embeddings,
    Frames,
    ImageEncoder,
    ImagePiece,
    Inputs,
    JoinedPieces,
    MediaEncoder,
    MediaStage,
    Pixels,
    Samples,
    SoundPiece,
)
from pumice.registry import Registry
from pumice.videos import VideoForm, VideoPlan

Rows = NDArray[np.float32]
_ENCODERS_OF_PARTS = {("qwen2.5o", "vision"): "qwen2.5vl_merger"}
"""Projector types of files with two encoders, of which one part has an encoder of another type."""

logger = logging.getLogger("pumice")


class Projector:
    """The encoders of a projector file, on the configured backends.

    One step is computed at a time. Several threads may encode: one prepares pieces while another's are computed, and
    pieces of several that wait share a step.

    Raises ModelError for a file that is no projector, or of a type that no plugin reads.

    Attributes:
        encoders: the file's encoders by what they encode.
        width: values of a row.
    """

    def __init__(self, path: Path, config: Config, registry: Registry, file: GGUFFile | None = None) -> None:
        """Open a projector, or use an open ``file``, which stays open."""
        with ExitStack() as stack:
            file = file or stack.enter_context(GGUFFile.open(path))
            self.path = path
            self.encoders: dict[MediaKind, MediaEncoder] = {}
            self._runners: dict[MediaKind, list[Runner]] = {}
            self._steps: dict[MediaKind, PieceSteps] = {}
            for encoder, graphs in trace_projector(file, registry, config.image_min_tokens, config.image_max_tokens):
                self.encoders[encoder.kind] = encoder
                backends = backend_line(registry, config)
                together = encoder.kind == IMAGE and not encoder.stages and backends[0][1].offload
                first = PieceSteps(graphs[0], encoder.n_rows, MOST_ROWS if together else 0)
                self._steps[encoder.kind] = first
                self._runners[encoder.kind] = [_runner(stack, first.n_rows, graphs[0], backends, config, first.sizes)]
                for stage, graph in zip(encoder.stages, graphs[1:], strict=True):
                    runner = _runner(stack, stage.n_rows, graph, backend_line(registry, config), config)
                    self._runners[encoder.kind].append(runner)
            self.width = max(encoder.width for encoder in self.encoders.values())
            for kind, encoder in self.encoders.items():
                if self.width % encoder.width:
                    raise ModelError(f"{path}: rows of {kind}s have {encoder.width} values, others {self.width}")
            self._lock = threading.Lock()
            self._waiting: deque[_WaitingPieces] = deque()  # the oldest first
            self._close = stack.pop_all().close

    def encode(self, pixels: Pixels, n_ctx: int | None = None) -> list[str | Embeddings]:
        """Return the texts and embeddings that stand for an image ``[height, width, 3]``, in order.

        Raises:
            PromptTooLongError: as soon as they are known to have more than ``n_ctx`` rows, unless that is None.
            RequestError: there is no encoder of images.
        """
        return self._encoded(IMAGE, self._sees(IMAGE).prepare(pixels), n_ctx)

    def encode_sound(self, samples: Samples, n_ctx: int | None = None) -> list[str | Embeddings]:
        """Like ``encode``, for a sound ``[n]``, whose rows are counted before anything is computed."""
        self.check(AUDIO)
        encoder = self.encoders[AUDIO]
        assert isinstance(encoder, AudioEncoder)
        self._check_rows(encoder.count_rows(len(samples)), n_ctx, exact=True)
        return self._encoded(AUDIO, encoder.prepare(samples), n_ctx)

    @property
    def sound_rate(self) -> int:
        """Samples a second of the sounds that are encoded."""
        encoder = self.encoders.get(AUDIO)
        return encoder.rate if isinstance(encoder, AudioEncoder) else AudioEncoder.rate

    def plan_video(self, form: VideoForm) -> VideoPlan:
        """Return which frames of a video the model sees. Raises RequestError for a plan that takes too much memory."""
        plan = self._sees(VIDEO).plan_video(form)
        plan.check(form)
        return plan

    def encode_video(self, form: VideoForm, frames: Frames, n_ctx: int | None = None) -> list[str | Embeddings]:
        """Like ``encode``, for the planned frames ``[n, height, width, 3]`` of a video."""
        encoder = self._sees(VIDEO)
        plan = encoder.plan_video(form)
        if frames.shape != (len(plan.frames), *plan.size, 3):
            raise RequestError(f"video: frames {list(frames.shape)} are not those that the model sees")
        return self._encoded(VIDEO, encoder.prepare_video(form, frames), n_ctx)

    @property
    def kinds(self) -> list[MediaKind]:
        """Kinds of media that the encoders encode."""
        sees = isinstance(encoder := self.encoders.get(IMAGE), ImageEncoder) and encoder.sees_videos
        videos: list[MediaKind] = [VIDEO] if sees else []
        return [*self.encoders, *videos]

    def _sees(self, kind: MediaKind) -> ImageEncoder:
        self.check(kind)
        encoder = self.encoders[IMAGE]
        assert isinstance(encoder, ImageEncoder)
        return encoder

    def check(self, kind: MediaKind) -> None:
        """Raise RequestError if there is no encoder of images, of sounds or of videos."""
        if kind not in self.kinds:
            raise RequestError(_no_encoder(kind, self.path))

    def _encoded(
        self, kind: MediaKind, pieces: Iterable[str | ImagePiece | JoinedPieces | SoundPiece], n_ctx: int | None
    ) -> list[str | Embeddings]:
        parts: list[str | Embeddings] = []
        n_rows = 0
        for part, rows in self._computed(kind, pieces, n_ctx):
            if isinstance(part, str):
                parts.append(part)
                continue
            n_rows += len(rows)
            self._check_rows(n_rows, n_ctx)
            if isinstance(part, JoinedPieces):
                parts.append(Embeddings(rows, part.grid, kind, part.times))
            elif isinstance(part, ImagePiece):
                parts += self._separated(rows, part, kind)
            else:
                parts.append(Embeddings(rows, kind=kind))
        return parts

    def _computed(
        self, kind: MediaKind, parts: Iterable[str | ImagePiece | JoinedPieces | SoundPiece], n_ctx: int | None
    ) -> Iterator[tuple[str | ImagePiece | JoinedPieces | SoundPiece, Rows]]:
        """Yield parts with their rows, of which texts have none. Pieces that follow each other share steps.

        Raises PromptTooLongError as soon as the rows are known to be too many, before they are computed.
        """
        of: MediaKind = AUDIO if kind == AUDIO else IMAGE
        none = np.zeros((0, self.width), np.float32)
        held: list[str | ImagePiece | SoundPiece] = []
        group: list[ImagePiece | SoundPiece] = []
        room = self._steps[of].room()
        n_known = 0

        def computed() -> Iterator[tuple[str | ImagePiece | SoundPiece, Rows]]:
            nonlocal room
            check_wanted()
            rows = iter(self._rows(of, group) if group else [])
            yield from [(part, none if isinstance(part, str) else next(rows)) for part in held]
            held.clear()
            group.clear()
            room = self._steps[of].room()

        for part in parts:
            check_wanted()
            if isinstance(part, JoinedPieces):
                yield from computed()
                n_known += len(part.order)
                self._check_rows(n_known, n_ctx)
                yield part, self._joined(part)
                continue
            if not isinstance(part, str):
                n_known += _known_rows(part) or 0
                self._check_rows(n_known, n_ctx)
                if not room.take(part.inputs):
                    yield from computed()
                    room.take(part.inputs)
                group.append(part)
            held.append(part)
        yield from computed()

    def _joined(self, part: JoinedPieces) -> Rows:
        made: list[Rows] = []
        group: list[ImagePiece] = []
        room = self._steps[IMAGE].room()
        for piece in part.pieces:
            check_wanted()
            if not room.take(piece.inputs):
                made += self._rows(IMAGE, group)
                group, room = [], self._steps[IMAGE].room()
                room.take(piece.inputs)
            group.append(piece)
        made += self._rows(IMAGE, group)
        rows: Rows = np.concatenate(made)[part.order]
        return rows

    def close(self) -> None:
        """Free the memory and close the file, after the piece that is being computed."""
        with self._lock:
            self._runners.clear()  # their weights are views of the file
            self._close()

    def _check_rows(self, n_rows: int, n_ctx: int | None, exact: bool = False) -> None:
        """Raise PromptTooLongError if rows exceed the context, and RequestError if they take too much memory.

        ``exact``: there are no more rows than these.
        """
        if n_ctx is not None and n_rows > n_ctx:
            raise PromptTooLongError(n_rows, n_ctx, exact=exact)
        if 4 * n_rows * self.width > MAX_MEDIA_BYTES:
            size = 4 * n_rows * self.width
            raise RequestError(f"the embeddings take {size} bytes; at most {MAX_MEDIA_BYTES} are supported")

    def _separated(self, rows: Rows, piece: ImagePiece, kind: MediaKind) -> list[str | Embeddings]:
        """Return the embeddings of a piece, with its text between the rows of its grid."""
        end = len(rows) - piece.n_after
        if piece.n_before or piece.n_after:
            before, after = (Embeddings(part, kind=kind) for part in (rows[: piece.n_before], rows[end:]))
            inner = self._separated(rows[piece.n_before : end], replace(piece, n_before=0, n_after=0), kind)
            return [*([before] if len(before.rows) else []), *inner, *([after] if len(after.rows) else [])]
        if not piece.row_end or piece.grid is None:
            return [Embeddings(rows, piece.grid, kind, block=piece.block)]
        parts: list[str | Embeddings] = []
        for row in rows.reshape(*piece.grid, self.width):
            parts += [Embeddings(row, kind=kind), piece.row_end]
        return parts[:-1]

    def _rows(self, kind: MediaKind, pieces: Sequence[ImagePiece | SoundPiece]) -> list[Rows]:
        """Return the rows of pieces that one step has room for. What other threads wait for may share the step."""
        own = _WaitingPieces(kind, pieces)
        self._waiting.append(own)
        with self._lock:
            if own.results is None:
                self._compute(own)
        assert own.results is not None
        # Rows of sounds have no further embeddings, which images of the same model may have (deepstack).
        more = self.width - self.encoders[kind].width
        return [np.pad(rows, ((0, 0), (0, more))) for rows in own.results] if more else own.results

    def _compute(self, own: _WaitingPieces) -> None:
        """Compute a step with a thread's pieces, and as many of those that wait as it has room for."""
        self._waiting.remove(own)
        kind, together, inputs = own.kind, [own], [piece.inputs for piece in own.pieces]
        room = self._steps[kind].room()
        room.take(*inputs)
        for other in list(self._waiting):
            more = [piece.inputs for piece in other.pieces]
            if other.kind == kind and room.take(*more):
                together.append(other)
                inputs += more
        results = iter(self._step(kind, inputs, own.pieces[0]))
        for one in together:
            one.results = [next(results) for _ in one.pieces]
            if one is not own:
                self._waiting.remove(one)

    def _step(self, kind: MediaKind, inputs: Sequence[Inputs], piece: ImagePiece | SoundPiece) -> list[Rows]:
        """Return the rows of pieces with these inputs; further stages are those of a piece that is alone."""
        if kind not in self._runners:
            raise ModelClosedError("the model is closed")
        steps, (first, *others) = self._steps[kind], self._runners[kind]
        batch = steps.batch(inputs, [len(one["patches"]) for one in inputs])
        results = steps.divided(first.outputs(batch)["rows"], inputs)
        later = piece.later if isinstance(piece, ImagePiece) else ()
        for runner, following in zip(others, later, strict=True):
            inputs = [{**following, "rows": results[0]}]
            batch = steps.batch(inputs, [len(following["row_ids"])])
            results = steps.divided(runner.outputs(batch)["rows"], inputs)
        return results


@dataclass(eq=False)
class _WaitingPieces:
    """Pieces of a thread that fit one step; ``results``: the rows of each, once they are computed."""

    kind: MediaKind
    pieces: Sequence[ImagePiece | SoundPiece]
    results: list[Rows] | None = None


def _known_rows(piece: ImagePiece | SoundPiece) -> int | None:
    """Return the number of a piece's rows, if it is known before they are computed."""
    if isinstance(piece, SoundPiece):
        return piece.n_rows
    return None if piece.grid is None else piece.n_before + math.prod(piece.grid) + piece.n_after


def _runner(
    stack: ExitStack,
    n_rows: int,
    graph: Graph,
    backends: Sequence[tuple[str, Backend]],
    config: Config,
    sizes: Mapping[str, int] | None = None,
) -> Runner:
    """Return a compiled graph of an encoder with at most ``n_rows`` rows, which ``stack`` closes.

    ``sizes``: maxima of the sizes that the graph names, if they are not the graph's own.
    """
    for _, backend in backends:
        stack.callback(backend.close)
    graphs = {MAIN: graph}
    limits = make_limits(graphs, EngineSizes(n_rows, n_rows, 1, "f32"))
    limits = replace(limits, more_sizes=sizes or limits.more_sizes)
    runner = Runner(graphs, backends, limits, PlacementRules(config.n_gpu_layers))
    stack.callback(runner.close)
    runner.compile()
    return runner


def trace_projector(
    file: GGUFFile, registry: Registry, least: int = 0, most: int = 0
) -> list[tuple[MediaEncoder, list[Graph]]]:
    """Return the encoders of a projector file with the graph of each of their stages.

    Args:
        file: the file.
        registry: registered plugins.
        least, most: tokens of an image, for encoders of any size; 0: as the file says.

    Raises:
        ModelError: the file is no projector, of a type that no plugin reads, or with wrong tensors. If only one of
            its encoders can be read, the other one is a warning.
    """
    kinds = ProjectorParts.of(file.metadata).media
    if not kinds:
        raise ModelError(
            f"{file.path}: not a projector of images or sound: general.architecture is {file.architecture!r}"
        )
    traced, errors = [], []
    for kind in kinds:
        try:
            traced.append(_traced(file, registry, kind, {"image_min_tokens": least, "image_max_tokens": most}))
        except ModelError as error:
            errors.append(error)
    if not traced:
        raise errors[0]
    for unread in errors:
        logger.warning("%s", unread)
    return traced


def _traced(
    file: GGUFFile, registry: Registry, kind: MediaKind, options: Mapping[str, int]
) -> tuple[MediaEncoder, list[Graph]]:
    encoder = _encoder(file, registry, kind, options)
    graphs = []
    try:
        for stage in (MediaStage(encoder.n_rows, encoder.build), *encoder.stages):
            g = GraphBuilder(file.tensors, encoder.n_layer, stage.n_rows)
            g.output("rows", stage.build(g))
            g.check_blocks(encoder.differing_tensors)
            graphs.append(g.finish())
        return encoder, graphs
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None


def _no_encoder(kind: MediaKind, path: Path) -> str:
    """Return the error for a model whose projector file does not encode a kind of media."""
    return f"{refusal(kind)}: {path.name} has no encoder of {'them' if kind == IMAGE else 'it'}"


class LazyProjector:
    """The projector of a model's file, opened on first use. Thread-safe."""

    def __init__(self, chosen: ChosenProjector, config: Config, registry: Registry) -> None:
        self._chosen = chosen
        self._config = config
        self._registry = registry
        self._lock = threading.Lock()
        self._projector: Projector | None = None
        self._closed = False

    def __call__(self, kind: MediaKind | None = None) -> Projector:
        """Return the projector.

        Raises:
            RequestError: there is none, or it does not encode ``kind``.
            ModelClosedError: after ``close``.
        """
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if self._projector is None:
                path, parts = self._chosen.path, self._chosen.parts
                if path is None or (parts.speech and not parts.media):
                    raise RequestError(_no_encoder(kind or IMAGE, path) if path else no_projector(kind or IMAGE))
                self._projector = Projector(path, self._config, self._registry, self._chosen.own)
            if kind:
                self._projector.check(kind)
            return self._projector

    def close(self) -> None:
        """Close the projector if it is open; it cannot be opened again."""
        with self._lock:
            self._closed = True
            if self._projector is not None:
                self._projector.close()
                self._projector = None


def _encoder(file: GGUFFile, registry: Registry, kind: MediaKind, options: Mapping[str, int]) -> MediaEncoder:
    metadata, part = file.metadata, PARTS[kind][0]
    name = metadata.get("clip.projector_type") or metadata.get(f"clip.{part}.projector_type")
    if not isinstance(name, str):
        raise ModelError(f"{file.path}: metadata key clip.projector_type is missing from the file")
    name = _ENCODERS_OF_PARTS.get((name, part), name)
    activation = "gelu" if metadata.get("clip.use_gelu") else "silu" if metadata.get("clip.use_silu") else "quick"
    keys = {**metadata, "general.architecture": f"clip.{part}", f"clip.{part}.activation": activation}
    keys |= {f"clip.{part}.{key}": value for key, value in options.items()}
    try:
        make = registry.media_encoders.find(name)
        where = registry.media_encoders.describe(name)
        encoder: MediaEncoder = guarded(make, f"{where}: __init__")(HParams(keys))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    if encoder.kind != kind:
        raise ModelError(f"{file.path}: the projector type {name!r} is no encoder of {PARTS[kind][1]}")
    if isinstance(encoder, ImageEncoder) and not encoder.bounds_tokens and any(options.values()):
        names = " and ".join(option for option, value in options.items() if value)
        logger.warning("%s: %s has no effect: %s encodes images of fixed sizes", file.path, names, name)
    guard(encoder, where, ["prepare", "build", *(["count_rows"] if kind == AUDIO else ["plan_video", "prepare_video"])])
    return encoder
