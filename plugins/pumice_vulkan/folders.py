"""Folders of cached facts about devices."""

from __future__ import annotations

import functools
from pathlib import Path

from pumice.plugin.unstable import cache_homes, is_safe, stated_cache


def folders() -> list[Path]:
    """Return the folders of cached facts about devices; the last is writable. None without a home.

    Folders writable by other users are left out, since drivers run what is read from them.
    """
    try:
        return _safe(stated_cache(), tuple(cache_homes()))
    except RuntimeError:  # the user has no home directory
        return []


@functools.cache
def _safe(stated: str | None, homes: tuple[Path, ...]) -> list[Path]:
    parents = [home / "pumice" for home in homes]
    folders = [parent / "vulkan" for parent in ([Path(stated), *parents[1:]] if stated else parents)]
    return [*filter(is_safe, folders)]
