"""An engine in a thread of this process, with the model's projector, vocoder and speech model."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from pumice.adapters import AdaptedGraphs, Adapter
from pumice.architecture import ALIGN, HEAD, MAIN, Architecture
from pumice.cache_tiers.portable import PortableState
from pumice.config import AdapterOptions, Config
from pumice.embeddings import Embeddings
from pumice.engine import Engine, EngineClient, EngineThread, Preparer, Runner, Snapshot
from pumice.engine.cache.tiers import Tiers, make_tiers
from pumice.engine.loop.policy import GPU_ROWS, HOST_BESIDE, HOST_ROWS, FairPolicy, SchedulingPolicy
from pumice.engine.media.encoders import ChosenProjector
from pumice.engine.messages import DEFAULT_TERMS, Event, Facts, Terms
from pumice.engine.placement.backends import OpeningBackends
from pumice.engine.placement.fitting import fit_model
from pumice.engine.placement.runner import Observer
from pumice.engine.placement.sizing import facts_of, make_limits
from pumice.engine.requests.arguments import AdapterNames, check_ids, token_ids
from pumice.engine.requests.generation import salt_of
from pumice.engine.requests.reading import LogitRows, ReadRequest, Rows
from pumice.engine.speech import Speaker, SpeechGraphs
from pumice.errors import ModelError, PumiceError, RequestError
from pumice.frontend.engine import ModelEngine
from pumice.gguf import GGUFFile
from pumice.grammar import GrammarChecker
from pumice.host_memory import lock_memory, numa_policy
from pumice.local_media import LocalMedia, LocalSpeech
from pumice.machine import usable_memory_bytes
from pumice.model import Model
from pumice.model_drafts import make_next_tokens, make_speculation, names_layer, open_draft_model, verifies
from pumice.model_files.opening import open_configured
from pumice.model_files.paths import model_files
from pumice.model_files.policy import files_beside
from pumice.model_files.summary import Summary
from pumice.model_files.tokenizer import LazyTokenizer
from pumice.model_graphs import by_key, chosen_sizes, make_architecture, read_configured, trace_configured
from pumice.registry import Registry, get_registry
from pumice.speech.vocoder import ARCHITECTURE, Vocoder
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("pumice")

MAX_ADAPTERS = 64
"""Different adapters of a model from its load to its end: backends free no weights before."""


class LoadOptions(TypedDict, total=False):
    """How a model is loaded, beside its configuration.

    Attributes:
        progress: Called with the number of finished steps and of all steps while the model compiles.
        plugins: Modules or other objects with hooks, for this model only.
        policy: Order of the requests (default: the configured one).
        observer: Receives values inside each step.
        opened: Called with the file before its weights are loaded.
        opening: Backends that a thread opens already, with the registry; the engine closes them.
        begins_text: Build the tokenizer while GPUs are opened.
    """

    progress: Callable[[int, int], None] | None
    plugins: Sequence[object]
    policy: SchedulingPolicy | None
    observer: Observer | None
    opened: Callable[[GGUFFile], object] | None
    opening: OpeningBackends | None
    begins_text: bool


class LocalEngine:
    """The engine of a model in a thread of this process: a ``ModelEngine``, and what only such a one has.

    Attributes:
        architecture: The model family.
        runner: Runs the steps of the engine.
        thread: The engine's thread.
    """

    def __init__(self, path: str | Path, config: Config, **options: Unpack[LoadOptions]) -> None:
        """Load a file. Raises PumiceError."""
        opening, observer, opened = options.get("opening"), options.get("observer"), options.get("opened")
        with ExitStack() as stack, numa_policy(config.numa, warns=opening is None):
            opening = opening or OpeningBackends(get_registry(config, options.get("plugins", ())), config)
            stack.callback(opening.close)
            self.config, self.registry = config, opening.registry
            self.file = stack.enter_context(open_configured(path, self.registry, config))
            if opened:
                opened(self.file)
            self.tokenizer = LazyTokenizer(self.file, self.registry)
            self.checker = GrammarChecker()
            begin = self.tokenizer.begin if options.get("begins_text") else None
            prepared = prepare(stack, self.file, config, opening, options.get("progress"), observer, begin)
            self.architecture, self.runner, self._adapters = prepared
            self.runner.compile()
            if config.mlock:
                lock_memory(self.runner.placed.host_weights)
            files = [] if observer else _all_files(path, config)
            engine = self._make_engine(stack, options.get("policy"), files)
            chosen = ChosenProjector(self.file.path, config.mmproj, self.file)
            self._adapter_names, self._adapter_keys = AdapterNames(), set(self.runner.adapters)
            self._adapting = threading.Lock()
            self._name_adapters(config.adapters)
            self._facts = self._facts_of(engine, chosen)
            self.media = LocalMedia(
                stack, chosen, config, self.registry, self._facts.n_ctx, self.runner.model.media_width
            )
            runner = self.runner

            def speaker(graphs: SpeechGraphs) -> Speaker:
                return Speaker(graphs, thread, runner)

            self.speech = LocalSpeech(stack, chosen, self.file, config, self.registry, speaker, _open_vocoder)
            self._preparer = self._make_preparer(engine.speculation.names)
            self.client = client = EngineClient(lambda command: thread.send(command))
            # The engine's thread holds no reference to the client, so that a model without references is closed.
            emit = partial(_emit, weakref.WeakMethod(client.receive))
            max_queue = config.max_queue if config.max_queue >= 0 else None
            release = stack.pop_all().close
            self.thread = thread = EngineThread(engine, self._preparer, emit, release, max_queue)
            self._finalizer = weakref.finalize(client, thread.close)

    @property
    def facts(self) -> Facts:
        return self._facts

    @cached_property
    def summary(self) -> Summary:
        return Summary.of(self.file)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    @property
    def error(self) -> Exception | None:
        return None

    def snapshot(self) -> Snapshot:
        return self.client.inspect().result()

    def close(self) -> None:
        self._finalizer()

    def kill(self) -> None:
        """Do nothing: the engine has no process of its own."""

    def open_media(self) -> None:
        """Open the projector, the vocoder and the speech model now, if there are any, and add them to the facts.

        A file that is not configured, and cannot be used, is a warning. Raises PumiceError for a configured one.
        """
        self._open_projector()
        try:
            if self.speech.type:
                n_samples = self.speech.speaker().model.samples_per_frame
                self._facts = replace(self._facts, speech=self.speech.type, samples_per_code=n_samples)
            elif self.speech.has_codes:
                vocoder = self.speech.vocoder()
                codes, n_samples = vocoder.n_codes, vocoder.samples_per_code
                self._facts = replace(self._facts, audio_codes=codes, samples_per_code=n_samples)
        except PumiceError as error:
            if self.config.mmproj if self.speech.type else self.config.vocoder:
                raise
            log.warning("no speech: %s", error)

    def _open_projector(self) -> None:
        if self.speech.type and not self.media.has_encoders:
            self._facts = replace(self._facts, media_width=0)
        if not self._facts.media_width:
            return
        try:
            projector = self.media.projector()
            self._facts = replace(self._facts, media=projector.kinds, sound_rate=projector.sound_rate)
        except PumiceError as error:
            if self.config.mmproj:
                raise
            log.warning("no images or sound: %s", error)
            self._facts = replace(self._facts, media_width=0)

    def logits(
        self,
        ids: Sequence[int],
        prompt: Sequence[int],
        media: Sequence[Embeddings],
        adapters: Mapping[str, float] | None,
        first: int = 0,
        terms: Terms = DEFAULT_TERMS,
    ) -> NDArray[np.float32]:
        self.check_logits(bool(prompt))
        tokens = self._checked("logits: ids", ids)
        if not tokens:
            raise RequestError("logits: no token ids given")
        if type(first) is not int or not 0 <= first < len(tokens):
            raise RequestError(
                f"logits: first must be a position among the {len(tokens)} tokens, not {show_python(first)}"
            )
        check_ids(prompt, self._facts.n_vocab)
        encoder_prompt = self._preparer.encoder_prompt(prompt, media) if prompt else None
        scales = self._adapter_names.scales(adapters)
        self._check_length(max(len(tokens), len(encoder_prompt.tokens) if encoder_prompt else 0))

        def whole(request: ReadRequest[Rows]) -> None:
            wanted = range(first, len(tokens))
            LogitRows(
                *(request, wanted),
                tokens=tokens,
                adapters=scales,
                encoder_prompt=encoder_prompt,
                shares=first > 0,
            )

        return self.thread.read(whole, terms)[0]

    def state(self, tokens: Sequence[int], adapters: Mapping[str, float] | None, cache_salt: str) -> bytes:
        salt = salt_of(cache_salt, self._adapter_names.scales(adapters))

        def turn(engine: Engine) -> Generator[None, None, bytes]:
            tiers = self._open_tiers(engine)
            engine.settle()
            with engine.failing_lost():
                return tiers.export(engine.cache.tables_of(tokens, salt).keys).to_bytes()
            yield

        return self.thread.call(turn)

    def restore(self, state: bytes) -> int:
        read = PortableState.from_bytes(state)

        def turn(engine: Engine) -> Generator[None, None, int]:
            return self._open_tiers(engine).restore(read)
            yield

        return self.thread.call(turn)

    def _open_tiers(self, engine: Engine) -> Tiers:
        """Return the tiers, to which what leaves the cache moves from now on. Raises RequestError if it cannot."""
        if engine.cache.tiers is not None:
            return engine.cache.tiers
        versions = [(plugin.name, plugin.version) for plugin in self.registry.plugins]
        tiers = make_tiers(self.config, self.runner, _all_files(self.file.path, self.config), versions)
        if tiers is None or not engine.cache.shares_prefixes:
            backends = ", ".join(self._facts.backends)
            raise RequestError(f"state: on {backends}, this model's cache cannot leave the device")
        engine.cache.spill_to(tiers)
        return tiers

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        """Return the logits before each token of several endings of the same beginning.

        Args:
            beginning: Token ids that all endings follow.
            endings: Token ids of each ending.

        Returns:
            float32 ``[len(ending), n_vocab]`` for each ending.
        """
        self.check_logits()
        begun = self._checked("continuation_logits: beginning", beginning)
        ends = [self._checked("continuation_logits: an ending", ending) for ending in endings]
        if not begun or not all(ends):
            raise RequestError("continuation_logits: the beginning and each ending need a token")
        scales = self._adapter_names.scales(None)
        self._check_length(len(begun) + max(map(len, ends), default=0))

        def each(request: ReadRequest[Rows]) -> None:
            for ending in ends:
                tokens = [*begun, *ending[:-1]]
                wanted = range(len(begun) - 1, len(tokens))
                LogitRows(request, wanted, tokens=tokens, adapters=scales, shares=True)

        return self.thread.read(each)

    def check_logits(self, has_prompt: bool = False) -> None:
        """Raise RequestError for a model without logits, and if its encoder needs the prompt that is missing."""
        if "logits" not in self.runner.model.results(MAIN):
            raise RequestError("this model gives no logits: it is an encoder; use embed")
        if has_prompt and not self.runner.model.encodes:
            raise RequestError("logits: this model has no encoder that could read the prompt")
        if self.runner.model.encodes and not has_prompt:
            raise RequestError(
                "this model does not continue a text: it is an encoder-decoder, whose encoder reads the prompt"
            )

    def _check_length(self, n_tokens: int) -> None:
        if n_tokens > self._facts.n_ctx:
            raise RequestError(f"{n_tokens} tokens exceed the context of {self._facts.n_ctx}; increase n_ctx")

    def _checked(self, what: str, ids: Sequence[int]) -> list[int]:
        """Return checked token ids."""
        tokens = token_ids(ids, f"{what} must be a list of token ids")
        check_ids(tokens, self._facts.n_vocab)
        return tokens

    def _make_engine(self, stack: ExitStack, policy: SchedulingPolicy | None, files: Sequence[str]) -> Engine:
        """Return the engine of the runner, with its speculation; ``stack`` closes the draft model.

        Blocks of the KV cache are kept in tiers under the names of ``files``; without any there are no tiers.
        """
        config, registry, runner = self.config, self.registry, self.runner
        drafter = open_draft_model(stack, self.file, config, registry, runner)
        speculation = make_speculation(config, registry, runner, drafter, make_next_tokens(config, runner))
        policy = policy or _policy(config, registry, runner)
        versions = [(plugin.name, plugin.version) for plugin in registry.plugins]
        has_tiers = bool(files and (config.cache_ram or config.cache_folder))
        tiers = make_tiers(config, runner, files, versions) if has_tiers else None
        engine = Engine(runner, policy, config.lookahead, self.architecture.masks, speculation, tiers)
        speculation.prepare(runner, engine.cache)
        return engine

    def _make_preparer(self, proposers: Collection[str]) -> Preparer:
        """Return what prepares requests."""
        config, runner = self.config, self.runner
        return Preparer(
            *(self._facts.n_ctx, self._facts.n_vocab, self.tokenizer.or_none),
            self.registry.samplers,
            config.samplers,
            config.sampling,
            self._adapter_names,
            decoder_start=self.architecture.decoder_start if runner.model.encodes else None,
            masks=self.architecture.masks,
            proposers=proposers,
            verifies=verifies(runner),
            media_width=runner.model.media_width,
            media_rules=self.architecture.media_rules,
            n_batch=runner.limits.n_batch,
            embeds_media=runner.model.embeds_media,
            aligns=bool(runner.model.results(ALIGN)),
            sites=runner.placed.sites,
        )

    def _facts_of(self, engine: Engine, projector: ChosenProjector) -> Facts:
        architecture, runner = self.architecture, self.runner
        head = runner.model.results(HEAD)
        hidden = runner.model.results(runner.model.embedder)["hidden"] if runner.model.embedder else 0
        return Facts(
            engine.limits.n_ctx,
            architecture.n_ctx_train,
            runner.model.n_vocab,
            runner.placed.backends_used,
            runner.placed.memory,
            generates=runner.model.generates or architecture.masks is not None,
            fills_masks=architecture.masks is not None,
            n_embd=head.get("embedding", hidden),
            n_labels=head.get("scores", 0),
            devices=facts_of(runner.placed.held, dict(runner.placed.backends)),
            speculates=runner.model.generates and verifies(runner) and engine.speculation.is_default,
            n_cache=engine.limits.n_cache,
            media_width=runner.model.media_width if projector.path else 0,
            loras=self.loras,
        )

    @property
    def loras(self) -> list[str]:
        return [name for name, adapter in self._adapters.items() if adapter.pairs]

    def set_adapters(self, adapters: Mapping[str, AdapterOptions]) -> None:
        with self._adapting:
            before = {name: (options.file, options.layers) for name, options in self.config.adapters.items()}
            read = {
                name: self._adapters[name]
                if before.get(name) == (options.file, options.layers)
                else read_configured(options, self.file, self.architecture, self.registry)
                for name, options in adapters.items()
            }
            chosen = by_key(read.values())
            if len(self._adapter_keys | chosen.keys()) > MAX_ADAPTERS:
                raise RequestError(
                    f"adapters: {MAX_ADAPTERS} different ones have been added, whose memory this model keeps; load it "
                    "again to add others"
                )

            def turn(engine: Engine) -> Generator[None, None, None]:
                engine.adapt(chosen)
                yield from ()

            self.thread.call(turn)
            self._adapters, self._adapter_keys = read, self._adapter_keys | chosen.keys()
            self._name_adapters(adapters)
            self.config = replace(self.config, adapters=dict(adapters))
            self._facts = replace(self._facts, loras=self.loras)

    def _name_adapters(self, adapters: Mapping[str, AdapterOptions]) -> None:
        """Let requests name these adapters, which have been read."""
        keys = self._adapters
        self._adapter_names.named = {name: (keys[name].key, options.scale) for name, options in adapters.items()}


def load_model(path: str | Path, config: Config, **options: Unpack[LoadOptions]) -> Model:
    """Load a file, with an engine in a thread of this process. Raises PumiceError."""
    engine = LocalEngine(path, config, **options)
    try:
        return Model(engine)
    except BaseException:
        engine.close()
        raise


def local_engine(model: Model) -> LocalEngine:
    """Return the engine of a model in this process. Raises RequestError for one that runs elsewhere."""
    engine: ModelEngine = model.engine
    if not isinstance(engine, LocalEngine):
        raise RequestError("the engine of this model is not in this process; load the model with pumice.load")
    return engine


def _all_files(path: str | Path, config: Config) -> list[str]:
    """Return the files from which a model and its adapters are read."""
    return [file for named in (Path(path), *files_beside(config, [Path(path)])) for file in model_files(named)]


def _policy(config: Config, registry: Registry, runner: Runner) -> SchedulingPolicy:
    on_gpu = registry.backends.find(runner.placed.backends_used[0]).offload
    n_beside, step_rows = (config.n_batch, GPU_ROWS) if on_gpu else (HOST_BESIDE, HOST_ROWS)
    return FairPolicy(config.prefill_tokens or n_beside, step_rows=step_rows)


def _emit(listening: Callable[[], Callable[[list[Event]], None] | None], events: list[Event]) -> None:
    receive = listening()
    if receive:
        receive(events)


def prepare(
    stack: ExitStack,
    file: GGUFFile,
    config: Config,
    opening: OpeningBackends,
    progress: Callable[[int, int], None] | None = None,
    observer: Observer | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> tuple[Architecture, Runner, dict[str, Adapter]]:
    """Return the architecture of a file, its runner, not compiled yet, and its configured adapters by name.

    ``stack`` closes files and backends.

    ``meanwhile`` is called if GPUs take longer to open than the model to be traced.
    """
    stack.callback(opening.close)  # before the file
    registry = opening.registry
    architecture = make_architecture(file, registry)
    sizes = chosen_sizes(config, file, architecture)
    backends = opening.line
    drafts = not observer and (names_layer(config) if backends[0][1].offload else config.is_drafting)
    graphs = trace_configured(stack, file, architecture, sizes.n_ctx, config, registry, drafts)
    if observer:
        graphs = {name: observer.watch(graph) if name == MAIN else graph for name, graph in graphs.items()}
    named = config.adapters.items()
    adapters = {name: read_configured(options, file, architecture, registry) for name, options in named}
    keyed = by_key(adapters.values())
    model = AdaptedGraphs(graphs, keyed)
    adapted = model.graphs
    host_bytes = usable_memory_bytes(config.memory_limit)
    opening.wait(meanwhile)

    fitting, rules = fit_model(adapted, backends, sizes, config, host_bytes)
    runner = Runner(model, backends, make_limits(adapted, fitting), rules, progress, observer)
    if not config.n_ctx:
        of = "all" if fitting.n_ctx == sizes.n_ctx else "as memory has room for"
        counts = fitting.n_ctx, of, sizes.n_ctx, runner.limits.n_cache
        log.info("n_ctx: %d tokens for each sequence, %s of %d in training; the cache holds %d", *counts)
    stack.callback(runner.close)
    return architecture, runner, adapters


def _open_vocoder(path: Path, config: Config) -> Vocoder:
    """Return the vocoder of a file. Raises ModelError for another model."""
    model = load_model(path, config)
    try:
        if model.metadata.get("general.architecture") != ARCHITECTURE:
            raise ModelError(f"{path}: not a vocoder: its architecture is not {ARCHITECTURE}")
        return Vocoder(model, model.facts.n_embd, path)
    except BaseException:
        model.close()
        raise
