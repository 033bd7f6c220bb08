"""Links from docs/ to other files of the repository, which are not part of the site."""

from __future__ import annotations

import re
from pathlib import Path

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?:\.\./)+[^)\s]*)\)")


def outside(text: str, page: str | Path, root: Path, repository: str, revision: str) -> str:
    """Return the page with links out of docs/ pointing to the repository, or as plain text if it is unknown.

    Raises ValueError for a link to a file that does not exist.
    """

    def replace(match: re.Match[str]) -> str:
        label, target = match[1], match[2].partition("#")[0]
        path = (Path(page).parent / target).resolve()
        if not path.exists():
            raise ValueError(f"{page}: broken link: {match[2]}")
        if not repository:
            return label
        kind = "tree" if path.is_dir() else "blob"
        return f"[{label}](https://github.com/{repository}/{kind}/{revision}/{path.relative_to(root).as_posix()})"

    return _LINK.sub(replace, text)
