"""What the processes of commands may do themselves."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pumice.config import load_config
from pumice.errors import SandboxError
from pumice.sandbox import Access, Policy, enforce, missing, switched_off

logger = logging.getLogger("pumice")

_THREADS = "OPENBLAS_NUM_THREADS"  # of NumPy's library, which starts them when it is imported
_TRACES = "opentelemetry.sdk"  # sends them
_INTERNET = ("AF_INET", "AF_INET6", "AF_NETLINK")  # the last tells which addresses this machine has


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have libraries that are imported meanwhile start no threads: a process confines itself before it has any."""
    kept = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        import numpy as np  # noqa: F401

        yield
    finally:
        del os.environ[_THREADS]
        if kept is not None:
            os.environ[_THREADS] = kept


@contextlib.contextmanager
def confined_server(options: Mapping[str, Any], write: Sequence[str], fetches: bool) -> Iterator[None]:
    """Confine this process for good: it starts no programs, and a spawner starts its engines and workers meanwhile.

    Call this before there is another thread, with the sockets open that are listened on.

    Args:
        options: those of ``pumice.load`` for its models.
        write: files and folders that it may write to.
        fetches: whether it may have to fetch models, and so writes to the folders of those that were fetched.

    Raises SandboxError where the configuration demands what the system does not have.
    """
    config = load_config({**options.get("config", {}), **{key: options[key] for key in options if key != "config"}})
    if config.sandbox == "off" or switched_off() or not sys.platform.startswith("linux"):
        yield
        return
    if config.sandbox == "on" and (absent := missing()):
        raise SandboxError(f"sandbox: on, but {'; '.join(absent)}; see `pumice doctor`")
    from pumice.process.confinement import keep_sandbox
    from pumice.spawning import spawner

    keep_sandbox(config)
    with spawner():
        connects = fetches or _TRACES in sys.modules
        families = tuple(int(getattr(socket, name)) for name in _INTERNET) if connects else ()
        access = Access(read=("/",), write=(*write, *(_fetched() if fetches else ())))
        enforced = enforce(Policy(access, families=families, limits={"NOFILE": _most_files()}))
        if config.sandbox == "on" and enforced.missing:
            raise SandboxError(f"sandbox: on, but {'; '.join(enforced.missing)}")
        logger.info("the server's process is confined by: %s", enforced)
        yield


def _fetched() -> list[str]:
    """The folders of models that were fetched, which are there from now on."""
    from pumice.hub.repository import cache_directory
    from pumice.hub.web import web_directory

    folders = [cache_directory(), web_directory()]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
    return [str(folder) for folder in folders]


def _most_files() -> int:
    """As many as this process may have already: each connection takes one."""
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
