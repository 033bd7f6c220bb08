"""Models at web addresses, kept in Pumice's own cache:

    $XDG_CACHE_HOME/pumice/models/HOST/HASH OF THE ADDRESS/{source.json, VERSION/FILE.gguf}

A version is the server's ETag, date and size of the content. Changed files are kept beside older versions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pumice.errors import HubError
from pumice.file_names import is_safe_file_name
from pumice.gguf.split import SPLIT_NAME
from pumice.hub.download import (
    ChangedError,
    DownloadProgress,
    Remote,
    check_space,
    download,
    locked,
    reporter,
    validator_of,
)
from pumice.hub.names import WebName
from pumice.sandbox import cache_homes

if TYPE_CHECKING:
    from pumice.hub.client import HubClient

_TRIES = 3  # for a file that changes during the download
_MAX_PARTS = 1000  # of a split model, each of which takes a request
_MAX_NAME = 200  # characters of a file's name, to which suffixes are added


class _RemoteState(NamedTuple):
    """The state of a file by the server's headers."""

    version: str  # empty if the headers do not distinguish versions
    validator: str  # ETag or date, as responses repeat it; empty if unknown
    size: int | None  # bytes


def web_directory() -> Path:
    """Return the directory of all models from web addresses."""
    return cache_homes()[0] / "pumice" / "models"


def cached_file(name: WebName) -> list[Path]:
    """Return the newest version on this machine, with all parts; empty without one."""
    files = [_file_name(url) for url in _parts(name.url)]
    versions = sorted(_directory(name).glob("*/"), key=lambda version: version.stat().st_mtime, reverse=True)
    for version in versions:
        if all((version / file).exists() for file in files):
            return [version / file for file in files]
    return []


def fetch_file(name: WebName, client: HubClient, progress: DownloadProgress | None = None) -> list[Path]:
    """Check the file, or all of its parts, and fetch what is missing. Raises HubError."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ChangedError):
            return _fetch_parts(name, client, progress)
    return _fetch_parts(name, client, progress)


def _fetch_parts(name: WebName, client: HubClient, progress: DownloadProgress | None) -> list[Path]:
    """Fetch all parts. Raises ChangedError if a file changed after it was checked."""
    urls = _parts(name.url)
    states = [_ask(url, client) for url in urls]
    version = _hash("".join(state.version for state in states))
    paths = [_directory(name) / version / _file_name(url) for url in urls]
    if not all(state.version and path.exists() for state, path in zip(states, paths, strict=True)):
        check_space(web_directory(), sum(state.size or 0 for state in states))
        _note(name)
    total = sum(state.size or 0 for state in states)
    done = 0
    for url, state, path in zip(urls, states, paths, strict=True):
        if not state.version:  # changes cannot be detected
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.incomplete").unlink(missing_ok=True)
        report = reporter(progress, path.name, done, total)
        remote = Remote(url, state.size, validator=state.validator)
        download(client, remote, path, path.with_name(f"{path.name}.lock"), report)
        done += state.size or 0
    return paths


def source_of(directory: Path) -> str:
    """Return the address whose versions are in ``directory``; empty if it is not recorded."""
    try:
        return str(json.loads((directory / "source.json").read_text())["url"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _note(name: WebName) -> None:
    directory = _directory(name)
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / "source.json.new"
    with locked(directory / "source.json.lock", lambda: None):
        try:
            note.write_text(json.dumps({"url": name.url}))
            os.replace(note, directory / "source.json")
        except OSError:
            with contextlib.suppress(OSError):
                note.unlink(missing_ok=True)
            raise


def _ask(url: str, client: HubClient) -> _RemoteState:
    """Return the state of the file from a HEAD request; empty if the server does not support it."""
    from pumice.hub.client import raise_for_status

    response = client.ask("HEAD", url)
    if response.status_code in (405, 501):
        return _RemoteState("", "", None)
    raise_for_status(response)
    length = response.headers.get("Content-Length", "")
    size = length if length.isdecimal() and len(length) <= 18 else ""
    tags = (response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""))
    return _RemoteState(
        " ".join([*tags, size]) if any(tags) else "", validator_of(response.headers), int(size or 0) or None
    )


def _parts(url: str) -> list[str]:
    """Return the addresses of all parts of a split model, or the single address."""
    address = urlsplit(url)
    split = SPLIT_NAME.fullmatch(address.path)
    if not split:
        return [url]
    count = split["count"]
    if int(count) > _MAX_PARTS:
        raise HubError(f"{url}: the model has {int(count)} parts, but the limit is {_MAX_PARTS}")
    paths = [f"{split['prefix']}-{part:05}-of-{count}.gguf" for part in range(1, int(count) + 1)]
    return [address._replace(path=path).geturl() for path in paths]


def _directory(name: WebName) -> Path:
    host = re.sub(r"[^\w.-]", "_", urlsplit(name.url).netloc.rpartition("@")[2].lower(), flags=re.ASCII)
    return web_directory() / host[:_MAX_NAME] / _hash(_parts(name.url)[0])


def _file_name(url: str) -> str:
    """Return the end of an address as a portable file name."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name.removesuffix(".gguf")
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[-_MAX_NAME:]
    return "_" * (not is_safe_file_name(name + ".gguf")) + name + ".gguf"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
