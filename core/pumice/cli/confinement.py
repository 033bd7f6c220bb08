"""Confine the process of a server before it accepts requests."""

from __future__ import annotations

import contextlib
import logging
import mimetypes
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumice.config import Config, configuration_paths, load_config
from pumice.errors import PumiceError, SandboxError
from pumice.registry import get_registry
from pumice.sandbox import Access, Policy, enforce, python_access

logger = logging.getLogger("pumice")

_THREADS = "OPENBLAS_NUM_THREADS"  # read by NumPy's library, which starts threads on import
_TRACES = "opentelemetry.sdk"  # sends traces over the network
_NETWORK = ("resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "host.conf", "ssl/certs", "pki")  # below /etc
_INTERNET = ("AF_INET", "AF_INET6", "AF_NETLINK")  # the last one lists this machine's addresses


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Import NumPy, and libraries within this context, without threads: confinement precedes the first thread."""
    kept = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        import numpy as np  # noqa: F401

        yield
    finally:
        del os.environ[_THREADS]
        if kept is not None:
            os.environ[_THREADS] = kept


@dataclass(frozen=True)
class Needs:
    """Files and models that a server's process opens.

    Attributes:
        models: names of its models.
        options: options of ``pumice.load`` for the first.
        read: further files and folders to read.
        write: files and folders to write.
        uploads: folder of files that clients upload, which become models.
        fetches: True if it may have to download models.
        own: options of ``pumice.load`` for each of ``models``; empty: those of the first.
        connects: True if it connects to other hosts for anything else.
    """

    models: Sequence[str]
    options: Mapping[str, Any]
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    uploads: str | None = None
    fetches: bool = False
    own: Sequence[Mapping[str, Any]] = ()
    connects: bool = False


@contextlib.contextmanager
def confined_server(needs: Needs) -> Iterator[None]:
    """Confine this process permanently: a spawner starts programs for it, and engines read models.

    Call this before another thread starts, and with the listening sockets open.

    Raises:
        SandboxError: the configuration requires a protection that the system lacks.
    """
    with server_spawner(needs) as confine:
        confine()
        yield


@contextlib.contextmanager
def server_spawner(needs: Needs) -> Iterator[Callable[[], None]]:
    """Fork the spawner of a server, and yield the function that confines this process permanently.

    Between both, engines can be started ahead, and modules imported. No other thread may start before the function was
    called. Both raise SandboxError if the configuration requires a protection that the system lacks.
    """
    from pumice.model_files.policy import is_confined
    from pumice.process.confinement import keep_sandbox
    from pumice.spawning import spawner

    config = load_config(_arguments(needs.options))
    if not (sys.platform.startswith("linux") and is_confined(config)):
        yield lambda: None
        return

    fetched = _fetched()
    files, most = _models(needs, config)
    uploads = [needs.uploads] if needs.uploads else []
    keep_sandbox(replace(config, **most), [*files, *fetched, *uploads])
    get_registry(config)  # once, for both processes

    def confine() -> None:
        _leave_current_folder()
        policy = _policy(needs, config, fetched)
        mimetypes.init()  # reads files of the system
        enforced = enforce(policy)
        if config.sandbox == "on" and enforced.missing:
            raise SandboxError(f"sandbox: on, but {'; '.join(enforced.missing)}")
        logger.info("the server's process is confined by: %s", enforced)

    with spawner(_leave_current_folder):
        yield confine


def start_engine(model: str, options: Mapping[str, Any], command: str) -> None:
    """Let the spawner start the engine that ``pumice.load_process`` of the same arguments will use."""
    from pumice.model_files.locating import locate_configured
    from pumice.process.codec import make_load
    from pumice.process.engine import start_engine_ahead

    named: Any = {key: value for key, value in options.items() if key != "config"}
    with contextlib.suppress(PumiceError):  # loading raises it
        path, config = locate_configured(model, options.get("config"), named)
        start_engine_ahead(make_load(path, config, model, command))


def _leave_current_folder() -> None:
    """Import nothing from the current folder, from which `python -m` imports and which may hold models."""
    if sys.path[:1] == [os.getcwd()]:
        del sys.path[0]


def _policy(needs: Needs, config: Config, fetched: Sequence[str]) -> Policy:
    import resource

    connects = needs.fetches or needs.connects or _TRACES in sys.modules
    families = tuple(int(getattr(socket, name)) for name in _INTERNET) if connects else ()
    plugins = [str(Path(file).parent) for file in get_registry(config).files()]
    access = Access(
        read=(
            *plugins,
            *needs.read,
            *configuration_paths(),
            *(f"/etc/{name}" for name in _NETWORK if connects),
        ),
        folders=tuple(fetched),
        write=tuple(needs.write),
    )
    if needs.fetches:
        access |= Access(read=(_token(),), write=tuple(fetched))
    else:
        from pumice.hub.repository import FOLDER

        access |= Access(read=tuple(str(path) for folder in fetched for path in Path(folder).glob(f"{FOLDER}*/refs")))
    files = {"NOFILE": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}  # one per connection
    return Policy(python_access() | access, families=families, limits=files)


def _models(needs: Needs, config: Config) -> tuple[list[str], dict[str, Any]]:
    """Return the files that models' paths and options name, and the settings of the engine that may do most.

    These are the largest memory limit of any model, and the folders of all for their prompts.
    """
    from pumice.hub.locate import resolve_name
    from pumice.model_files.policy import files_beside

    files: list[str] = []
    limits, folders = [config.memory_limit], list(config.sandbox_write)
    for model, arguments in zip(needs.models, needs.own or [needs.options] * len(needs.models), strict=True):
        with contextlib.suppress(PumiceError):  # reported when the model is loaded
            name, options = resolve_name(model)
            paths = [name] if isinstance(name, Path) else []
            own = load_config(_arguments(arguments), options) if options or arguments is not needs.options else config
            files += map(str, (*paths, *files_beside(own, paths)))
            limits.append(own.memory_limit)
            folders += [own.cache_folder] if own.cache_folder else []
    return files, {"memory_limit": max(limits) if all(limits) else 0.0, "sandbox_write": folders}  # 0: no limit


def _arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the arguments of ``pumice.load``."""
    from pumice.model_files.locating import arguments_of

    return arguments_of(options.get("config"), {key: value for key, value in options.items() if key != "config"})


def _fetched() -> list[str]:
    """Return the folders of downloaded models, created if missing."""
    from pumice.hub.repository import cache_directory
    from pumice.hub.web import web_directory

    folders = []
    for directory in (cache_directory, web_directory):
        with contextlib.suppress(OSError, RuntimeError):  # no home directory, so nothing was downloaded
            folder = directory()
            folder.mkdir(parents=True, exist_ok=True)
            folders.append(str(folder))
    return folders


def _token() -> str:
    from huggingface_hub import constants

    return str(constants.HF_TOKEN_PATH)
