"""Models that speak: the graphs of their files, and what makes frames and sound beside the steps of the engine."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from pumice.engine.loop.engine import Engine
from pumice.engine.loop.thread import EngineThread
from pumice.engine.media.encoders import SPEECH_TYPE, ProjectorParts
from pumice.engine.messages import Speak
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.runner import compiled_graph
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.engine.requests.arguments import check_ids
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.errors import ModelClosedError, ModelError, QueueFullError, RequestError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.graph.media import IS_TOKEN, N_AXES, PLACES, ROWS
from pumice.guard import guard, guarded
from pumice.images import cancelled_request
from pumice.registry import Registry
from pumice.speech_model import AddedRows, PromptRows, SpeechGraph, SpeechModel, SpeechTask
from pumice.tracing import SPEAK

Samples = NDArray[np.float32]
Emit = Callable[[Samples], None]

MOST_WAITING = 64  # pieces of speeches
MOST_VOICES = 16  # whose rows are kept
FIRST_WINDOW = 2  # frames that are decoded first, so that a speech begins soon


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


class Speaker:
    """Speaks one piece at a time, with the sequence of the language model in the engine's cache.

    Args:
        graphs: the speech model.
        engine: the thread of the language model's engine.
    """

    def __init__(self, graphs: SpeechGraphs, engine: EngineThread) -> None:
        self._graphs = graphs
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "pumice-speech")
        self._voices: OrderedDict[bytes, Samples] = OrderedDict()
        self._jobs: set[Future[int]] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def model(self) -> SpeechModel:
        return self._graphs.model

    def speak(self, command: Speak, emit: Emit) -> Future[int]:
        """Speak a piece: ``emit`` is called with samples in turn, and the result is the number of frames.

        Cancelling the future ends the speech. Raises QueueFullError and ModelClosedError.
        """
        job: Future[int] = Future()
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if len(self._jobs) >= MOST_WAITING:
                raise QueueFullError(len(self._jobs), MOST_WAITING)
            self._jobs.add(job)
        job.add_done_callback(self._forget)
        self._thread.submit(self._run, command, emit, job)
        return job

    def close(self) -> None:
        """End all speeches, and free the memory."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        self._thread.shutdown()
        self._graphs.close()

    def _forget(self, job: Future[int]) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _run(self, command: Speak, emit: Emit, job: Future[int]) -> None:
        try:
            n_frames = self._speak(command, emit, job)
        except Exception as error:
            if not job.cancelled():
                job.set_exception(error)
            return
        if not job.cancelled():
            job.set_result(n_frames)

    def _speak(self, command: Speak, emit: Emit, job: Future[int]) -> int:
        if job.cancelled():
            raise cancelled_request()
        voice = self._voice(command.voice) if command.voice else None
        random = np.random.default_rng(command.seed)
        task = SpeechTask(command.text, voice, command.temperature, random)
        made: queue.SimpleQueue[NDArray[np.float32] | None] = queue.SimpleQueue()
        making = self._engine.begin(lambda engine: _frames(engine, self._graphs, task, made.put))
        making.add_done_callback(lambda _: made.put(None))
        job.add_done_callback(lambda _: making.cancel())
        try:
            decoder = self.model.decoder(self._graphs)
            for frames in _windows(made, self.model.window):
                if job.cancelled():
                    raise cancelled_request()
                samples = decoder.decode(frames)
                if not np.isfinite(samples).all():
                    raise RequestError("speech: a sample is not a finite number; the model's file may be damaged")
                emit(samples)
            return making.result()
        finally:
            making.cancel()

    def _voice(self, data: bytes) -> Samples:
        key = hashlib.blake2b(data, digest_size=32).digest()
        if key not in self._voices:
            self._voices[key] = self.model.voice(self._graphs, np.frombuffer(data, np.float32))
            if len(self._voices) > MOST_VOICES:
                self._voices.popitem(last=False)
        self._voices.move_to_end(key)
        return self._voices[key]


def _windows(made: queue.SimpleQueue[NDArray[np.float32] | None], most: int) -> Iterator[NDArray[np.float32]]:
    """Yield frames in windows whose sizes do not depend on time, so that a speech is the same each time."""
    window: list[NDArray[np.float32]] = []
    size = min(FIRST_WINDOW, most)
    while (frame := made.get()) is not None:
        window.append(frame)
        if len(window) == size:
            yield np.stack(window)
            window, size = [], most
    if window:
        yield np.stack(window)


def _frames(
    engine: Engine, graphs: SpeechGraphs, task: SpeechTask, put: Callable[[NDArray[np.float32]], None]
) -> Generator[None, None, int]:
    """Make the frames of a piece, one in each turn, and return their number."""
    if engine.runner.model.embedder is None:
        raise RequestError("speech: the language model gives no hidden states; it is not the one of this file")
    check_ids([*task.text.tokens, *task.text.before_voice], engine.runner.model.n_vocab)
    n_prompt = len(task.text.tokens) + len(task.text.before_voice) + (0 if task.voice is None else len(task.voice))
    most = engine.limits.n_ctx - n_prompt
    if most < 1:
        raise RequestError(
            f"speech: a piece of the text and the voice have {n_prompt} positions, the context {engine.limits.n_ctx}; "
            "increase n_ctx or choose a shorter voice"
        )
    task = replace(task, text=replace(task.text, max_frames=min(task.text.max_frames, most)))
    n = 0
    engine.settle()
    place = engine.scheduler.places.take()
    try:
        for frame in graphs.model.frames(graphs, _Sequence(engine, place), task):
            put(frame)
            n += 1
            yield
    finally:
        engine.scheduler.places.give_back(place)
    return n


class _Sequence:
    """A sequence of the language model, of tokens and rows."""

    def __init__(self, engine: Engine, place: Place) -> None:
        self._engine = engine
        self._place = place
        self._n_past = 0

    def read(self, parts: Sequence[PromptRows]) -> NDArray[np.float32]:
        embedder = self._engine.runner.model.embedder
        assert embedder
        return self._read(parts, embedder)["hidden"]

    def read_to_logits(self, parts: Sequence[PromptRows]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if not self._engine.runner.model.results(SPEAK):
            raise RequestError("speech: the language model has no logits of codes; it is not the one of this file")
        outputs = self._read(parts, SPEAK)
        return outputs["hidden"], outputs["logits"]

    def _read(self, parts: Sequence[PromptRows], graph: str) -> dict[str, NDArray[np.float32]]:
        """Read parts of the sequence by a graph, and return its outputs for the last position."""
        engine, width = self._engine, self._engine.runner.model.media_width
        tokens: list[int] = []
        rows: list[NDArray[np.float32]] = []
        for part in parts:
            if isinstance(part, np.ndarray):
                tokens += [-1] * len(part)
                rows.append(part)
            elif isinstance(part, AddedRows):
                tokens += part.tokens
                rows.append(part.rows)
            else:
                tokens += part
                rows.append(np.zeros((len(part), width), np.float32))
        ids, values = np.array(tokens, np.int32), np.concatenate(rows)
        if values.shape[1] != width:
            raise RequestError(f"speech: rows of {values.shape[1]} values, but the language model takes {width}")
        for start in range(0, len(ids), engine.limits.n_batch):
            n = min(engine.limits.n_batch, len(ids) - start)
            is_last = start + n == len(ids)
            outputs = self._step(ids[start : start + n], values[start : start + n], graph, is_last)
            if is_last:
                return {name: np.array(output[0]) for name, output in outputs.items()}
        raise RequestError("speech: nothing to read")

    def _step(
        self, ids: NDArray[np.int32], rows: NDArray[np.float32], graph: str, is_last: bool
    ) -> Mapping[str, NDArray[Any]]:
        engine, n = self._engine, len(ids)
        engine.settle()
        engine.scheduler.places.extend(self._place, self._n_past, n)
        part = Part(self._place, np.maximum(ids, 0).tolist(), self._n_past, [n - 1] if is_last else [])
        batch = batch_of(engine.cache, [part])
        inputs: dict[str, NDArray[Any]] = {ROWS: rows, IS_TOKEN: (ids[:, None] >= 0).astype(np.float32)}
        inputs[PLACES] = np.repeat(batch.positions[:, None], N_AXES, 1)
        self._n_past += n
        with engine.failing_lost():
            return engine.runner.outputs(replace(batch, inputs=inputs), graph)
