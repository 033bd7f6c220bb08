"""Models that a command or a server names: found, described by their headers, and loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.progress import download_bar, show_progress

if TYPE_CHECKING:
    from pumice.config import Config
    from pumice.model import Model
    from pumice.model_files.summary import Summary

_OF_ONE_MODEL = frozenset(["adapters", "chat_template", "draft", "mmproj", "override_kv", "vocoder"])
"""Keys of the configuration that fit one model alone."""

logger = logging.getLogger("pumice")


def configured_models() -> list[str]:
    """Return the names of models that the configuration adds to the catalogue."""
    from pumice.config import load_config

    return list(load_config().models)


@lru_cache(maxsize=64)
def warn_of_assumed_template(model: str) -> None:
    """Warn, once per model, that chats use ``ASSUMED_TEMPLATE``, although the model may need another template."""
    logger.warning(
        "%s: the file has no chat template: chats use ChatML; --chat-template names another (see docs/chat.md)", model
    )


def summarize_models(models: Sequence[str]) -> list[Summary | None]:
    """Return the summaries of models by their headers; None for a model that is absent or may not be read."""
    from pumice.errors import PumiceError

    try:
        return _summaries(models)
    except (OSError, PumiceError) as error:
        logger.warning("the headers of models cannot be read: %s", error)
        return [None] * len(models)


def projector_of(model: str, mmproj: str = "") -> str:
    """Return the projector that a model is loaded with, by the option ``mmproj``; empty if there is none."""
    from pumice.hub.projectors import find_projector

    path = _file_of(model)
    projector = find_projector(Path(path), mmproj) if path else None
    return str(projector) if projector and projector.is_file() else ""


def media_of(summaries: Sequence[Summary | None]) -> Sequence[str]:
    """Return the kinds of media that a model takes, by the headers of its file and of its projector."""
    from pumice.config import load_config
    from pumice.engine.media.encoders import kinds_of_media
    from pumice.registry import load_registry

    registry = load_registry(load_config())
    return [kind for summary in summaries if summary for kind in kinds_of_media(summary.metadata, registry)]


def configured_loras(model: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the scale of each LoRA adapter with which ``pumice.load`` would load a model; its file may be absent.

    Empty if the configuration is not valid: the load has the error.
    """
    from pumice.errors import PumiceError
    from pumice.gguf.kinds import CONTROL_VECTOR

    try:
        config = configuration_of(model, options)
    except PumiceError:
        return {}
    kinds = {name: adapter.kind for name, adapter in config.adapters.items()}
    unknown = [name for name, kind in kinds.items() if not kind]
    for name, summary in zip(unknown, summarize_models([config.adapters[name].file for name in unknown]), strict=True):
        if summary and summary.kind == CONTROL_VECTOR:
            kinds[name] = "control_vector"
    return {name: scale for name, scale in config.adapter_scales.items() if kinds[name] != "control_vector"}


def configuration_of(model: str, options: Mapping[str, Any]) -> Config:
    """Return the configuration with which ``pumice.load`` would load a model. Raises ConfigError or HubError."""
    from pumice.config import load_config
    from pumice.hub.locate import resolve_name
    from pumice.model_files.locating import arguments_of

    arguments = {key: value for key, value in options.items() if key != "config"}
    return load_config(arguments_of(options.get("config"), arguments), resolve_name(model)[1])


def check_configuration(config: Config) -> None:
    """Check what can be checked before a model is loaded. Raises PumiceError for a wrong name or an absent file."""
    from pumice.cache_tiers import check_folder
    from pumice.engine.placement.backends import named_devices
    from pumice.engine.requests.prepare import check_proposers
    from pumice.errors import ConfigError
    from pumice.model_files.opening import check_files
    from pumice.proposers import COMPUTED
    from pumice.registry import get_registry

    registry = get_registry(config)
    named_devices(config)
    computed = [name for name in COMPUTED if name != "draft" or config.draft]
    check_proposers(config.speculate, [*registry.proposers, *computed], error=ConfigError)
    if config.cache_folder:
        check_folder(Path(config.cache_folder), config.cache_option)
    check_files(config)


def summarize_model(model: str) -> Summary | None:
    """Return the summary of a model by its header; None if it is absent or no model.

    Raises UnavailableError if that cannot be found out.
    """
    with _telling_unavailable(model, "the header cannot be read"):
        return _summaries([model])[0]


def _summaries(models: Sequence[str]) -> list[Summary | None]:
    from pumice.process.reader import read_summaries

    paths = [_file_of(model) for model in models]
    summaries = iter(read_summaries([path for path in paths if path]))
    return [next(summaries) if path else None for path in paths]


def vocabulary_problem(path: str) -> str:
    """Return why the tokenizer of a GGUF file cannot be made; empty if it can, or if the file has none.

    Raises UnavailableError if that cannot be found out.
    """
    from pumice.process.reader import read_vocabulary_problem

    with _telling_unavailable(path, "the vocabulary cannot be checked"):
        return read_vocabulary_problem(Path(path))


@contextmanager
def _telling_unavailable(path: str, problem: str) -> Iterator[None]:
    """Raise UnavailableError, which tells a client no more than ``problem``, for an error, which is logged."""
    from pumice.errors import PumiceError, UnavailableError

    try:
        yield
    except (OSError, PumiceError) as error:
        logger.warning("%s: %s: %s", path, problem, error)
        raise UnavailableError(f"{Path(path).name}: {problem} now; the server's log has the reason") from None


def _file_of(model: str) -> Path | None:
    from pumice.errors import PumiceError
    from pumice.hub.locate import cached, resolve_name

    try:
        paths = cached(resolve_name(model)[0])
        return paths[0] if paths and paths[0].is_file() else None
    except PumiceError:
        return None


def require_file(model: str) -> None:
    """Raise HubError if a model is a path, or a catalogue name of a path, without a file."""
    from pumice.errors import HubError
    from pumice.file_names import why_absent

    if (path := local_path(model)) and (reason := why_absent(path)):
        raise HubError(f"{model}: {reason}, and not the name of a model to download")


def local_path(model: str) -> Path | None:
    """Return the file or folder of a model on this machine, which may be absent; None for one to download."""
    from pumice.hub.locate import resolve_name

    path, _ = resolve_name(model)
    return path if isinstance(path, Path) else None


def model_problem(path: Path) -> str:
    """Return the reason why a GGUF file or a folder is not a model, by its header; empty if it may be one."""
    from pumice.convert import Folder
    from pumice.errors import PumiceError
    from pumice.gguf import GGUFFile
    from pumice.gguf.kinds import MODEL, kind_of, why_no_model

    try:
        if path.is_dir():
            Folder(path)
            return ""
        with GGUFFile.open(path) as file:
            if reason := why_no_model(file.metadata):
                return f"{path}: {reason}"
            if (kind := kind_of(file.metadata)) != MODEL:
                return f"{path}: not a model, but of the type {kind!r:.60}"
            return "" if file.tensors else f"{path}: it has no tensors"
    except PumiceError as error:
        return str(error)


def check_template(path: Path, chosen: str) -> None:
    """Raise PumiceError if ``chosen`` is no chat template by the header of a model's file."""
    if chosen:
        from pumice.chat.template import check_chosen
        from pumice.gguf import GGUFFile

        with GGUFFile.open(path) as file:
            check_chosen(file.metadata, chosen)


def check_layer(path: Path, config: Config) -> None:
    """Raise ConfigError if ``speculate`` names ``mtp``, and a model's file has no layer that drafts."""
    from pumice.errors import ConfigError
    from pumice.gguf import GGUFFile
    from pumice.proposers import names_of

    if "mtp" in names_of(config.speculate) and not config.draft:
        with GGUFFile.open(path) as file:
            if not file.metadata.get(f"{file.architecture}.nextn_predict_layers"):
                raise ConfigError(f"speculate: 'mtp': {path} has no layer that drafts (MTP)")


def is_here(model: str) -> bool:
    """Return True if a model is on this machine, so that it need not be downloaded."""
    from pumice.errors import PumiceError
    from pumice.hub.locate import cached, resolve_name

    try:
        return bool(cached(resolve_name(model)[0]))
    except PumiceError:
        return True  # an invalid name is not downloaded


def locate_model(model: str) -> Path:
    """Return the file of a model. A download shows a progress bar if standard error is a terminal."""
    from pumice.hub import locate

    with download_bar() as progress:
        return locate(model, progress=progress).path


def for_other_models(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``pumice.load`` for other models than those that the command line names.

    Adapters, a draft, a projector, a chat template and overridden metadata fit one model alone, and are left out.
    """
    config = options.get("config")
    kept = {name: value for name, value in options.items() if name not in _OF_ONE_MODEL}
    if isinstance(config, Mapping):
        kept["config"] = {name: value for name, value in config.items() if name not in _OF_ONE_MODEL}
    return kept


def sharing(options: Mapping[str, Any], n_models: int) -> dict[str, Any]:
    """Return arguments of ``pumice.load`` for one of several models at once, unless the user says ``cache_share``."""
    from pumice.config import load_config

    config = options.get("config") or {}
    if n_models < 2 or options.get("cache_share") or not load_config().is_default("cache_share"):
        return dict(options)
    return {**options, "config": {"cache_share": 1 / n_models, **config}}


@contextmanager
def load_model(model: str, options: dict[str, Any]) -> Iterator[Model]:
    """Load a model with a progress bar, and list it for `pumice ps` within this context."""
    import pumice
    from pumice.process_list import RunningModel, listed

    locate_model(model)
    with show_progress("loading, with kernels that are compiled once and kept", unit="step") as progress:
        loaded = pumice.load(model, progress=progress, **options)
    command = click.get_current_context().info_name or ""
    with loaded, listed(RunningModel(command, model, loaded.backends, loaded.memory, loaded.n_ctx)):
        yield loaded
