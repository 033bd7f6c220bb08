"""Models at web addresses, in a cache of Pumice's own:

    $XDG_CACHE_HOME/pumice/models/HOST/HASH OF THE ADDRESS/{source.json, VERSION/FILE.gguf}

A version is what the server says of its content: tag, date, size. A changed file is another one beside the old.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pumice.gguf.split import SPLIT_NAME
from pumice.hub.download import Progress, Remote, check_space, download, reporter
from pumice.hub.names import WebName
from pumice.hub.repository import explained

_SECONDS = 30  # timeout of a question about a file


class _State(NamedTuple):
    """What a server says of a file."""

    version: str  # empty: nothing that would tell another version from this one
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


def fetch_file(name: WebName, progress: Progress | None = None) -> list[Path]:
    """Ask for the file, or all of its parts, and fetch what is not here. Raises HubError."""
    urls = _parts(name.url)
    with explained(name.url):
        states = [_ask(url) for url in urls]
        version = _hash("".join(state.version for state in states))
        paths = [_directory(name) / version / _file_name(url) for url in urls]
        total = sum(state.size or 0 for state in states)
        check_space(web_directory(), total)
        _note(name)
        done = 0
        for url, state, path in zip(urls, states, paths, strict=True):
            if not state.version:  # it may have changed since
                path.unlink(missing_ok=True)
                path.with_name(f"{path.name}.incomplete").unlink(missing_ok=True)
            report = reporter(progress, path.name, done, total)
            download(Remote(url, state.size), path, path.with_name(f"{path.name}.lock"), report)
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
    note = directory / f"source.json.{os.getpid()}"
    note.write_text(json.dumps({"url": name.url}))
    os.replace(note, directory / "source.json")


def _ask(url: str) -> _State:
    """The state of the file, by a HEAD request; a server that answers none of those tells nothing."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    response = get_session().head(url, headers={"Accept-Encoding": "identity"}, timeout=_SECONDS)
    if response.status_code in (405, 501):
        return _State("", None)
    hf_raise_for_status(response)
    headers: Mapping[str, str] = response.headers
    size = headers.get("Content-Length", "")
    known: Iterable[str] = (headers.get("ETag", ""), headers.get("Last-Modified", ""))
    return _State(" ".join([*known, size]) if any(known) else "", int(size) if size.isdecimal() else None)


def _parts(url: str) -> list[str]:
    """The addresses of all parts of a model that is split over several files, or the one address."""
    address = urlsplit(url)
    split = SPLIT_NAME.fullmatch(address.path)
    if not split:
        return [url]
    count = split["count"]
    paths = [f"{split['prefix']}-{part:05}-of-{count}.gguf" for part in range(1, int(count) + 1)]
    return [address._replace(path=path).geturl() for path in paths]


def _directory(name: WebName) -> Path:
    host = re.sub(r"[^\w.-]", "_", urlsplit(name.url).netloc.rpartition("@")[2])
    return web_directory() / host / _hash(_parts(name.url)[0])


def _file_name(url: str) -> str:
    """The end of an address as a file's name that no shell or file system minds."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name.removesuffix(".gguf")
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") + ".gguf"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
