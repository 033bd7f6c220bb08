"""The entry points of installed plugins. Metadata of distributions are read once per process."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

GROUP = "pumice"
PACKAGE = "pumice"  # name of the distribution


class InstalledPlugin(NamedTuple):
    """An entry point of a plugin.

    Attributes:
        point: the entry point.
        distribution: name of its distribution; empty if it has none.
        version: version of its distribution.
    """

    point: importlib.metadata.EntryPoint
    distribution: str
    version: str | None


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra of Pumice beside it.

    It names the checkout from which Pumice was installed, if there is one, since an index may not have this version,
    and the interpreter if it is that of a virtual environment that is not activated.
    """
    source = shlex.quote(f"{_checkout() or PACKAGE}[{extra}]")
    in_shell = sys.prefix in (sys.base_prefix, os.environ.get("VIRTUAL_ENV"))
    pip = "pip" if in_shell else f"{shlex.quote(sys.executable)} -m pip"
    return f"{pip} install {source}"


def _checkout() -> str:
    """Return the folder from which ``pip`` installed Pumice; empty if it is a package of an index."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
        origin = json.loads(importlib.metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}")
        url = urlsplit(origin.get("url", ""))
        folder = Path(unquote(url.path))
        if url.scheme == "file" and folder.joinpath("pyproject.toml").is_file():
            return str(folder)
    return ""


def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """Return the plugins on Python's import path, Pumice's first, so that bundled plugins keep their names."""
    return _installed(tuple(sys.path))


@functools.lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> tuple[InstalledPlugin, ...]:
    plugins, read = [], dict[importlib.metadata.Distribution, tuple[str, str]]()
    for point in importlib.metadata.entry_points(group=GROUP):
        distribution = point.dist
        if distribution is None:
            plugins.append(InstalledPlugin(point, "", None))
            continue
        if distribution not in read:
            metadata = distribution.metadata  # parsed anew at each access
            read[distribution] = metadata["Name"], metadata["Version"]
        plugins.append(InstalledPlugin(point, *read[distribution]))
    return tuple(sorted(plugins, key=_order))


def _order(plugin: InstalledPlugin) -> tuple[bool, str, str]:
    return plugin.distribution != PACKAGE, plugin.distribution, plugin.point.name
