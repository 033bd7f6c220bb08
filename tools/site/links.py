"""Links from docs/ to other files of the repository, which the site does not hold."""

from __future__ import annotations

import re
from pathlib import Path

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?:\.\./)+[^)\s]*)\)")


def outside(text: str, page: str | Path, root: Path, repository: str, revision: str) -> str:
    """Return the page with each link out of docs/ led to the repository, or reduced to its text if none is known.

    Raises ValueError for a link to a file that does not exist.
    """

    def replace(match: re.Match[str]) -> str:
        label, target = match[1], match[2].partition("#")[0]
        path = (Path(page).parent / target).resolve()
        if not path.exists():
            raise ValueError(f"{page}: the link leads nowhere: {match[2]}")
        if not repository:
            return label
        kind = "tree" if path.is_dir() else "blob"
        return f"[{label}](https://github.com/{repository}/{kind}/{revision}/{path.relative_to(root).as_posix()})"

    return _LINK.sub(replace, text)
