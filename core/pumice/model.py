"""A loaded model: its front, and its engine in a thread of this process."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.adapters import Adapter, is_control_vector, read_adapter, read_control_vector
from pumice.architecture import HEAD, MAIN, Architecture, HParams
from pumice.config import AdapterOptions, Config
from pumice.engine import Engine, EngineClient, EngineThread, Preparer, Runner, lone
from pumice.engine.backends import backend_line
from pumice.engine.messages import Event, Facts
from pumice.engine.prepare import adapter_scales, check_ids, token_ids
from pumice.engine.runner import Observer
from pumice.engine.schedule import FairPolicy, Policy
from pumice.engine.sizing import Sizes, make_limits
from pumice.engine.tracing import trace
from pumice.errors import ModelError, RequestError
from pumice.frontend import Frontend
from pumice.gguf import GGUFFile
from pumice.graph import Graph
from pumice.guard import guard, guarded
from pumice.opening import open_adapter, open_draft, open_model
from pumice.registry import Registry, get_registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("pumice")


class Model(Frontend):
    """A loaded model whose engine is a thread of this process. ``pumice.load`` makes one.

    A model is a context manager; any number of threads and coroutines may use it at once.

    ``engine`` is the thread, and ``runner`` computes for it. ``policy`` schedules sequences (None: a ``FairPolicy``).
    ``observer`` receives values inside each step.
    """

    def __init__(
        self,
        path: str | Path,
        config: Config,
        progress: Callable[[int, int], None] | None = None,
        plugins: Sequence[object] = (),
        policy: Policy | None = None,
        observer: Observer | None = None,
    ) -> None:
        started = time.perf_counter()
        registry = get_registry(config, plugins)
        with ExitStack() as stack:
            file = stack.enter_context(open_model(path, registry))
            self.architecture, self.runner = prepare(stack, file, config, registry, progress, observer)
            self.runner.compile()
            masks = self.architecture.masks
            policy = policy or _policy(config, registry, self.runner)
            engine = Engine(self.runner, policy, config.lookahead, masks)
            client = EngineClient(lambda command: thread.send(command))
            super().__init__(file, config, registry, client, _facts(self.architecture, self.runner, engine))
            named = registry.samplers, config.samplers, config.sampling, config.adapter_scales
            start = self.architecture.decoder_start if self.runner.encodes else None
            prepared = Preparer(self.n_ctx, self.n_vocab, self._load_tokenizer.or_none, *named, start, masks)
            # The engine and its thread know nothing of who uses them, so that a model nobody uses any more is closed.
            emit = partial(_emit, weakref.WeakMethod(client.receive))
            max_queue = config.max_queue if config.max_queue >= 0 else None
            release = stack.pop_all().close
            self.engine = thread = EngineThread(engine, prepared, emit, release, max_queue)
            self._finalizer = weakref.finalize(client, thread.close)
        self.load_seconds = time.perf_counter() - started

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def logits(
        self, ids: Sequence[int], prompt: Sequence[int] = (), adapters: Mapping[str, float] | None = None
    ) -> NDArray[np.float32]:
        """Return the logits after each token of a new sequence.

        Args:
            ids: Token ids; those of the decoder, if an encoder reads the prompt.
            prompt: Token ids of the prompt for an encoder-decoder.
            adapters: Scale of each adapter by name; None as configured.

        Returns:
            float32 ``[len(ids), n_vocab]``.
        """
        tokens, read = self._checked("logits: ids", ids), self._checked("logits: prompt", prompt)
        if not tokens:
            raise RequestError("logits: no token ids given")
        if bool(read) != self.runner.encodes:
            raise RequestError(
                "logits: this model has no encoder that could read the prompt"
                if read
                else "logits: give the prompt, which this model's encoder reads"
            )
        scales = adapter_scales(self.config.adapter_scales, adapters)
        return self.engine.call(lambda engine: lone.logits(engine, tokens, scales, read))

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]], adapters: Mapping[str, float] | None = None
    ) -> list[NDArray[np.float32]]:
        """Return the logits before each token of several endings of the same beginning.

        Args:
            beginning: Token ids that all endings follow.
            endings: Token ids of each ending.
            adapters: Scale of each adapter by name; None as configured.

        Returns:
            float32 ``[len(ending), n_vocab]`` for each ending.
        """
        begun = self._checked("continuation_logits: beginning", beginning)
        ends = [self._checked("continuation_logits: an ending", ending) for ending in endings]
        if not begun or not all(ends):
            raise RequestError("continuation_logits: the beginning and each ending need a token")
        if self.runner.encodes:
            raise RequestError("continuation_logits: this model's decoder begins with nothing of a text")
        scales = adapter_scales(self.config.adapter_scales, adapters)
        return self.engine.call(lambda engine: lone.continuations(engine, begun, ends, scales))

    def close(self) -> None:
        self._finalizer()

    def _checked(self, what: str, ids: Sequence[int]) -> list[int]:
        """Tokens of a model that gives logits."""
        if "logits" not in self.runner.results(MAIN):
            raise RequestError("this model gives no logits: it is an encoder; use embed")
        tokens = token_ids(ids, f"{what} must be a list of token ids")
        check_ids(tokens, self.n_vocab)
        return tokens


def _policy(config: Config, registry: Registry, runner: Runner) -> Policy:
    on_gpu = registry.backends.find(runner.backends_used[0]).offload
    return FairPolicy(config.max_delay or (0.05 if on_gpu else 0.2))


def _facts(architecture: Architecture, runner: Runner, engine: Engine) -> Facts:
    n_ctx = engine.limits.n_ctx
    head = runner.results(HEAD)
    hidden = runner.results(runner.embedder)["hidden"] if runner.embedder else 0
    return Facts(
        n_ctx,
        architecture.n_ctx_train,
        runner.n_vocab,
        runner.backends_used,
        runner.memory,
        generates=runner.generates or architecture.masks is not None,
        fills_masks=architecture.masks is not None,
        n_embd=head.get("embedding", hidden),
        n_labels=head.get("scores", 0),
    )


def _emit(listening: Callable[[], Callable[[list[Event]], None] | None], events: list[Event]) -> None:
    receive = listening()
    if receive:
        receive(events)


def prepare(
    stack: ExitStack,
    file: GGUFFile,
    config: Config,
    registry: Registry,
    progress: Callable[[int, int], None] | None = None,
    observer: Observer | None = None,
) -> tuple[Architecture, Runner]:
    """Everything up to compiling. ``stack`` closes what is opened."""
    architecture = make_architecture(file, registry)
    sizes = chosen_sizes(config, architecture)
    graphs = trace_configured(stack, file, architecture, sizes.n_ctx, config, registry)
    if observer:
        graphs = {name: observer.watch(graph) if name == MAIN else graph for name, graph in graphs.items()}
    backends = backend_line(registry, config)
    for _, backend in backends:
        stack.callback(backend.close)
    runner = Runner(graphs, backends, make_limits(graphs, sizes), config.n_gpu_layers, progress, observer)
    stack.callback(runner.close)
    return architecture, runner


def chosen_sizes(config: Config, architecture: Architecture) -> Sizes:
    return Sizes(_context_length(config, architecture), config.n_batch, config.n_parallel, config.kv_type)


def trace_configured(
    stack: ExitStack, file: GGUFFile, architecture: Architecture, n_ctx: int, config: Config, registry: Registry
) -> dict[str, Graph]:
    """The model's graphs, with the adapters and the draft of the configuration, whose file ``stack`` closes."""
    adapters = [_adapter(options, file, architecture, registry) for options in config.adapters.values()]
    draft = stack.enter_context(open_draft(config.draft, file, registry)) if config.draft else None
    return trace(file, architecture, n_ctx, adapters, (draft, make_architecture(draft, registry)) if draft else None)


def make_architecture(file: GGUFFile, registry: Registry) -> Architecture:
    """A file's architecture, whose errors say where they are from."""
    try:
        make = registry.architectures.find(file.architecture)
        where = registry.architectures.describe(file.architecture)
        architecture = guarded(make, f"{where}: __init__")(HParams(file.metadata))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    guard(architecture, where, ["build", "graphs"])
    graphs_of = architecture.graphs
    architecture.graphs = lambda: {  # type: ignore[method-assign]
        name: guarded(build, f"{where}: {name}") for name, build in graphs_of().items()
    }
    return architecture


def _adapter(options: AdapterOptions, model: GGUFFile, architecture: Architecture, registry: Registry) -> Adapter:
    with open_adapter(options.file, registry, base=model.path) as file:
        if is_control_vector(file):
            return read_control_vector(file, architecture.n_embd, options.scale, options.layers)
        if options.layers:
            raise ModelError(f"{file.path}: is no control vector, only those have layers")
        return read_adapter(file, model.architecture, options.scale)


def _context_length(config: Config, architecture: Architecture) -> int:
    """What was asked for; the default is no longer than what the model was trained for."""
    trained = architecture.n_ctx_train
    if config.n_ctx and config.is_default("n_ctx"):
        return min(config.n_ctx, trained)
    if config.n_ctx > trained * config.n_parallel:
        log.warning(
            "n_ctx is %d, for %d sequences at once (n_parallel); the model was trained for %d positions of each: "
            "text beyond these is guessed",
            *(config.n_ctx, config.n_parallel, trained),
        )
    return config.n_ctx or trained
