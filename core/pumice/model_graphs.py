"""The graphs of a model's file, traced as its configuration says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from pumice.adapters import Adapter, is_control_vector, read_adapter, read_control_vector, with_adapters
from pumice.architecture import Architecture, HParams, transcribes
from pumice.config import AdapterOptions, Config
from pumice.engine.media.encoders import ChosenProjector
from pumice.engine.placement.sizing import EngineSizes
from pumice.errors import ModelError, PluginError
from pumice.gguf import CODINGS, KV_TYPES, GGUFFile
from pumice.gguf.kinds import why_no_model
from pumice.graph import Graph, GraphBuilder, Tensor
from pumice.graph.rotate import rotate_caches
from pumice.guard import guard, guarded
from pumice.hub.projectors import find_projector
from pumice.model_files.opening import check_files, open_adapter, open_draft
from pumice.registry import Registry
from pumice.tracing import trace, trace_alone
from pumice.wording import counted_as

Build = Callable[[GraphBuilder], Tensor | None]
"""A function that traces a graph."""

log = logging.getLogger("pumice")

_POSITIONS = "position_embd.weight"  # a table of learned positions, beyond which a model computes nothing


def chosen_sizes(config: Config, file: GGUFFile, architecture: Architecture) -> EngineSizes:
    """Return the sizes of context, batch and cache for a model."""
    trained = architecture.n_ctx_train
    sizes = EngineSizes(config.n_ctx or trained, config.n_batch, config.n_parallel, config.kv_type)
    if 0 < config.n_ctx < trained and transcribes(file.metadata):
        log.warning(
            "a context of %d tokens: a sound and its text take %d positions, which are used", config.n_ctx, trained
        )
        return replace(sizes, n_ctx=trained)
    if config.n_ctx > trained and _POSITIONS in file.tensors:
        log.warning(
            "a context of %d tokens: the model has %d positions, and a sequence no more tokens", config.n_ctx, trained
        )
        return replace(sizes, n_ctx=trained, n_cache=min(config.n_ctx, trained * config.n_parallel))
    if config.n_ctx > trained * config.n_parallel:
        log.warning(
            "a context of %d tokens for %s: the model was trained for %d positions of a sequence; text beyond these "
            "may be poor",
            *(config.n_ctx, counted_as(config.n_parallel, "sequence"), trained),
        )
    return sizes


def trace_configured(
    stack: ExitStack,
    file: GGUFFile,
    architecture: Architecture,
    n_ctx: int,
    config: Config,
    registry: Registry,
    keeps_stream: bool = False,
) -> dict[str, Graph]:
    """Return the model's graphs without adapters, and those of a draft that reads its values.

    ``stack`` closes the draft's file. ``keeps_stream``: see ``trace``.
    """
    check_files(config)  # some are read with the first request that needs them
    draft = None
    if config.draft:
        opened = stack.enter_context(open_draft(config.draft, file, registry))
        draft = opened, make_architecture(opened, registry)
        if trace_alone(draft, n_ctx) is not None:
            draft = None  # a model of its own, with a runner of its own
    projector = find_projector(file.path, config.mmproj)
    ChosenProjector(file.path, config.mmproj, file).check()
    return for_cache(trace(file, architecture, n_ctx, draft, True, projector is not None, keeps_stream), config)


def trace_adapted(
    stack: ExitStack, file: GGUFFile, architecture: Architecture, n_ctx: int, config: Config, registry: Registry
) -> dict[str, Graph]:
    """Return the graphs of ``trace_configured`` with the configured adapters."""
    graphs = trace_configured(stack, file, architecture, n_ctx, config, registry)
    adapters = (read_configured(options, file, architecture, registry) for options in config.adapters.values())
    return with_adapters(graphs, by_key(adapters).values())


def by_key(adapters: Iterable[Adapter]) -> dict[str, Adapter]:
    """Return adapters by key, each once."""
    return {adapter.key: adapter for adapter in adapters}


def for_cache(graphs: dict[str, Graph], config: Config) -> dict[str, Graph]:
    """Return a model's graphs for the configured type of the key/value cache, whose contents may be rotated."""
    return rotate_caches(graphs) if config.kv_rotate and KV_TYPES[config.kv_type] in CODINGS else graphs


def make_architecture(file: GGUFFile, registry: Registry) -> Architecture:
    """Return a file's architecture, whose errors name the file and the plugin."""
    if reason := why_no_model(file.metadata):
        raise ModelError(f"{file.path}: {reason}")
    try:
        make = registry.architectures.find(file.architecture)
        where = registry.architectures.describe(file.architecture)
        architecture = guarded(make, f"{where}: __init__")(HParams(file.metadata))
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    if missing := [name for name in ("n_layer", "n_embd", "n_ctx_train") if not hasattr(architecture, name)]:
        raise PluginError(f"{where}: __init__: {missing[0]} is missing; call super().__init__(hparams)")
    guard(architecture, where, ["build", "graphs", "tensors"])
    graphs_of = architecture.graphs
    architecture.graphs = lambda: _checked_graphs(graphs_of(), where)  # type: ignore[method-assign]
    return architecture


def _checked_graphs(graphs: object, where: str) -> dict[str, Build]:
    """Return the functions that trace a plugin's graphs, whose errors and wrong results are PluginErrors."""
    if not isinstance(graphs, Mapping) or not all(map(callable, graphs.values())):
        raise PluginError(f"{where}: graphs: expected a dict of functions by name, not {graphs!r:.60}")

    def checked(name: str, build: Build) -> Build:
        def traced(builder: GraphBuilder) -> Tensor | None:
            logits: object = build(builder)
            if logits is not None and not isinstance(logits, Tensor):
                raise PluginError(f"{where}: {name}: expected a Tensor or None, not {logits!r:.60}")
            return logits

        return guarded(traced, f"{where}: {name}")

    return {name: checked(name, build) for name, build in graphs.items()}


def read_configured(
    options: AdapterOptions, model: GGUFFile, architecture: Architecture, registry: Registry
) -> Adapter:
    """Return the adapter of a file. Raises PumiceError if it is none for the model."""
    with open_adapter(options.file, registry, base=model.path) as file:
        is_vector = is_control_vector(file)
        _check_kind(file, options.kind, is_vector)
        if is_vector:
            return read_control_vector(file, architecture.n_embd, options.layers)
        if options.layers:
            raise ModelError(f"{file.path}: 'layers' applies only to control vectors; this is a LoRA adapter")
        return read_adapter(file, model.architecture)


def _check_kind(file: GGUFFile, kind: str, is_vector: bool) -> None:
    """Raise ModelError if the option that names a file takes files of the other kind."""
    if kind == "lora" and is_vector:
        raise ModelError(f"{file.path}: a control vector, not a LoRA adapter; load it with --control-vector")
    if kind == "control_vector" and not is_vector:
        is_adapter = file.metadata.get("general.type") == "adapter"
        advice = "a LoRA adapter, not a control vector; load it with --lora" if is_adapter else "not a control vector"
        raise ModelError(f"{file.path}: {advice}")
