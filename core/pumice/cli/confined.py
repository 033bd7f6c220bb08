"""Commands that confine their own process before they read untrusted files: models, texts, matrices."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.files import EditedFile, InputFile, ModelName, OutputFile, check_outputs, values
from pumice.cli.vocabulary import GroupedCommand

if TYPE_CHECKING:
    from pumice.config import Config
    from pumice.hub.locate import Located
    from pumice.sandbox import Policy

logger = logging.getLogger("pumice")


class ConfinedCommand(GroupedCommand):
    """A command that may only read its input files and models, and write its outputs and caches, without network.

    The types of its parameters declare the files: ``ModelName``, ``InputFile``, ``OutputFile``. Only the program
    `pumice` confines its process (``ctx.obj``); a command called from Python leaves the caller's process unconfined.
    """

    def writes(self) -> list[str]:
        """Return further files that the command writes, and that its command line does not name."""
        return []

    def reads(self) -> list[str]:
        """Return further files and folders that the command reads, and that its command line does not name."""
        return []

    def models(self, ctx: click.Context) -> list[str]:
        """Return the names of models that the command reads; missing ones are downloaded."""
        return [name for _, name in values(ctx, ModelName)]

    def invoke(self, ctx: click.Context) -> Any:
        check_outputs(ctx)
        with _confined(ctx) if ctx.obj is True else contextlib.nullcontext():
            return super().invoke(ctx)


class FileCommand(ConfinedCommand):
    """A confined command that loads neither configuration nor plugins."""


@contextlib.contextmanager
def _confined(ctx: click.Context) -> Iterator[None]:
    """Confine this process permanently. Raises SandboxError if a required protection is missing."""
    from pumice.cli.placing import placer
    from pumice.errors import SandboxError
    from pumice.gguf.output import placed_by
    from pumice.sandbox import Access, end_numpy_threads, enforce, python_access

    policy = _policy(ctx)
    if policy is None:
        yield
        return
    outputs = [output for kind, value in values(ctx, OutputFile) for output in kind.outputs(value, ctx)]
    with contextlib.ExitStack() as stack:
        write = Access()
        if outputs or not end_numpy_threads():  # a fork ends them, too, but then all memory is copied when it changes
            placement = stack.enter_context(placer(outputs))
            stack.enter_context(placed_by(placement))
            write = Access(write=tuple(map(str, placement.folders.values())))
        if policy.cache:
            _use_cache(policy.cache)
        enforced = enforce(_with(policy, python_access() | write))
        if policy.required and enforced.missing:
            raise SandboxError(f"sandbox: on, but {'; '.join(enforced.missing)}")
        logger.info("this process is confined by: %s", enforced)
        yield


def _policy(ctx: click.Context) -> Policy | None:
    """Return the policy of the command without its outputs; None if it is not confined."""
    from pumice.model_files.paths import model_files
    from pumice.sandbox import Access, Policy, switched_off

    if switched_off():
        return None
    named = [Path(path) for kind, value in values(ctx, InputFile) for path in kind.inputs(value)]
    read = tuple(os.path.abspath(file) for path in named for file in model_files(path))
    write = tuple(str(path) for kind, value in values(ctx, EditedFile) for path in kind.edited(value, ctx))
    if isinstance(ctx.command, ConfinedCommand):
        read += tuple(ctx.command.reads())
        write += tuple(ctx.command.writes())
    if isinstance(ctx.command, FileCommand):
        return Policy(Access(read, write))
    from pumice.model_files.policy import model_policy
    from pumice.registry import get_registry

    config, models, folders = _models(ctx)
    policy = model_policy(models, config, get_registry(config))
    files = (*read, *folders, *_configuration())
    return None if policy is None else _with(policy, Access(files, write))


def _models(ctx: click.Context) -> tuple[Config, list[Path], list[str]]:
    """Return the configuration, the models' files, and their folders in the cache. Missing models are downloaded."""
    from pumice.config import load_config

    settings = settings_of(ctx.params)
    config = load_config(settings)
    models: list[Path] = []
    folders: list[str] = []
    command = ctx.command
    for name in command.models(ctx) if isinstance(command, ConfinedCommand) else ():
        located = _locate(name, config)
        models.append(located.path)
        folders += _cache_folder(located.path)
        config = load_config(settings, located.options) if located.options else config
    return config, models, folders


def _locate(name: str, config: Config) -> Located:
    from pumice.cli.progress import download_bar
    from pumice.hub import locate

    with download_bar() as progress:
        return locate(name, config, progress)


def _cache_folder(path: Path) -> Iterator[str]:
    """Yield the cache folder of a downloaded model, where its name is resolved again."""
    from pumice.hub.repository import FOLDER, cache_directory
    from pumice.hub.web import web_directory

    is_named = any(part.startswith(FOLDER) for part in path.parts)  # else huggingface_hub, which says where, stays out
    for directory in (*([cache_directory] if is_named else []), web_directory):
        with contextlib.suppress(RuntimeError, ValueError):  # no home directory, or a path outside the cache
            yield str(directory() / path.relative_to(directory()).parts[0])


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the command line; empty for a command without options of the configuration."""
    from pumice.config import SETTINGS

    if "config" not in params:
        return {}
    named = {name: value for name, value in params.items() if name in SETTINGS and value is not None}
    return {**(params["config"] or {}), **named}


def _configuration() -> list[str]:
    from pumice.config import configuration_paths

    return configuration_paths()


def _use_cache(folder: str) -> None:
    """Write caches to a folder that only confined processes read, as engines do."""
    from pumice.sandbox.launch import cache_variables

    os.environ |= cache_variables(folder)


def _with(policy: Policy, access: Any) -> Policy:
    from dataclasses import replace

    return replace(policy, access=policy.access | access)
