"""Models at web addresses, in a cache of Pumice's own:

    $XDG_CACHE_HOME/pumice/models/HOST/HASH OF THE ADDRESS/{source.json, VERSION/FILE.gguf}

A version is what the server says of its content: tag, date, size. A changed file is another one beside the old.
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
    Progress,
    Remote,
    check_space,
    download,
    locked,
    reporter,
    validator_of,
)
from pumice.hub.names import WebName

if TYPE_CHECKING:
    from pumice.hub.client import HubClient

_TRIES = 3  # for a file that changes while it is fetched
_MAX_PARTS = 1000  # of a model, each of which is asked for
_MAX_NAME = 200  # letters of a file's name, to which endings are added


class _State(NamedTuple):
    """What a server says of a file."""

    version: str  # empty: nothing that would tell another version from this one
    validator: str  # of its content, as answers repeat it; empty: not said
    size: int | None  # bytes


def web_directory() -> Path:
    """The directory of all models from web addresses."""
    directory = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (directory if directory.is_absolute() else Path.home() / ".cache") / "pumice" / "models"


def cached_file(name: WebName) -> list[Path]:
    """The newest version that is here, or all of its parts; empty if there is none."""
    files = [_file_name(url) for url in _parts(name.url)]
    versions = sorted(_directory(name).glob("*/"), key=lambda version: version.stat().st_mtime, reverse=True)
    for version in versions:
        if all((version / file).exists() for file in files):
            return [version / file for file in files]
    return []


def fetch_file(name: WebName, client: HubClient, progress: Progress | None = None) -> list[Path]:
    """Ask for the file, or all of its parts, and fetch what is not here. Raises HubError."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ChangedError):
            return _fetch_parts(name, client, progress)
    return _fetch_parts(name, client, progress)


def _fetch_parts(name: WebName, client: HubClient, progress: Progress | None) -> list[Path]:
    """Raises ChangedError if the file became another one after the server was asked about it."""
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
        if not state.version:  # it may have changed since
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.incomplete").unlink(missing_ok=True)
        report = reporter(progress, path.name, done, total)
        remote = Remote(url, state.size, validator=state.validator)
        download(client, remote, path, path.with_name(f"{path.name}.lock"), report)
        done += state.size or 0
    return paths


def source_of(directory: Path) -> str:
    """The address whose file and versions lie in ``directory``; empty if there is no note of it."""
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


def _ask(url: str, client: HubClient) -> _State:
    """The state of the file, by a HEAD request; a server that answers none of those tells nothing."""
    from pumice.hub.client import raise_for_status

    response = client.ask("HEAD", url)
    if response.status_code in (405, 501):
        return _State("", "", None)
    raise_for_status(response)
    length = response.headers.get("Content-Length", "")
    size = length if length.isdecimal() and len(length) <= 18 else ""
    known = (response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""))
    return _State(
        " ".join([*known, size]) if any(known) else "", validator_of(response.headers), int(size or 0) or None
    )


def _parts(url: str) -> list[str]:
    """The addresses of all parts of a model that is split over several files, or the one address."""
    address = urlsplit(url)
    split = SPLIT_NAME.fullmatch(address.path)
    if not split:
        return [url]
    count = split["count"]
    if int(count) > _MAX_PARTS:
        raise HubError(f"{url}: a model of {int(count)} parts; at most {_MAX_PARTS} are fetched")
    paths = [f"{split['prefix']}-{part:05}-of-{count}.gguf" for part in range(1, int(count) + 1)]
    return [address._replace(path=path).geturl() for path in paths]


def _directory(name: WebName) -> Path:
    host = re.sub(r"[^\w.-]", "_", urlsplit(name.url).netloc.rpartition("@")[2].lower(), flags=re.ASCII)
    return web_directory() / host[:_MAX_NAME] / _hash(_parts(name.url)[0])


def _file_name(url: str) -> str:
    """The end of an address as a file's name that no shell or file system minds."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name.removesuffix(".gguf")
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[-_MAX_NAME:]
    return "_" * (not is_safe_file_name(name + ".gguf")) + name + ".gguf"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
