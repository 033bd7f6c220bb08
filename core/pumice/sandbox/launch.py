"""Starting a module of Python in a process that confines itself first."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from pumice.sandbox.policy import Access, Policy

POLICY = "_PUMICE_SANDBOX_POLICY"
"""The variable that holds the policy, as JSON; gone once it is in force."""

OUTER_CACHE = "_PUMICE_OUTER_CACHE"
"""The variable that holds the user's cache folder, which a confined process may read and not write."""

_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH", re.IGNORECASE)


class Launch(NamedTuple):
    """Arguments of ``subprocess.Popen``."""

    args: list[str]
    env: dict[str, str]


def launch(module: str, arguments: Sequence[str] = (), policy: Policy | None = None) -> Launch:
    """How to start ``python -m module``, confined if there is a policy.

    It may also read what Python imports from. It gets no variable that sounds like a secret, and a cache folder of its
    own: what a confined process wrote is never run by another.
    """
    python = [sys.executable, "-P", "-m"]  # -P: nothing is imported from this directory
    if policy is None:
        return Launch([*python, module, *arguments], dict(os.environ))
    environment = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    environment["HOME"] = os.path.expanduser("~")
    if policy.cache:
        environment |= {"XDG_CACHE_HOME": policy.cache, OUTER_CACHE: str(cache_home())}
    environment[POLICY] = json.dumps(asdict(policy))
    return Launch([*python, "pumice.sandbox", module, *arguments], environment)


def received() -> Policy:
    """The policy that this process was started with."""
    fields = json.loads(os.environ.pop(POLICY))
    access = Access(**{name: tuple(paths) for name, paths in fields.pop("access").items()})
    execute, families = tuple(fields.pop("execute")), tuple(fields.pop("families"))
    return Policy(access, execute=execute, families=families, **fields)


def cache_home() -> Path:
    """The user's folder of caches, ``$XDG_CACHE_HOME`` or ``~/.cache``. Raises RuntimeError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base) if os.path.isabs(base) else Path.home() / ".cache"


def cache_homes() -> list[Path]:
    """The user's folder of caches; in a confined process, which can only read it, its own one behind.

    Raises RuntimeError without a home.
    """
    outer = os.environ.get(OUTER_CACHE)
    return [Path(outer), cache_home()] if outer else [cache_home()]


def make_cache() -> str:
    """A folder for caches of confined processes alone; empty where none can be made."""
    try:
        folder = cache_home() / "pumice" / "sandbox"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return ""
    return str(folder)
