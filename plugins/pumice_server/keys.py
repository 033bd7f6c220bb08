"""API keys: names, scopes, and a lookup in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pumice.cli.options import read_bounded

SCOPES = ("infer", "admin")
"""Scopes of keys: generating; and loading, fetching and metrics."""

_HASHED = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Key:
    """An API key, by its SHA-256 digest. The key itself is not kept."""

    digest: bytes
    name: str = ""
    scopes: frozenset[str] = frozenset(SCOPES)


class APIKeys:
    """API keys of the command line and of a file, which ``reload`` reads again."""

    def __init__(self, given: Sequence[str] = (), file: Path | None = None) -> None:
        """Read the keys. Raises UsageError for an empty key, and as ``reload``."""
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
        """Read the file again. Raises ClickException if it cannot be read or a line is malformed."""
        self._keys = [*self._given, *(_read(self.file) if self.file else [])]

    def find(self, key: str) -> Key | None:
        """Return the key with this text, or None. Every key is compared, so that timing reveals nothing."""
        wanted_digest = digest(key)
        match = None
        for candidate in self._keys:
            if hmac.compare_digest(wanted_digest, candidate.digest):
                match = candidate
        return match

    def admits(self, client: str) -> bool:
        """Return True if a client, the digest of a key in hexadecimal, may still generate; without keys all may."""
        keys = [key for key in self._keys if key.digest.hex() == client]
        return not self._keys or any(SCOPES[0] in key.scopes for key in keys)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _read(file: Path) -> list[Key]:
    """Read lines ``KEY`` or ``NAME SCOPES KEY``. Commas separate scopes; ``sha256:DIGEST`` may stand for a key."""
    try:
        lines = read_bounded("the keys", file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8: byte {error.start}"
        raise click.ClickException(f"--api-key-file: cannot read {file}: {reason}") from None
    keys = [
        _parse(line.split(), f"{file}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    if not keys:
        raise click.ClickException(f"{file} contains no API keys: write one per line")
    return keys


def _parse(words: Sequence[str], where: str) -> Key:
    if len(words) not in (1, 3):
        raise click.ClickException(f"{where}: expected a key, or a name, scopes and a key")
    hashed = _HASHED.fullmatch(words[-1])
    key_digest = bytes.fromhex(hashed[1]) if hashed else digest(words[-1])
    if len(words) == 1:
        return Key(key_digest)
    scopes = frozenset(words[1].split(","))
    if not scopes <= set(SCOPES):
        raise click.ClickException(f"{where}: scopes are {' and '.join(SCOPES)}, not {words[1]!r}")
    return Key(key_digest, words[0], scopes)
