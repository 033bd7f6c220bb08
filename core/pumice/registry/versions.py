"""The version of the contract that a plugin was written for, which its module states as ``pumice_api``."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path

from pumice.hookspecs import API_VERSION
from pumice.installed import PACKAGE


def check_version(stated: object, distribution: str) -> str | None:
    """Return why a plugin of ``distribution`` does not fit this Pumice, in one line; None if it fits."""
    if stated is None:
        return f"it states no version of the plugin contract; write `pumice_api = {API_VERSION}` in its module"
    if not isinstance(stated, int) or isinstance(stated, bool):
        return f"pumice_api must be a whole number, such as {API_VERSION}, not {stated!r}"
    if stated == API_VERSION:
        return None
    upgrade = PACKAGE if stated > API_VERSION else distribution
    return (
        f"it was written for version {stated} of the plugin contract, and Pumice "
        f"{importlib.metadata.version(PACKAGE)} has version {API_VERSION}; upgrade {upgrade}"
    )


def written_version(module: str) -> int | None:
    """Return the version in the source of a module that cannot be imported; None if it states none."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            found = re.search(r"^pumice_api\b.*=\s*(\d+)", Path(spec.origin).read_text(), re.MULTILINE)
            return int(found[1]) if found else None
    return None
