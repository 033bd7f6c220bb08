"""Models that speak: the graphs of their files, and sound of the frames that requests of the engine make."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN, HParams
from pumice.backend.step import Batch
from pumice.config import Config
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.loop.thread import EngineThread
from pumice.engine.media.encoders import SPEECH_TYPE, ProjectorParts
from pumice.engine.messages import Speak
from pumice.engine.placement.backends import open_backends
from pumice.engine.placement.runner import Runner, compiled_graph
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.engine.requests.arguments import check_ids
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.engine.requests.reading import ReadRequest
from pumice.engine.requests.sounds import Speaking
from pumice.errors import ModelClosedError, ModelError, RequestError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, GraphBuilder
from pumice.guard import guard, guarded
from pumice.registry import Registry
from pumice.speech_model import SpeechGraph, SpeechModel, SpeechTask
from pumice.tracing import SPEAK

Samples = NDArray[np.float32]
Emit = Callable[[Samples], None]
Frames = queue.SimpleQueue[Samples | None]

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
    """Speaks pieces of texts: requests of the engine make frames, of which a thread makes sound.

    Args:
        graphs: the speech model.
        engine: the thread of the language model's engine.
        runner: the language model.
    """

    def __init__(self, graphs: SpeechGraphs, engine: EngineThread, runner: Runner) -> None:
        self._graphs = graphs
        self._engine = engine
        self._runner = runner
        self._decoding = ThreadPoolExecutor(1, "pumice-speech")
        self._voices: OrderedDict[bytes, Samples] = OrderedDict()
        self._hearing, self._making = threading.Lock(), threading.Lock()

    @property
    def model(self) -> SpeechModel:
        return self._graphs.model

    def speak(self, command: Speak, emit: Emit) -> Future[int]:
        """Speak a piece: ``emit`` is called with samples in turn, and the result is the number of frames.

        Cancelling the future ends the speech. Raises RequestError, QueueFullError and ModelClosedError.
        """
        made: Frames = queue.SimpleQueue()
        speech: Future[int] = Future()

        def ask(request: ReadRequest[int]) -> None:
            self._ask(request, command, made.put)

        making = self._engine.ask(ask, command.terms)
        making.add_done_callback(lambda _: made.put(None))
        speech.add_done_callback(lambda _: making.cancel())
        try:
            self._decoding.submit(self._decode, made, making, emit, speech)
        except RuntimeError:  # it is shut down
            raise ModelClosedError("the model is closed") from None
        return speech

    def close(self) -> None:
        """End all speeches, whose requests have ended, and free the memory."""
        self._decoding.shutdown()
        self._graphs.close()

    def _ask(self, request: ReadRequest[int], command: Speak, put: Callable[[Samples], None]) -> None:
        """Add a piece to a request. Raises RequestError for one that does not fit."""
        text, language = command.text, self._runner.model
        graph = SPEAK if self.model.reads_logits else language.embedder
        if not graph or not language.results(graph):
            raise RequestError(
                f"speech: the language model gives no {'logits of codes' if graph else 'hidden states'}; it is not the "
                "one of this file"
            )
        voice = self._voice(command.voice) if command.voice else None
        check_ids([*text.tokens, *text.before_voice], language.n_vocab)
        n_prompt = len(text.tokens) + len(text.before_voice) + (0 if voice is None else len(voice))
        n_ctx = self._runner.limits.n_ctx
        if n_prompt >= n_ctx:
            raise RequestError(
                f"speech: a piece of the text and the voice have {n_prompt} positions, the context {n_ctx}; increase "
                "n_ctx or choose a shorter voice"
            )
        text = replace(text, max_frames=min(text.max_frames, n_ctx - n_prompt))
        task = SpeechTask(text, voice, command.temperature, np.random.default_rng(command.seed))
        steps = self.model.frames(self._graphs, task)
        Speaking(request, (), steps=steps, graph=graph, width=language.media_width, making=self._making, put=put)

    def _voice(self, data: bytes) -> Samples:
        key = hashlib.blake2b(data, digest_size=32).digest()
        with self._hearing:
            if key not in self._voices:
                self._voices[key] = self.model.voice(self._graphs, np.frombuffer(data, np.float32))
                if len(self._voices) > MOST_VOICES:
                    self._voices.popitem(last=False)
            self._voices.move_to_end(key)
            return self._voices[key]

    def _decode(self, made: Frames, making: Future[list[int]], emit: Emit, speech: Future[int]) -> None:
        """Make sound of the frames of a piece."""
        try:
            decoder = self.model.decoder(self._graphs)
            for frames in _windows(made, self.model.window):
                if making.done():
                    making.result()  # raises if it failed
                samples = decoder.decode(frames)
                if not np.isfinite(samples).all():
                    raise RequestError("speech: a sample is not a finite number; the model's file may be damaged")
                emit(samples)
            (n_frames,) = making.result()
        except Exception as error:
            with suppress(InvalidStateError):  # cancelled
                speech.set_exception(error)
        else:
            with suppress(InvalidStateError):
                speech.set_result(n_frames)


def _windows(made: Frames, most: int) -> Iterator[Samples]:
    """Yield frames in windows whose sizes do not depend on time, so that a speech is the same each time."""
    window: list[Samples] = []
    size = min(FIRST_WINDOW, most)
    while (frame := made.get()) is not None:
        window.append(frame)
        if len(window) == size:
            yield np.stack(window)
            window, size = [], most
    if window:
        yield np.stack(window)
