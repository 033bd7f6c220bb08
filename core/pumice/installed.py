"""The entry points of installed plugins. Metadata of distributions are read once per process."""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from typing import NamedTuple

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
