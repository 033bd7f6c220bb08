"""A loaded model: its front, and its engine in a thread of this process."""

from __future__ import annotations

import logging
import time
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pumice.adapters import Adapter, is_control_vector, read_adapter, read_control_vector
from pumice.architecture import DRAFT, HEAD, MAIN, Architecture, HParams, MediaKind
from pumice.chat.mixed import PromptPart
from pumice.config import AdapterOptions, Config
from pumice.engine import Engine, EngineClient, EngineThread, Preparer, Runner, lone
from pumice.engine.arguments import adapter_scales, check_ids, token_ids
from pumice.engine.backends import OpeningBackends
from pumice.engine.block_tokens import BlockTokens
from pumice.engine.draft_model import DraftLimits, DraftModel
from pumice.engine.draft_vocabulary import DraftVocabulary, SameVocabulary, have_same_tokens, other_vocabulary
from pumice.engine.experts import known_device_rates
from pumice.engine.fitting import fit_graphs
from pumice.engine.held import facts_of
from pumice.engine.host_memory import lock_memory, numa_policy
from pumice.engine.make_tiers import make_tiers
from pumice.engine.media import keyed
from pumice.engine.messages import Event, Facts
from pumice.engine.next_tokens import CachedTokens, NextTokens
from pumice.engine.overrides import DeviceName
from pumice.engine.placement import PlacementRules
from pumice.engine.prepare import check_proposers
from pumice.engine.projector import LazyProjector, Projector
from pumice.engine.projector_parts import ChosenProjector
from pumice.engine.runner import Observer
from pumice.engine.schedule import FairPolicy, SchedulingPolicy
from pumice.engine.sizing import EngineSizes, make_limits, states_of_all
from pumice.engine.speculation import Speculation
from pumice.engine.tracing import trace, trace_alone
from pumice.errors import BackendError, ConfigError, ModelClosedError, ModelError, PumiceError, RequestError
from pumice.frontend import LazyTokenizer
from pumice.gguf import GGUFFile
from pumice.graph import Graph, RecurrentState
from pumice.guard import guard, guarded
from pumice.hub.projectors import find_projector
from pumice.machine import available_memory_bytes
from pumice.model_files.opening import open_adapter, open_configured, open_draft
from pumice.model_files.paths import model_files
from pumice.model_files.policy import files_beside
from pumice.proposers import Proposer, names_of
from pumice.registry import Registry, get_registry
from pumice.speaking_model import LazySpeaker, SpeakingModel
from pumice.speech.vocoder import ARCHITECTURE, LazyVocoder, Vocoder
from pumice.tokenizers import from_metadata, has_tokenizer
from pumice.videos import VideoForm, VideoPlan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("pumice")

NAMES_NONE = "speculate: auto drafts only where results are independent of the number of rows; set speculate: draft"


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
        with ExitStack() as stack, numa_policy(config.numa):
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
                lock_memory(self.runner.host_weights)
            files = [] if observer else _all_files(path, config)
            engine = _make_engine(stack, file, config, registry, self.runner, self.architecture, policy, files)
            client = EngineClient(lambda command: thread.send(command))
            self._chosen_projector = chosen = ChosenProjector(file.path, config.mmproj)
            facts = _facts(self.architecture, self.runner, engine, chosen)
            super().__init__(file, config, registry, client, facts, tokenizer)
            self._load_projector = LazyProjector(chosen, config, registry)
            stack.callback(self._load_projector.close)
            self._load_vocoder = LazyVocoder(file.path, config, _open_vocoder)
            stack.callback(self._load_vocoder.close)
            self._load_speaker = LazySpeaker(chosen, config, registry, partial(_engine_of, weakref.ref(self)))
            stack.callback(self._load_speaker.close)
            prepared = self._preparer(registry, engine.speculation)
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
            decoder_start=self.architecture.decoder_start if runner.encodes else None,
            masks=self.architecture.masks,
            proposers=speculation.names,
            verifies=_verifies(runner),
            media_width=runner.media_width,
            media_rules=self.architecture.media_rules,
            n_batch=runner.limits.n_batch,
            embeds_media=runner.embeds_media,
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
        if projector.width != self.runner.media_width:
            raise RequestError(
                f"{projector.path.name}: it makes rows of {projector.width} values, but this model takes "
                f"{self.runner.media_width or 'no media'}: it is the projector of another model"
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
            raise RequestError("continuation_logits: an encoder-decoder cannot continue a beginning; use logits")
        scales = adapter_scales(self.config.adapter_scales, adapters)
        return self.engine.call(lambda engine: lone.continuations(engine, begun, ends, scales))

    def close(self) -> None:
        """Free the memory and close the file. Open streams end with the reason ``cancelled``."""
        self._finalizer()

    def _checked(self, what: str, ids: Sequence[int]) -> list[int]:
        """Return checked token ids. Raises RequestError for a model without logits."""
        if "logits" not in self.runner.results(MAIN):
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


def make_next_tokens(config: Config, runner: Runner) -> NextTokens | None:
    """Return the drafting layer of the model or its draft model; None without one, or if it is not wanted."""
    if runner.listening is None:
        if config.draft and runner.results(DRAFT) and config.is_drafting:
            reason = "drafts of its kind are not supported here yet" if _names_layer(config) else NAMES_NONE
            log.warning("draft: %s is not used: %s", config.draft, reason)
        return None
    kind = BlockTokens if runner.block else CachedTokens if runner.drafts_from_caches else NextTokens
    return kind(runner, DraftLimits(config.draft_max, config.draft_min, config.draft_p_min, runner.limits.n_ctx))


def make_speculation(
    config: Config,
    registry: Registry,
    runner: Runner,
    drafter: DraftModel | None,
    layer: NextTokens | None,
) -> Speculation:
    """Return the speculation of a configuration: ``draft`` needs a draft model, ``mtp`` a layer of the model.

    Raises ConfigError for a proposer that is unknown or not available.
    """
    exact = runner.capabilities.invariant
    proposers: ChainMap[str, Callable[[], Proposer]] = ChainMap({}, cast(Any, registry.proposers))
    auto = ["ngram"] if exact else []
    choice = config.speculate
    own: dict[str, Callable[[], Proposer]] = {"draft": drafter.proposer} if drafter else {}
    own |= {layer.name: layer.proposer} if layer else {}
    proposers.maps[0].update(own)
    auto += own if exact else []
    if "draft" in own and config.is_default("speculate"):
        choice = "auto" if exact else "draft"
    if not _verifies(runner):
        if choice not in ("auto", "off", "draft"):  # another warning has said that a draft model is not used
            log.warning("speculate: %s is not used: %s verifies no drafts", choice, runner.backends_used[0])
        choice = ",".join(name for name in names_of(choice) if name != "draft" or not config.draft) or "off"
    check_proposers(choice, proposers, _verifies(runner), ConfigError)
    if drafter and choice not in ("auto", "off") and "draft" not in names_of(choice):
        log.warning("draft: %s is for requests that choose it: speculate is %s", config.draft, choice)
    runs_ahead = runner.capabilities.max_steps > 0
    speculation = Speculation(proposers, auto, choice, config.n_draft, exact, layer, runs_ahead)
    speculation.length.longest = max(1, config.draft_max)
    speculation.model = drafter
    speculation.runners = [runner, *([drafter.runner] if drafter else [])]
    return speculation


def open_draft_model(
    stack: ExitStack, file: GGUFFile, config: Config, registry: Registry, target: Runner
) -> DraftModel | None:
    """Return the configured draft model, compiled; None without one, or if it consists of layers of the target.

    ``stack`` closes it. Raises ModelError for a model that cannot draft for this one.
    """
    if not config.draft:
        return None
    draft = stack.enter_context(open_draft(config.draft, file, registry))
    architecture = make_architecture(draft, registry)
    n_ctx = config.draft_n_ctx or target.limits.n_ctx
    graphs = trace_alone((draft, architecture), n_ctx)
    if graphs is None:
        return None
    if not _verifies(target):
        log.warning("draft: %s is not used: on %s, steps verify no drafts", draft.path, target.backends_used[0])
        return None
    longest = min(n_ctx, architecture.n_ctx_train)
    n_positions = min(n_ctx, config.n_parallel * longest)  # more would hold no text
    limits = make_limits(graphs, EngineSizes(n_positions, config.n_batch, config.n_parallel, config.kv_type))
    recurrent = any(isinstance(state, RecurrentState) for state in states_of_all(graphs))
    limits = replace(limits, n_checkpoints=limits.n_seqs if recurrent else 0)
    with _naming_draft(draft):
        runner = Runner(graphs, target.backends, limits, PlacementRules(config.draft_n_gpu_layers))
    stack.callback(runner.close)
    if not runner.generates or runner.encodes:
        raise ModelError(f"{draft.path}: not a draft model: it does not generate text from left to right")
    with _naming_draft(draft):
        runner.compile()
    if runner.recurrent and not runner.keeps_states:
        raise ModelError(f"{draft.path}: its recurrent states cannot be copied here; choose another draft model")
    bounds = DraftLimits(config.draft_max, config.draft_min, config.draft_p_min, longest)
    return DraftModel(runner, _draft_vocabulary(file, draft, registry, target.n_vocab, runner.n_vocab), bounds)


@contextmanager
def _naming_draft(draft: GGUFFile) -> Iterator[None]:
    """Let errors of backends, such as missing memory, name the draft model and its options."""
    try:
        yield
    except BackendError as error:
        raise BackendError(
            f"{draft.path}: the draft model does not load: {error}; draft_n_ctx and draft_n_gpu_layers are its own"
        ) from error


def _verifies(runner: Runner) -> bool:
    """Return True if the steps of a compiled model verify drafts."""
    return runner.capabilities.n_in_flight == 1


def _draft_vocabulary(
    file: GGUFFile, draft: GGUFFile, registry: Registry, n_target: int, n_draft: int
) -> DraftVocabulary:
    """Return the translation between the tokens of a model and of its draft model."""
    if have_same_tokens(file.metadata, draft.metadata):
        return SameVocabulary(n_draft, n_target)
    for model_file in (file, draft):
        if not has_tokenizer(model_file.metadata):
            raise ModelError(f"{model_file.path}: no tokenizer, which drafts by a model with other tokens need")
    ours, theirs = (
        from_metadata(model_file.metadata, registry.tokenizers, registry.pre_tokenizers) for model_file in (file, draft)
    )
    try:
        return other_vocabulary(ours, theirs, n_target, n_draft)
    except ModelError as error:
        raise ModelError(f"{draft.path}: {error}") from None


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
    if runner.capabilities.max_steps:
        speculation.prepare(drafter)
    return engine


def _policy(config: Config, registry: Registry, runner: Runner) -> SchedulingPolicy:
    on_gpu = registry.backends.find(runner.backends_used[0]).offload
    sizes = runner.capabilities.step_sizes
    if config.max_delay or on_gpu:
        return FairPolicy(config.max_delay or 0.05, step_sizes=sizes)
    return FairPolicy(0.2, step_sizes=sizes, few_delay=0.1)


def _facts(architecture: Architecture, runner: Runner, engine: Engine, projector: ChosenProjector) -> Facts:
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
        devices=facts_of(runner.held, dict(runner.backends)),
        speculates=runner.generates and _verifies(runner) and engine.speculation.is_default,
        media_width=runner.media_width if projector.path else 0,
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
    drafts = not observer and (_names_layer(config) if backends[0][1].offload else config.is_drafting)
    graphs = trace_configured(stack, file, architecture, sizes.n_ctx, config, registry, drafts)
    if observer:
        graphs = {name: observer.watch(graph) if name == MAIN else graph for name, graph in graphs.items()}
    if observer:
        config = config.model_copy(update={"moe_cache_mib": 0, "op_offload": "off"})
    host_bytes = available_memory_bytes() or None
    opening.wait(meanwhile)

    def fitted() -> tuple[EngineSizes, Runner]:
        placed, fitting, rules, experts, stream = fit_graphs(graphs, backends, sizes, config, host_bytes)
        limits = make_limits(placed, fitting)
        return fitting, Runner(placed, backends, limits, rules, progress, observer, experts, stream)

    fitting, runner = fitted()
    if _measures(runner, config, registry):
        runner.close()
        fitting, runner = fitted()
    if fitting.n_ctx < sizes.n_ctx:
        log.warning("n_ctx: memory for %d of the %d tokens that the model was trained for", fitting.n_ctx, sizes.n_ctx)
    stack.callback(runner.close)
    return architecture, runner


def _measures(runner: Runner, config: Config, registry: Registry) -> bool:
    """Return True if devices were measured now, since a model lies beside a GPU, too, and they had no rates.

    Without ``config.measure_rates``, a message says how to measure them.
    """
    backends = dict(runner.backends)
    devices = {DeviceName(item.backend, item.device) for item in runner.main_segments}
    if len({backends[device.backend].offload for device in devices}) < 2:
        return False
    if devices <= set(known_device_rates(runner.backends, config)):
        return False
    from pumice.engine.measuring import gpu_shares, measure_before_loading

    parts = runner.costs()
    if not gpu_shares(parts):
        return False
    if not config.measure_rates:
        log.info("devices have no measured rates, by which placement is faster: `pumice fit` or pumice.plan measures")
        return False
    return measure_before_loading(parts, registry, config, Model)


def _names_layer(config: Config) -> bool:
    """Return True if the configuration names a proposer that may be a layer: of the model, or of its draft model."""
    names = names_of(config.speculate)
    return "mtp" in names or (bool(config.draft) and ("draft" in names or config.is_default("speculate")))


def chosen_sizes(config: Config, architecture: Architecture) -> EngineSizes:
    """Return the sizes of context, batch and cache for a model."""
    return EngineSizes(_context_length(config, architecture), config.n_batch, config.n_parallel, config.kv_type)


def trace_configured(
    stack: ExitStack,
    file: GGUFFile,
    architecture: Architecture,
    n_ctx: int,
    config: Config,
    registry: Registry,
    keeps_stream: bool = False,
) -> dict[str, Graph]:
    """Return the model's graphs with the configured adapters, and those of a draft that reads its values.

    ``stack`` closes the draft's file. ``keeps_stream``: see ``trace``.
    """
    adapters = [_adapter(options, file, architecture, registry) for options in config.adapters.values()]
    draft = None
    if config.draft:
        opened = stack.enter_context(open_draft(config.draft, file, registry))
        draft = opened, make_architecture(opened, registry)
        if trace_alone(draft, n_ctx) is not None:
            draft = None  # a model of its own, with a runner of its own
    embeds_media = find_projector(file.path, config.mmproj) is not None
    return trace(file, architecture, n_ctx, adapters, draft, True, embeds_media, keeps_stream)


def make_architecture(file: GGUFFile, registry: Registry) -> Architecture:
    """Return a file's architecture, whose errors name the file and the plugin."""
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
            raise ModelError(f"{file.path}: 'layers' applies only to control vectors; this is a LoRA adapter")
        return read_adapter(file, model.architecture, options.scale)


def _context_length(config: Config, architecture: Architecture) -> int:
    """Return the configured context in tokens; the default is lowered to what the model was trained for."""
    trained = architecture.n_ctx_train
    if config.n_ctx and config.is_default("n_ctx"):
        return min(config.n_ctx, trained)
    if config.n_ctx > trained * config.n_parallel:
        log.warning(
            "n_ctx is %d for %d sequences at once (n_parallel), but the model was trained for %d positions of a "
            "sequence; text beyond these may be poor",
            *(config.n_ctx, config.n_parallel, trained),
        )
    return config.n_ctx or trained
