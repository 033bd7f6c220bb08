"""Version of the package: the tag of the release. hatchling runs this file when it builds (``tool.hatch.version``).

The tag ``v1.2.3`` is version 1.2.3, and N commits later it is 1.2.4.devN. Sources without Git history know their
version from PKG-INFO (source distribution) or from ``ARCHIVED`` (``git archive``). ``PUMICE_VERSION`` overrides both.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVED = "$Format:%(describe:tags=true,match=v[0-9]*)$"  # `git archive` replaces it, as .gitattributes says
FIRST = "0.1.0"  # the first release: what a checkout without tags leads to
UNKNOWN = "0.0.0"


def version(root: Path = ROOT) -> str:
    """Return the version of the sources in a folder."""
    stated = os.environ.get("PUMICE_VERSION")
    described = _next_version(_described(root)) or _before_first(root)
    return stated or _packaged(root) or described or _next_version(ARCHIVED) or UNKNOWN


def _packaged(root: Path) -> str:
    """Return the version in the metadata of a source distribution, or nothing."""
    try:
        metadata = (root / "PKG-INFO").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    match = re.search(r"^Version: (\S+)$", metadata, re.MULTILINE)
    return match[1] if match else ""


def _described(root: Path) -> str:
    """Return Git's description of a checkout, or nothing. Other repositories around the folder do not count."""
    if not (root / ".git").exists():
        return ""
    describe = ["git", "describe", "--tags", "--dirty", "--match", "v[0-9]*"]
    return _output(root, describe)


def _before_first(root: Path) -> str:
    """Return the version of a whole checkout without tags, by its number of commits, or nothing."""
    if not (root / ".git").exists() or _output(root, ["git", "rev-parse", "--is-shallow-repository"]) == "true":
        return ""
    n_commits = _output(root, ["git", "rev-list", "--count", "HEAD"])
    return f"{FIRST}.dev{n_commits}" if n_commits else ""


def _output(root: Path, command: list[str]) -> str:
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no Git, no tag, or a repository that Git does not trust
        return ""


def _next_version(description: str) -> str:
    """Return the version of ``v1.2.3``, ``v1.2.3-4-gabcdef`` or either with ``-dirty``; nothing for other texts."""
    match = re.fullmatch(r"v((?:\d+\.)+)(\d+)((?:a|b|rc)(\d+))?(?:-(\d+)-g[0-9a-f]+)?(-dirty)?", description)
    if match is None:
        return ""
    release, last, pre, pre_number, n_commits, is_dirty = match.groups()
    if not n_commits and not is_dirty:
        return f"{release}{last}{pre or ''}"
    following = f"{last}{pre.removesuffix(pre_number)}{int(pre_number) + 1}" if pre else int(last) + 1
    return f"{release}{following}.dev{n_commits or 0}"
