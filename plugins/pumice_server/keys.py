"""API keys: their names, what they allow, and a comparison that takes as long for a wrong key as for a right one."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

SCOPES = ("infer", "admin")
"""What a key may allow: to generate, and to load, fetch and measure."""

_HASHED = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Key:
    """``digest``: the SHA-256 of the key, which is kept nowhere itself."""

    digest: bytes
    name: str = ""
    scopes: frozenset[str] = frozenset(SCOPES)


class Keys:
    """Those of the command line, and those of a file, which is read again when it changed and that is asked for."""

    def __init__(self, given: Sequence[str] = (), file: Path | None = None) -> None:
        """Raises as ``reload``, and UsageError for an empty key."""
        words = [word.strip() for text in given for word in text.split(",")]
        if not all(words):
            raise click.UsageError("--api-key is empty")
        self._given = [Key(digest(word)) for word in words]
        self.file = file
        self._keys: list[Key] = []
        self.reload()

    def __len__(self) -> int:
        return len(self._keys)

    def reload(self) -> None:
        """Read the file again. Raises ClickException for one that cannot be read, or has a line that is no key."""
        self._keys = [*self._given, *(_read(self.file) if self.file else [])]

    def find(self, key: str) -> Key | None:
        """All keys are compared, so that the time tells nothing about any."""
        asked = digest(key)
        found = None
        for known in self._keys:
            if hmac.compare_digest(asked, known.digest):
                found = known
        return found


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _read(file: Path) -> list[Key]:
    """Lines ``KEY``, or ``NAME SCOPES KEY``: scopes separated by commas; a key may be ``sha256:`` and its digest."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(f"cannot read the keys: {file}: {reason}") from None
    keys = [
        _parse(line.split(), f"{file}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if not keys:
        raise click.ClickException(f"{file} has no keys: write one a line")
    return keys


def _parse(words: Sequence[str], where: str) -> Key:
    if len(words) not in (1, 3):
        raise click.ClickException(f"{where}: expected a key, or a name, scopes and a key")
    hashed = _HASHED.fullmatch(words[-1])
    known = bytes.fromhex(hashed[1]) if hashed else digest(words[-1])
    if len(words) == 1:
        return Key(known)
    scopes = frozenset(words[1].split(","))
    if not scopes <= set(SCOPES):
        raise click.ClickException(f"{where}: scopes are {' and '.join(SCOPES)}, not {words[1]!r}")
    return Key(known, words[0], scopes)
