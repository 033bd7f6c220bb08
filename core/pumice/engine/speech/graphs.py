"""The speech model of a projector file: its graphs, compiled on the configured backends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN, HParams
from pumice.backend.step import Batch
from pumice.config import Config
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.media.encoders import SPEECH_TYPE, ProjectorParts
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.runner import compiled_graph
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.errors import ModelError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.guard import guard, guarded
from pumice.registry import Registry
from pumice.speech_model import SpeechGraph, SpeechModel


class SpeechGraphs:
    """A speech model with its compiled graphs. Raises ModelError for a file that cannot be read.

    Attributes:
        model: the speech model.
    """

    def __init__(self, path: Path, config: Config, registry: Registry) -> None:
        with ExitStack() as stack:
            file = stack.enter_context(GGUFFile.open(path))
            self.model, graphs = trace_speech(file, registry)
            plans = self.model.graphs()
            self._runs = {name: _Run(stack, plans[name], graph, config, registry) for name, graph in graphs.items()}
            self._close = stack.pop_all().close

    def __call__(self, graph: str, n_rows: int, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        return self._runs[graph].step(n_rows, inputs)

    def begin(self, graph: str) -> None:
        self._runs[graph].begin()

    def close(self) -> None:
        """Free the memory and close the file; no graph runs."""
        self._runs.clear()  # their weights are views of the file
        self._close()


class _Run:
    """A compiled graph, and the sequence that its cache holds."""

    def __init__(self, stack: ExitStack, plan: SpeechGraph, graph: Graph, config: Config, registry: Registry) -> None:
        sizes = EngineSizes(max(plan.n_ctx, plan.n_rows), plan.n_rows, 1, "f32")
        limits = make_limits({MAIN: graph}, sizes)
        self._runner = compiled_graph(stack, graph, open_backends(stack, registry, config), limits, config)
        self._cache = KVCache(self._runner.limits, share_prefixes=False)
        self._place = Place(0, self._cache.begin([])[0])
        self._n_past = 0
        self._most = plan.n_ctx

    def begin(self) -> None:
        self._cache.release(self._place.tables)
        self._n_past = 0

    def step(self, n: int, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        if not self._most:
            starts, slot = np.array([0, n], np.int32), np.zeros(1, np.int32)
            rows = np.arange(n, dtype=np.int32)
            return self._runner.outputs(Batch(np.zeros_like(rows), rows, slot[:0], starts, slot, {}, inputs))
        if self._n_past + n > self._most or not self._cache.extend(self._place.tables, self._n_past, n):
            raise ModelError(f"speech: more than {self._most} rows of a sound")
        batch = batch_of(self._cache, [Part(self._place, [0] * n, self._n_past)])
        self._n_past += n
        return self._runner.outputs(replace(batch, inputs=inputs))


def trace_speech(file: GGUFFile, registry: Registry) -> tuple[SpeechModel, dict[str, Graph]]:
    """Return the speech model of a file with its graphs. Raises ModelError for a file that cannot be read."""
    model = _model(file, registry)
    return model, {name: _traced(file, model, name, plan) for name, plan in model.graphs().items()}


def _model(file: GGUFFile, registry: Registry) -> SpeechModel:
    metadata, name = file.metadata, ProjectorParts.of(file.metadata).speech
    if not name:
        raise ModelError(f"{file.path}: not a speech model: metadata key {SPEECH_TYPE} is missing from the file")
    own = HParams({**metadata, "general.architecture": "clip.gen.audio"})
    voice = HParams({**metadata, "general.architecture": "clip.audio"})
    try:
        make = registry.speech_models.find(name)
        where = registry.speech_models.describe(name)
        hears = bool(metadata.get("clip.has_audio_encoder"))
        model: SpeechModel = guarded(make, f"{where}: __init__")(own, voice if hears else None)
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    guard(model, where, ["graphs", "voice", "frames", "decoder"])
    return model


def _traced(file: GGUFFile, model: SpeechModel, name: str, plan: SpeechGraph) -> Graph:
    n_layer = model.hparams.count("block_count", 0, low=0) if plan.n_layer < 0 else plan.n_layer
    g = GraphBuilder(file.tensors, n_layer, max(plan.n_ctx, plan.n_rows))
    try:
        plan.build(g)
        g.check_blocks()
        return g.finish()
    except ModelError as error:
        raise ModelError(f"{file.path}: {error} (graph {name} of the speech model)") from None
