"""A loaded model: its front, and its engine in a thread of this process."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pumice.architecture import HEAD, MAIN, Architecture, MediaKind
from pumice.audio import Audio
from pumice.chat.mixed import PromptPart
from pumice.config import Config
from pumice.engine import Engine, EngineClient, EngineThread, Preparer, Runner
from pumice.engine.cache.make_tiers import make_tiers
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.policy import FairPolicy, SchedulingPolicy
from pumice.engine.media.projector import LazyProjector, Projector
from pumice.engine.media.projector_parts import ChosenProjector
from pumice.engine.media.rows import keyed
from pumice.engine.messages import Event, Facts
from pumice.engine.placement.backends import OpeningBackends
from pumice.engine.placement.fitting import fit_model
from pumice.engine.placement.held import facts_of
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.rates import known_device_rates
from pumice.engine.placement.runner import Observer
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.engine.requests.arguments import adapter_scales, check_ids, token_ids
from pumice.engine.requests.reading import LogitRows, ReadRequest, Rows
from pumice.errors import ModelClosedError, ModelError, PumiceError, RequestError
from pumice.frontend import LazyTokenizer
from pumice.gguf import GGUFFile
from pumice.host_memory import lock_memory, numa_policy
from pumice.machine import usable_memory_bytes
from pumice.model_drafts import make_next_tokens, make_speculation, names_layer, open_draft_model, verifies
from pumice.model_files.opening import open_configured
from pumice.model_files.paths import model_files
from pumice.model_files.policy import files_beside
from pumice.model_graphs import chosen_sizes, make_architecture, trace_configured
from pumice.registry import Registry, get_registry
from pumice.speaking_model import LazySpeaker, SpeakingModel
from pumice.speech.vocoder import ARCHITECTURE, LazyVocoder, Vocoder
from pumice.videos import VideoForm, VideoPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("pumice")


class Model(SpeakingModel):
    """A loaded model whose engine is a thread of this process. ``pumice.load`` creates one.

    A model is a context manager; any number of threads and coroutines may use it at once.

    Attributes:
        engine: The engine's thread.
        runner: Runs the steps of the engine.
        architecture: The model family.
        load_seconds: Seconds that loading took.
    """

    def __init__(
        self,
        path: str | Path,
        config: Config,
        progress: Callable[[int, int], None] | None = None,
        plugins: Sequence[object] = (),
        policy: SchedulingPolicy | None = None,
        observer: Observer | None = None,
        opened: Callable[[GGUFFile], None] | None = None,
        opening: OpeningBackends | None = None,
        begins_text: bool = False,
    ) -> None:
        """Load a file.

        Args:
            path: the file.
            config: its configuration.
            progress: called with the number of finished steps and of all steps while the model compiles.
            plugins: modules or other objects with hooks, for this model only.
            policy: order of the requests (default: the configured one).
            observer: receives values inside each step.
            opened: called with the file before its weights are loaded.
            opening: backends that a thread opens already, with the registry; the model closes them.
            begins_text: build the tokenizer while GPUs are opened.
        """
        started = time.perf_counter()
        with ExitStack() as stack, numa_policy(config.numa, warns=opening is None):
            opening = opening or OpeningBackends(get_registry(config, plugins), config)
            registry = opening.registry
            stack.callback(opening.close)
            file = stack.enter_context(open_configured(path, registry, config))
            if opened:
                opened(file)
            tokenizer = LazyTokenizer(file, registry)
            begin = tokenizer.begin if begins_text else None
            self.architecture, self.runner = prepare(stack, file, config, opening, progress, observer, begin)
            self.runner.compile()
            if config.mlock:
                lock_memory(self.runner.placed.host_weights)
            files = [] if observer else _all_files(path, config)
            engine = _make_engine(stack, file, config, registry, self.runner, self.architecture, policy, files)
            client = EngineClient(lambda command: thread.send(command))
            self._chosen_projector = chosen = ChosenProjector(file.path, config.mmproj, file)
            facts = _facts(self.architecture, self.runner, engine, chosen)
            super().__init__(file, config, registry, client, facts, tokenizer)
            self._load_projector = LazyProjector(chosen, config, registry)
            stack.callback(self._load_projector.close)
            self._load_vocoder = LazyVocoder(file.path, config, _open_vocoder)
            stack.callback(self._load_vocoder.close)
            self._load_speaker = LazySpeaker(chosen, config, registry, partial(_engine_of, weakref.ref(self)))
            stack.callback(self._load_speaker.close)
            self._preparation = prepared = self._preparer(registry, engine.speculation)
            # The engine's thread holds no reference to the model, so that a model without references is closed.
            emit = partial(_emit, weakref.WeakMethod(client.receive))
            max_queue = config.max_queue if config.max_queue >= 0 else None
            release = stack.pop_all().close
            self.engine = thread = EngineThread(engine, prepared, emit, release, max_queue)
            self._finalizer = weakref.finalize(client, thread.close)
        self.load_seconds = time.perf_counter() - started

    def _preparer(self, registry: Registry, speculation: Speculation) -> Preparer:
        """Return what prepares requests."""
        config, runner = self.config, self.runner
        return Preparer(
            *(self.n_ctx, self.n_vocab, self._load_tokenizer.or_none),
            registry.samplers,
            config.samplers,
            config.sampling,
            config.adapter_scales,
            decoder_start=self.architecture.decoder_start if runner.model.encodes else None,
            masks=self.architecture.masks,
            proposers=speculation.names,
            verifies=verifies(runner),
            media_width=runner.model.media_width,
            media_rules=self.architecture.media_rules,
            n_batch=runner.limits.n_batch,
            embeds_media=runner.model.embeds_media,
        )

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return not self._finalizer.alive

    def check_takes(self, kind: MediaKind) -> None:
        self._projector(kind)

    def _projector(self, kind: MediaKind | None = None) -> Projector:
        """Return the projector. Raises RequestError if there is none for ``kind``, or it is another model's."""
        projector = self._load_projector(kind)
        if projector.width != self.runner.model.media_width:
            raise RequestError(
                f"{projector.path.name}: it makes rows of {projector.width} values, but this model takes "
                f"{self.runner.model.media_width or 'no media'}: it is the projector of another model"
            )
        return projector

    def encode_pixels(self, pixels: NDArray[np.uint8]) -> Sequence[PromptPart]:
        return keyed(self._projector("image").encode(pixels, self.n_ctx), pixels)

    @property
    def sound_rate(self) -> int:
        return self._projector("audio").sound_rate

    def encode_samples(self, samples: NDArray[np.float32]) -> Sequence[PromptPart]:
        return keyed(self._projector("audio").encode_sound(samples, self.n_ctx), samples)

    def plan_video(self, form: VideoForm) -> VideoPlan:
        return self._projector("video").plan_video(form)

    def encode_frames(self, form: VideoForm, frames: NDArray[np.uint8]) -> Sequence[PromptPart]:
        return keyed(self._projector("video").encode_video(form, frames, self.n_ctx), frames, form)

    def open_projector(self) -> None:
        """Open the projector now, if there is one. One that is not configured, and cannot be used, is a warning.

        Raises ModelError for a configured one.
        """
        if self.speech_type and not self._chosen_projector.parts.media:
            self.facts = replace(self.facts, media_width=0)
        if not self.facts.media_width:
            return
        try:
            projector = self._projector()
            self.facts = replace(self.facts, media=projector.kinds, sound_rate=projector.sound_rate)
        except PumiceError as error:
            if self.config.mmproj:
                raise
            log.warning("no images or sound: %s", error)
            self.facts = replace(self.facts, media_width=0)

    def logits(
        self,
        ids: Sequence[int],
        prompt: Sequence[int] | Sequence[Audio] = (),
        adapters: Mapping[str, float] | None = None,
    ) -> NDArray[np.float32]:
        """Return the logits after each token of a new sequence.

        Args:
            ids: Token ids; those of the decoder, if an encoder reads the prompt.
            prompt: What an encoder-decoder's encoder reads: token ids, or a list of one ``pumice.Audio``.
            adapters: Scale of each adapter by name; None as configured.

        Returns:
            float32 ``[len(ids), n_vocab]``.
        """
        tokens, (read, spans) = self._checked("logits: ids", ids), self._read(prompt, "") if prompt else ([], [])
        if not tokens:
            raise RequestError("logits: no token ids given")
        if bool(read) != self.runner.model.encodes:
            raise RequestError(
                "logits: this model has no encoder that could read the prompt"
                if read
                else "logits: give the prompt, which this model's encoder reads"
            )
        check_ids(read, self.n_vocab)
        encoder_prompt = self._preparation.encoder_prompt(read, spans) if read else None
        scales = adapter_scales(self.config.adapter_scales, adapters)
        self._check_length(max(len(tokens), len(encoder_prompt.tokens) if encoder_prompt else 0))

        def whole(request: ReadRequest[Rows]) -> None:
            LogitRows(request, tokens, range(len(tokens)), scales, encoder_prompt=encoder_prompt)

        return self.engine.read(whole)[0]

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
        if self.runner.model.encodes:
            raise RequestError("continuation_logits: an encoder-decoder cannot continue a beginning; use logits")
        scales = adapter_scales(self.config.adapter_scales, adapters)
        self._check_length(len(begun) + max(map(len, ends), default=0))

        def each(request: ReadRequest[Rows]) -> None:
            for ending in ends:
                tokens = [*begun, *ending[:-1]]
                LogitRows(request, tokens, range(len(begun) - 1, len(tokens)), scales, shares=True)

        return self.engine.read(each)

    def close(self) -> None:
        """Free the memory and close the file. Open streams end with the reason ``cancelled``."""
        self._finalizer()

    def _check_length(self, n_tokens: int) -> None:
        if n_tokens > self.facts.n_ctx:
            raise RequestError(f"{n_tokens} tokens exceed the context of {self.facts.n_ctx}; increase n_ctx")

    def _checked(self, what: str, ids: Sequence[int]) -> list[int]:
        """Return checked token ids. Raises RequestError for a model without logits."""
        if "logits" not in self.runner.model.results(MAIN):
            raise RequestError("this model gives no logits: it is an encoder; use embed")
        tokens = token_ids(ids, f"{what} must be a list of token ids")
        check_ids(tokens, self.n_vocab)
        return tokens


def _open_vocoder(path: Path, config: Config) -> Vocoder:
    """Return the vocoder of a file. Raises ModelError for another model."""
    model = Model(path, config)
    try:
        if model.metadata.get("general.architecture") != ARCHITECTURE:
            raise ModelError(f"{path}: not a vocoder: its architecture is not {ARCHITECTURE}")
        return Vocoder(model, model.facts.n_embd, path)
    except BaseException:
        model.close()
        raise


def _all_files(path: str | Path, config: Config) -> list[str]:
    """Return the files from which a model and its adapters are read."""
    return [file for named in (Path(path), *files_beside(config, [Path(path)])) for file in model_files(named)]


def _make_engine(
    stack: ExitStack,
    file: GGUFFile,
    config: Config,
    registry: Registry,
    runner: Runner,
    architecture: Architecture,
    policy: SchedulingPolicy | None,
    files: Sequence[str],
) -> Engine:
    """Return the engine of a runner, with its speculation; ``stack`` closes the draft model.

    Blocks of the KV cache are kept in tiers under the names of ``files``; without any there are no tiers.
    """
    drafter = open_draft_model(stack, file, config, registry, runner)
    speculation = make_speculation(config, registry, runner, drafter, make_next_tokens(config, runner))
    policy = policy or _policy(config, registry, runner)
    versions = [(plugin.name, plugin.version) for plugin in registry.plugins]
    tiers = make_tiers(config, runner, files, versions) if files else None
    engine = Engine(runner, policy, config.lookahead, architecture.masks, speculation, tiers)
    speculation.prepare(runner, engine.cache)
    return engine


def _policy(config: Config, registry: Registry, runner: Runner) -> SchedulingPolicy:
    on_gpu = registry.backends.find(runner.placed.backends_used[0]).offload
    sizes = runner.capabilities.step_sizes
    if config.max_delay or on_gpu:
        return FairPolicy(config.max_delay or 0.05, step_sizes=sizes)
    return FairPolicy(0.2, step_sizes=sizes, few_delay=0.1)


def _facts(architecture: Architecture, runner: Runner, engine: Engine, projector: ChosenProjector) -> Facts:
    n_ctx = engine.limits.n_ctx
    head = runner.model.results(HEAD)
    hidden = runner.model.results(runner.model.embedder)["hidden"] if runner.model.embedder else 0
    return Facts(
        n_ctx,
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
    )


def _engine_of(model: weakref.ref[Model]) -> EngineThread:
    """Return a model's engine. Raises ModelClosedError for a model that is no longer used."""
    used = model()
    if used is None:
        raise ModelClosedError("the model is closed")
    return used.engine


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
) -> tuple[Architecture, Runner]:
    """Return the architecture and the runner of a file, not compiled yet; ``stack`` closes files and backends.

    ``meanwhile`` is called if GPUs take longer to open than the model to be traced.
    """
    stack.callback(opening.close)  # before the file
    registry = opening.registry
    architecture = make_architecture(file, registry)
    sizes = chosen_sizes(config, architecture)
    backends = opening.line
    drafts = not observer and (names_layer(config) if backends[0][1].offload else config.is_drafting)
    graphs = trace_configured(stack, file, architecture, sizes.n_ctx, config, registry, drafts)
    if observer:
        graphs = {name: observer.watch(graph) if name == MAIN else graph for name, graph in graphs.items()}
    host_bytes = usable_memory_bytes(config.memory_limit)
    opening.wait(meanwhile)

    def fitted() -> tuple[EngineSizes, Runner]:
        fitting, rules = fit_model(graphs, backends, sizes, config, host_bytes)
        return fitting, Runner(graphs, backends, make_limits(graphs, fitting), rules, progress, observer)

    fitting, runner = fitted()
    if _measures(runner, config, registry):
        runner.close()
        fitting, runner = fitted()
    if not config.n_ctx:
        of = "all" if fitting.n_ctx == sizes.n_ctx else "as memory has room for"
        counts = fitting.n_ctx, of, sizes.n_ctx, runner.limits.n_cache
        log.info("n_ctx: %d tokens for each sequence, %s of %d in training; the cache holds %d", *counts)
    stack.callback(runner.close)
    return architecture, runner


def _measures(runner: Runner, config: Config, registry: Registry) -> bool:
    """Return True if devices were measured now, since a model lies beside a GPU, too, and they had no rates.

    Without ``config.measure_rates``, a message says how to measure them.
    """
    backends = dict(runner.placed.backends)
    devices = {DeviceName(item.backend, item.device) for item in runner.placed.main.placed}
    if len({backends[device.backend].offload for device in devices}) < 2:
        return False
    if devices <= set(known_device_rates(runner.placed.backends, config)):
        return False
    from pumice.engine.placement.measuring import gpu_shares, measure_before_loading

    parts = runner.placed.costs()
    if not gpu_shares(parts):
        return False
    if not config.measure_rates:
        log.info("the speeds of the devices are not measured, so experts stay on the CPU; `pumice fit` measures them")
        return False
    return measure_before_loading(parts, registry, config)
