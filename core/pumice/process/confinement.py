"""The sandbox policies of engines and readers."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pumice.config import Config
from pumice.errors import EngineError, SandboxError
from pumice.file_names import real_path
from pumice.model_files.paths import linked_weights, model_files
from pumice.model_files.policy import files_beside, model_policy
from pumice.process.codec import HEADERS, VOCABULARIES, Load, decode_command
from pumice.registry import Registry, get_registry
from pumice.sandbox import Access, Launch, Policy, launch, switched_off

WORKER = "pumice.process.worker"
_STRENGTHS = ("off", "auto", "on")

_READER = "pumice.process.reader"
_READER_SECONDS = 60  # processor time

_kept: tuple[Config, Sequence[str]] | None = None


def keep_sandbox(config: Config, models: Sequence[str]) -> None:
    """Refuse, from now on, engines with a weaker sandbox than ``config`` requires, or with other models.

    ``models``: files and folders, including the weights that their links lead to now.
    """
    global _kept
    _kept = config, [os.path.realpath(file) for model in models for file in (model, *linked_weights(Path(model)))]


def launch_engine(order: bytes) -> Launch:
    """Return how to start the engine of an encoded ``Load``. Raises like ``engine_policy``."""
    load = decode_command(order)
    if not isinstance(load, Load):
        raise EngineError(f"{type(load).__name__} does not start an engine")
    config = load.config
    if _kept and _is_weaker(config, _kept[0]):
        raise SandboxError(f"{load.path}: the sandbox cannot be weakened while the server runs; restart the server")
    for file in (load.path, *files_beside(config, [load.path])):
        _check_served(file)
    return launch(WORKER, policy=engine_policy(load.path, config, get_registry(config)))


def engine_policy(path: Path, config: Config, registry: Registry) -> Policy | None:
    """Return the policy of an engine for the model at ``path``; None if the configuration disables the sandbox."""
    return model_policy([path], config, registry, _check_served)


def launch_reader(order: bytes) -> Launch:
    """Return how to start a reader of headers; the order is whether it checks vocabularies, and a list of paths.

    Paths of files that are not served are replaced by empty ones. Raises EngineError.
    """
    try:
        checks, encoded = msgspec.msgpack.decode(order, type=tuple[bool, list[bytes]])
        paths = [Path(os.path.abspath(os.fsdecode(name))) for name in encoded]
    except (msgspec.MsgspecError, ValueError) as error:
        raise EngineError(f"invalid order of a reader: {error}") from None
    readable = {path: files for path in paths if _is_served(path) and (files := _readable_files(path))}
    access = Access(tuple(itertools.chain.from_iterable(readable.values())))
    policy = Policy(access, limits={"CPU": _READER_SECONDS, "FSIZE": 0})
    names = [VOCABULARIES if checks else HEADERS, *(str(path) if path in readable else "" for path in paths)]
    return launch(_READER, names, None if switched_off() else policy)


def _readable_files(path: Path) -> list[str]:
    """Return the files of a model; none for a model whose links lead where they must not."""
    try:
        return list(model_files(path, check=_check_served))
    except SandboxError:
        return []


def _check_served(file: Path) -> None:
    if not _is_served(file):
        raise SandboxError(
            f"{file}: the server was not started with this model; add it to the command line of "
            "`pumice serve` or below `models:` in the configuration, and restart the server"
        )


def _is_served(file: Path) -> bool:
    real = real_path(file)
    return _kept is None or any(real.is_relative_to(model) for model in _kept[1])


def _is_weaker(config: Config, than: Config) -> bool:
    more = set(config.sandbox_read) - set(than.sandbox_read) or _written(config) - _written(than)
    grows = (config.memory_limit or math.inf) > (than.memory_limit or math.inf)
    return bool(more) or grows or _STRENGTHS.index(config.sandbox) < _STRENGTHS.index(than.sandbox)


def _written(config: Config) -> set[str]:
    """Return the folders that a configuration lets engines write to."""
    return {*config.sandbox_write, *([config.cache_folder] if config.cache_folder else [])}
