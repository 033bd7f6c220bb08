"""A projector file (mmproj): its encoder turns images into texts and rows of embeddings for prompts."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN, HParams
from pumice.backend.step import Batch
from pumice.config import Config
from pumice.engine.backends import backend_line
from pumice.engine.placement import PlacementRules
from pumice.engine.runner import Runner
from pumice.engine.sizing import EngineSizes, make_limits
from pumice.errors import ModelClosedError, ModelError, PromptTooLongError, RequestError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.guard import guard, guarded
from pumice.hub.projectors import find_projector
from pumice.media_encoder import Embeddings, ImagePiece, Inputs, MediaEncoder
from pumice.registry import Registry

Rows = NDArray[np.float32]


class Projector:
    """The encoder of a projector file, on the configured backends. It computes one piece of an image at a time.

    Raises ModelError for a file that is no projector, or of a type that no plugin reads.
    """

    def __init__(self, path: Path, config: Config, registry: Registry) -> None:
        with ExitStack() as stack:
            file = stack.enter_context(GGUFFile.open(path))
            self.path = path
            limits_of_images = (config.image_min_tokens, config.image_max_tokens)
            self.encoder, graph = trace_projector(file, registry, *limits_of_images)
            graphs = {MAIN: graph}
            backends = backend_line(registry, config)
            for _, backend in backends:
                stack.callback(backend.close)
            limits = make_limits(graphs, EngineSizes(self.encoder.n_rows, self.encoder.n_rows, 1, "f32"))
            runner = Runner(graphs, backends, limits, PlacementRules(config.n_gpu_layers))
            stack.callback(runner.close)
            runner.compile()
            self._runner: Runner | None = runner
            self._lock = threading.Lock()
            self._close = stack.pop_all().close

    @property
    def width(self) -> int:
        """Values of a row."""
        return self.encoder.width

    def encode(self, pixels: NDArray[np.uint8], n_ctx: int | None = None) -> list[str | Embeddings]:
        """Return the texts and embeddings that stand for an image ``[height, width, 3]``, in order.

        Raises PromptTooLongError as soon as they are known to have more than ``n_ctx`` rows, unless that is None.
        """
        parts: list[str | Embeddings] = []
        n_rows = 0
        for part in self.encoder.prepare(pixels):
            if isinstance(part, str):
                parts.append(part)
                continue
            if part.grid is not None:  # the number of rows is known before they are computed
                _check_rows(n_rows + math.prod(part.grid), n_ctx)
            rows = self._rows(part.inputs)
            n_rows += len(rows)
            _check_rows(n_rows, n_ctx)
            parts += self._separated(rows, part)
        return parts

    def close(self) -> None:
        """Free the memory and close the file, after the piece that is being computed."""
        with self._lock:
            self._runner = None  # its weights are views of the file
            self._close()

    def _separated(self, rows: Rows, piece: ImagePiece) -> list[str | Embeddings]:
        """Return the embeddings of a piece, with its text between the rows of its grid."""
        if not piece.row_end or piece.grid is None:
            return [Embeddings(rows, piece.grid)]
        parts: list[str | Embeddings] = []
        for row in rows.reshape(*piece.grid, self.width):
            parts += [Embeddings(row), piece.row_end]
        return parts[:-1]

    def _rows(self, inputs: Inputs) -> Rows:
        n = len(inputs["patches"])
        one = np.zeros(1, np.int32)
        starts = np.array([0, n], np.int32)
        batch = Batch(np.zeros(n, np.int32), np.arange(n, dtype=np.int32), one[:0], starts, one, {}, inputs)
        with self._lock:
            if self._runner is None:
                raise ModelClosedError("the model is closed")
            return np.array(self._runner.outputs(batch)["rows"])


def _check_rows(n_rows: int, n_ctx: int | None) -> None:
    """Raise PromptTooLongError if the rows of an image exceed the context."""
    if n_ctx is not None and n_rows > n_ctx:
        raise PromptTooLongError(n_rows, n_ctx, exact=False)


def trace_projector(file: GGUFFile, registry: Registry, least: int = 0, most: int = 0) -> tuple[MediaEncoder, Graph]:
    """Return the encoder of a projector file and its graph.

    Args:
        file: the file.
        registry: registered plugins.
        least, most: tokens of an image, for encoders of any size; 0: as the file says.

    Raises ModelError for a file that is no projector, of a type that no plugin reads, or with wrong tensors.
    """
    encoder = _encoder(file, registry, least, most)
    g = GraphBuilder(file.tensors, encoder.n_layer, encoder.n_rows)
    try:
        g.output("rows", encoder.build(g))
        return encoder, g.finish()
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None


NO_PROJECTOR = (
    "this model takes no images without a projector: put one file mmproj*.gguf beside it, "
    "or give it by the option mmproj"
)


class LazyProjector:
    """The projector of a model's file, opened on first use. Thread-safe."""

    def __init__(self, model: Path, config: Config, registry: Registry) -> None:
        self._model = model
        self._config = config
        self._registry = registry
        self._lock = threading.Lock()
        self._projector: Projector | None = None
        self._closed = False

    def __call__(self) -> Projector:
        """Return the projector. Raises RequestError if there is none, and ModelClosedError after ``close``."""
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if self._projector is None:
                path = find_projector(self._model, self._config.mmproj)
                if path is None:
                    raise RequestError(NO_PROJECTOR)
                self._projector = Projector(path, self._config, self._registry)
            return self._projector

    def close(self) -> None:
        """Close the projector if it is open; it cannot be opened again."""
        with self._lock:
            self._closed = True
            if self._projector is not None:
                self._projector.close()
                self._projector = None


def _encoder(file: GGUFFile, registry: Registry, least: int, most: int) -> MediaEncoder:
    metadata = file.metadata
    if file.architecture != "clip" or not metadata.get("clip.has_vision_encoder"):
        raise ModelError(f"{file.path}: not a projector of images: general.architecture is {file.architecture!r}")
    name = metadata.get("clip.projector_type") or metadata.get("clip.vision.projector_type")
    if not isinstance(name, str):
        raise ModelError(f"{file.path}: metadata key clip.projector_type is missing from the file")
    activation = "gelu" if metadata.get("clip.use_gelu") else "silu" if metadata.get("clip.use_silu") else "quick"
    keys = {**metadata, "general.architecture": "clip.vision", "clip.vision.activation": activation}
    keys |= {"clip.vision.image_min_tokens": least, "clip.vision.image_max_tokens": most}
    try:
        make = registry.media_encoders.find(name)
        where = registry.media_encoders.describe(name)
        encoder: MediaEncoder = guarded(make, f"{where}: __init__")(HParams(keys))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    guard(encoder, where, ["prepare", "build"])
    return encoder
