"""Drafts of a model as its configuration says: draft models, layers that draft, and speculation with them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from pumice.adapters import AdaptedGraphs
from pumice.architecture import DRAFT
from pumice.config import Config
from pumice.engine import Runner
from pumice.engine.drafts.block_tokens import BlockTokens
from pumice.engine.drafts.drafter import DraftLimits
from pumice.engine.drafts.model import DraftModel, DraftVocabulary, SameVocabulary, have_same_tokens, other_vocabulary
from pumice.engine.drafts.next_tokens import CachedTokens, NextTokens
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.placement.placement import PlacementRules
from pumice.engine.placement.sizing import EngineSizes, make_limits, states_of_all
from pumice.engine.requests.prepare import check_proposers
from pumice.errors import BackendError, ConfigError, ModelError
from pumice.gguf import GGUFFile
from pumice.graph import RecurrentState
from pumice.model_files.opening import open_draft
from pumice.model_graphs import for_cache, make_architecture
from pumice.proposers import ALONE, names_of
from pumice.registry import Registry
from pumice.tokenizers import from_metadata, has_tokenizer
from pumice.tracing import trace_alone

log = logging.getLogger("pumice")

NAMES_NONE = "speculate: auto drafts only where results are independent of the number of rows; set speculate: draft"


def make_next_tokens(config: Config, runner: Runner) -> NextTokens | None:
    """Return the drafting layer of the model or its draft model; None without one, or if it is not wanted."""
    if runner.model.listening is None:
        if config.draft and runner.model.results(DRAFT) and config.is_drafting:
            reason = "drafts of its kind are not supported here yet" if names_layer(config) else NAMES_NONE
            log.warning("draft: %s is not used: %s", config.draft, reason)
        return None
    kind = BlockTokens if runner.model.block else CachedTokens if runner.model.drafts_from_caches else NextTokens
    return kind(runner, DraftLimits(config.draft_max, config.draft_min, config.draft_p_min, runner.limits.n_ctx))


def make_speculation(
    config: Config,
    registry: Registry,
    runner: Runner,
    drafter: DraftModel | None,
    layer: NextTokens | None,
) -> Speculation:
    """Return the speculation of a configuration: ``draft`` needs a draft model, ``mtp`` a layer of the model.

    Raises ConfigError for a proposer that is unknown, not available or named twice, and PluginError for one of a plugin
    that fails, or of two plugins.
    """
    exact = runner.capabilities.invariant
    own = [made.name for made in (drafter, layer) if made]
    auto = ["ngram", *own] if exact else []
    choice = config.speculate
    if "draft" in own and config.is_default("speculate"):
        choice = "auto" if exact else "draft"
    if not verifies(runner):
        if choice not in ("auto", "off", "draft"):  # another warning has said that a draft model is not used
            log.warning("speculate: %s is not used: %s verifies no drafts", choice, runner.placed.backends_used[0])
        choice = ",".join(name for name in names_of(choice) if name != "draft" or not config.draft) or "off"
    check_proposers(choice, [*registry.proposers, *own], verifies(runner), ConfigError)
    for name in () if choice in ALONE else names_of(choice):
        _ = name in own or registry.proposers[name]  # requests would go on without one that fails
    if drafter and choice not in ("auto", "off") and "draft" not in names_of(choice):
        log.warning("draft: %s is for requests that choose it: speculate is %s", config.draft, choice)
    speculation = Speculation(registry.proposers, auto, choice, config.n_draft, exact, layer, drafter)
    speculation.longest = max(1, config.draft_max)
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
    graphs = for_cache(graphs, config)
    if not verifies(target):
        log.warning("draft: %s is not used: on %s, steps verify no drafts", draft.path, target.placed.backends_used[0])
        return None
    longest = min(n_ctx, architecture.n_ctx_train)
    n_positions = min(n_ctx, config.n_parallel * longest)  # more would hold no text
    limits = make_limits(graphs, EngineSizes(n_positions, config.n_batch, config.n_parallel, config.kv_type))
    recurrent = any(isinstance(state, RecurrentState) for state in states_of_all(graphs))
    limits = replace(limits, n_checkpoints=limits.n_seqs if recurrent else 0)
    with _naming_draft(draft):
        runner = Runner(
            AdaptedGraphs(graphs), target.placed.backends, limits, PlacementRules(config.draft_n_gpu_layers)
        )
    stack.callback(runner.close)
    if not runner.model.generates or runner.model.encodes:
        raise ModelError(f"{draft.path}: not a draft model: it does not generate text from left to right")
    with _naming_draft(draft):
        runner.compile()
    if runner.model.recurrent and not runner.keeps_states:
        raise ModelError(f"{draft.path}: its recurrent states cannot be copied here; choose another draft model")
    bounds = DraftLimits(config.draft_max, config.draft_min, config.draft_p_min, longest)
    n_vocab = target.model.n_vocab, runner.model.n_vocab
    return DraftModel(runner, _draft_vocabulary(file, draft, registry, *n_vocab), bounds)


@contextmanager
def _naming_draft(draft: GGUFFile) -> Iterator[None]:
    """Let errors of backends, such as missing memory, name the draft model and its options."""
    try:
        yield
    except BackendError as error:
        raise BackendError(
            f"{draft.path}: the draft model does not load: {error}; draft_n_ctx and draft_n_gpu_layers are its own"
        ) from error


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


def verifies(runner: Runner) -> bool:
    """Return True if the steps of a compiled model verify drafts."""
    return runner.capabilities.n_in_flight == 1


def names_layer(config: Config) -> bool:
    """Return True if the configuration names a proposer that may be a layer: of the model, or of its draft model."""
    names = names_of(config.speculate)
    return "mtp" in names or (bool(config.draft) and ("draft" in names or config.is_default("speculate")))
