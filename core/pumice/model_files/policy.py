"""The policy of a process that reads models: their files, and what configuration, plugins and backends add."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pumice.config import Config
from pumice.errors import PluginError, SandboxError
from pumice.guard import guarded
from pumice.hub.projectors import find_projector, find_vocoder
from pumice.model_files.paths import CheckPath, model_files
from pumice.process_list import directory
from pumice.registry import Registry
from pumice.sandbox import Access, Policy, interpreter, make_cache, missing, switched_off


def is_confined(config: Config) -> bool:
    """Return whether the configuration wants processes confined. Raises SandboxError if it requires what is missing."""
    if config.sandbox == "off" or switched_off():
        return False
    if config.sandbox == "on" and (absent := missing()):
        raise SandboxError(f"sandbox: on, but {'; '.join(absent)}; see `pumice doctor`")
    return True


def model_policy(
    models: Sequence[Path], config: Config, registry: Registry, check: CheckPath | None = None
) -> Policy | None:
    """Return the policy of a process that computes with models; None if the configuration wants none.

    The process may start Python, confined as it is, until it is sealed: kernels are compiled, drivers are tried.
    Raises SandboxError if the configuration requires what the system does not have, or for links that lead elsewhere.
    """
    if not is_confined(config):
        return None
    named = tuple(map(_absolute, config.sandbox_read))
    paths = (*models, *files_beside(config, models))
    files = tuple(os.path.abspath(file) for path in paths for file in model_files(path, named, check))
    made = [directory(), *([Path(config.cache_folder)] if config.cache_folder else [])]
    for folder in made:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write = (*map(str, made), *map(_absolute, config.sandbox_write))
    access = Access((*files, *named), write) | _plugins(registry)
    for backend in _backends(config, registry):
        access |= backend
    return Policy(access, make_cache(), execute=interpreter(), required=config.sandbox == "on")


def files_beside(config: Config, models: Sequence[Path]) -> list[Path]:
    """Return the adapters, the draft, the projectors and the vocoders, which are read beside models."""
    named = (config.draft, *(adapter.file for adapter in config.adapters.values()))
    projectors = dict.fromkeys(find_projector(model, config.mmproj) for model in models)
    vocoders = dict.fromkeys(find_vocoder(model, config.vocoder) for model in models)
    return [*(Path(file) for file in named if file), *filter(None, projectors), *filter(None, vocoders)]


def _backends(config: Config, registry: Registry) -> Iterator[Access]:
    """Yield the permissions that possible backends need. A failing backend needs none: the engine says why."""
    for name in {config.backend, *config.backends} & set(registry.backends):
        with contextlib.suppress(PluginError):
            backend = registry.backends.find(name)
            if config.backend in ("auto", name) or not backend.offload:
                yield guarded(backend.access, f"{registry.backends.describe(name)}: access")()


def _plugins(registry: Registry) -> Access:
    """Return the folders of plugins, which may lie elsewhere than what Python imports from."""
    return Access(tuple(str(Path(file).parent) for file in registry.files()))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
