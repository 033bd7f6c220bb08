"""Start a Python module in a process that confines itself first."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from pumice.cache_files import temporary_folder
from pumice.sandbox.policy import Access, Policy

POLICY = "_PUMICE_SANDBOX_POLICY"
"""Environment variable with the policy as JSON; removed once it is enforced."""

OUTER_CACHE = "_PUMICE_OUTER_CACHE"
"""Environment variable with the user's cache folder, which a confined process may only read."""

_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH", re.IGNORECASE)


class Launch(NamedTuple):
    """Arguments of ``subprocess.Popen``."""

    args: list[str]
    env: dict[str, str]


def launch(module: str, arguments: Sequence[str] = (), policy: Policy | None = None) -> Launch:
    """Return how to start ``python -m module``, confined if there is a policy.

    The process may read Python's import path, too. It gets no environment variable that may be a secret, and a separate
    cache folder, so that other processes never execute files that a confined process wrote.
    """
    if policy is None:
        return Launch(module_command(module, *arguments), dict(os.environ))
    environment = safe_environment()
    if policy.cache:
        environment |= cache_variables(policy.cache)
    environment[POLICY] = json.dumps(asdict(policy))
    return Launch(module_command("pumice.sandbox", module, *arguments), environment)


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a module, which imports nothing from the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def safe_environment() -> dict[str, str]:
    """Return the environment variables without those that may be secrets."""
    environment = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    return environment | {"HOME": os.path.expanduser("~")}


def received() -> Policy:
    """Return the policy with which this process was started."""
    fields = json.loads(os.environ.pop(POLICY))
    access = Access(**{name: tuple(paths) for name, paths in fields.pop("access").items()})
    execute, families = tuple(fields.pop("execute")), tuple(fields.pop("families"))
    return Policy(access, execute=execute, families=families, **fields)


def cache_home() -> Path:
    """Return the user's cache folder, ``$XDG_CACHE_HOME`` or ``~/.cache``. Raises RuntimeError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base) if os.path.isabs(base) else Path.home() / ".cache"


def cache_homes() -> list[Path]:
    """Return the cache folders to search: the user's and, in a confined process, the process's own.

    Raises RuntimeError without a home.
    """
    outer = os.environ.get(OUTER_CACHE)
    return [Path(outer), cache_home()] if outer else [cache_home()]


def cache_variables(folder: str) -> dict[str, str]:
    """Return the environment variables of a process that writes caches to the folder that ``make_cache`` created."""
    try:
        outer = str(cache_home())
    except RuntimeError:
        outer = folder
    return {"XDG_CACHE_HOME": folder, OUTER_CACHE: outer}


def make_cache() -> str:
    """Create the cache folder of confined processes; empty if that fails.

    If the user's cache folder cannot be written, it is a private folder among the temporary files.
    """
    with contextlib.suppress(OSError, RuntimeError):
        folder = cache_home() / "pumice" / "sandbox"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return str(folder)
    temporary = temporary_folder("pumice-sandbox")
    return str(temporary) if temporary else ""
