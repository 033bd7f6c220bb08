"""Repositories of the Hugging Face Hub: list their files, and fetch those that are not on this machine.

Files are kept in the cache of ``huggingface_hub``, in its documented layout ("Understand caching"):
`models--OWNER--NAME/{blobs/CHECKSUM, refs/REVISION, snapshots/COMMIT/FILE}`; other programs share it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pumice.cache_files import temporary_of
from pumice.errors import HubError, UnknownModelError
from pumice.file_names import is_safe_file_name
from pumice.hub.choice import choose, models_in
from pumice.hub.download import (
    DownloadProgress,
    Remote,
    check_space,
    download,
    explain_os_error,
    locked,
    reporter,
    status_line,
)
from pumice.hub.names import HubName
from pumice.hub.projectors import choose_projector, is_projector
from pumice.wording import printable

if TYPE_CHECKING:
    from pumice.hub.client import HubClient

FOLDER = "models--"  # beginning of the name of a model's folder
_COMMIT = re.compile("[0-9a-f]{40}")
_CHECKSUM = re.compile("[0-9a-f]{64}|[0-9a-f]{40}")
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP}  # errors of systems without links
_logger = logging.getLogger("pumice")


class HubFile(NamedTuple):
    """A file of a repository."""

    path: str
    size: int | None  # bytes
    checksum: str  # hexadecimal SHA-256, or git's SHA-1 for small files; empty if unknown

    @classmethod
    def of(cls, sibling: Mapping[str, Any]) -> HubFile:
        """Convert an entry of the Hub's response. Raises LookupError, TypeError or AttributeError if it is invalid."""
        path, size, lfs = sibling["rfilename"], sibling.get("size"), sibling.get("lfs")
        checksum = lfs["sha256"] if lfs else sibling.get("blobId")
        if not isinstance(path, str) or not isinstance(checksum or "", str):
            raise TypeError
        is_valid = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 60
        return cls(path, size if is_valid else None, checksum or "")


def cache_directory() -> Path:
    """Return the cache of ``huggingface_hub``: ``$HF_HUB_CACHE``, by default ``~/.cache/huggingface/hub``."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def endpoint() -> str:
    """Return the address of the Hub, or of the operator's mirror: ``$HF_ENDPOINT``."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def cached_files(name: HubName) -> dict[str, Path]:
    """Return the GGUF files of a repository that are on this machine, by their paths in the repository."""
    snapshot = _snapshot(name)
    if snapshot is None:
        return {}
    return {path.relative_to(snapshot).as_posix(): path for path in snapshot.rglob("*.gguf") if path.exists()}


def cached_model(name: HubName) -> list[Path]:
    """Return the files of the model that ``name`` selects on this machine; empty without one."""
    files = cached_files(name)
    try:
        return [files[file] for file in choose(name, models_in(files)).files] if files else []
    except HubError:
        return []


def fetch_model(name: HubName, client: HubClient, progress: DownloadProgress | None = None) -> list[Path]:
    """List the files that ``name`` selects, and fetch those that are missing. Raises HubError.

    The projector beside a vision model is fetched, too.
    """
    commit, files = list_files(name, client)
    model = choose(name, models_in(files)).files
    chosen = {file: files[file] for file in (*model, *_projector(model[0], files))}
    check_space(cache_directory(), sum(_missing_bytes(name, commit, file) for file in chosen.values()))
    total = sum(file.size or 0 for file in chosen.values())
    paths: list[Path] = []
    done = 0
    for file in chosen.values():
        report = reporter(progress, f"{name.repo}/{file.path}", done, total)
        if _is_linked(name, commit, file):
            report(file.size or 0)
        else:
            _fetch_content(name, commit, file, client, report)
            _link(name, commit, file)
        paths.append(_path(name, commit, file))
        done += file.size or 0
    _write_reference(name, commit)
    return paths[: len(model)]


def _projector(model: str, files: Iterable[str]) -> Iterator[str]:
    """Yield the projector beside a model's file in a repository, if there is one."""
    folder = PurePosixPath(model).parent
    beside = [path for path in map(PurePosixPath, files) if path.parent == folder and is_projector(path.name)]
    if chosen := choose_projector([path.name for path in beside]):
        yield str(folder / chosen)


@contextlib.contextmanager
def explained(name: str, *, downloads: bool = False) -> Iterator[None]:
    """Convert errors of the network, the Hub and the disk to a one-line HubError about ``name``.

    ``downloads``: what arrived is in a file, which another attempt continues.
    """
    import httpx2
    from huggingface_hub import constants, errors

    again = "try again, the received part is kept" if downloads else "try again"
    try:
        yield
    except errors.GatedRepoError:
        raise UnknownModelError(
            f"{name}: access must be requested: accept the conditions at {constants.ENDPOINT}, then set "
            "HF_TOKEN, or run `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UnknownModelError(f"{name}: no such repository; if it is private, set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise UnknownModelError(f"{name}: the repository has no such revision") from None
    except errors.OfflineModeIsEnabled:
        raise HubError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE is set; unset it to fetch the model"
        ) from None
    except errors.HfHubHTTPError as error:
        raise HubError(f"{name}: {status_line(error.response.status_code)}") from None
    except httpx2.TimeoutException:
        raise HubError(f"{name}: the server does not respond; {again}") from None
    except httpx2.ConnectError as error:
        cause = re.sub(r"^\[Errno -?\d+\] ", "", _first_line(error))
        raise HubError(
            f"{name}: no connection: {cause}; check the network, and behind a proxy HTTPS_PROXY; a model on this "
            "machine is given by the path of its file"
        ) from None
    except httpx2.HTTPError as error:
        raise HubError(f"{name}: no connection: {_first_line(error)}; {again}") from None
    except (errors.HFValidationError, httpx2.InvalidURL) as error:
        raise HubError(f"{name}: {_first_line(error)}") from None
    except OSError as error:
        raise HubError(explain_os_error(error, error.filename or cache_directory())) from None


def list_files(name: HubName, client: HubClient) -> tuple[str, dict[str, HubFile]]:
    """Return the current commit of the revision, and the files of its models by path."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, validate_repo_id

    from pumice.hub.client import raise_for_status

    validate_repo_id(name.repo)
    url = f"{constants.ENDPOINT}/api/models/{name.repo}/revision/{quote(name.revision, safe='')}?blobs=true"
    response = client.ask("GET", url, build_hf_headers())
    raise_for_status(response)
    try:
        answer = response.json()
        commit, siblings = answer["sha"], answer["siblings"]
        files = {file.path: file for file in map(HubFile.of, siblings) if file.path.endswith(".gguf")}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HubError(
            f"{name}: {url} responds with status {response.status_code} instead of a list of files"
        ) from None
    if not (isinstance(commit, str) and _COMMIT.fullmatch(commit)):
        raise HubError(f"{name}: the server returned an invalid commit, {commit!r:.100}")
    if _COMMIT.fullmatch(name.revision) and commit != name.revision:
        raise HubError(f"{name}: the server returned the commit {commit}, which was not requested")
    return commit, _check_names(name, files)


def _check_names(name: HubName, files: dict[str, HubFile]) -> dict[str, HubFile]:
    """Remove files whose names are not portable paths. Raises HubError if names differ only in case."""
    safe = {path: file for path, file in files.items() if is_safe_file_name(path)}
    for path in files.keys() - safe.keys():
        _logger.warning("%s: ignored a file whose name is not a portable path: %r", name, path[:200])
    folded: dict[str, str] = {}
    for path in safe:
        other = folded.setdefault(path.casefold(), path)
        if other != path:
            raise HubError(f"{name}: the names of two files, {other} and {path}, differ only in case")
    return safe


def _fetch_content(name: HubName, commit: str, file: HubFile, client: HubClient, report: Callable[[int], None]) -> None:
    url, headers = file_url(name, commit, file)
    if file.checksum and not _CHECKSUM.fullmatch(file.checksum):
        raise HubError(f"{name}: the server returned an invalid checksum of {file.path}, {file.checksum!r:.100}")
    remote = Remote(url, file.size, file.checksum, headers=headers)
    blob = _blob(name, commit, file)
    download(client, remote, blob, _lock(name, blob.name), report)


def file_url(name: HubName, commit: str, file: HubFile) -> tuple[str, Mapping[str, str]]:
    """Return the address of a file's content, and the headers of a request for it."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    url = hf_hub_url(name.repo, file.path, revision=commit, endpoint=constants.ENDPOINT)
    return url, build_hf_headers()


def _link(name: HubName, commit: str, file: HubFile) -> None:
    """Link a blob into the snapshot of a commit, or move it there on systems without links."""
    blob, path = _blob(name, commit, file), _path(name, commit, file)
    if _is_linked(name, commit, file):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    link = temporary_of(path)
    try:
        os.symlink(os.path.relpath(blob, path.parent), link)
    except OSError as error:
        if error.errno not in _NO_LINKS and os.name != "nt":
            raise
        os.replace(blob, path)
        return
    try:
        os.replace(link, path)  # another process may have linked it just now, and opens it
    except OSError:
        link.unlink(missing_ok=True)
        raise


def _is_linked(name: HubName, commit: str, file: HubFile) -> bool:
    blob, path = _blob(name, commit, file), _path(name, commit, file)
    if path.is_symlink():
        return path.exists() and blob.exists() and os.path.samefile(path, blob)
    return path.is_file() and path.stat().st_size == file.size


def _write_reference(name: HubName, commit: str) -> None:
    """Record the commit of a revision atomically."""
    path = _repository(name) / "refs" / name.revision
    if name.revision == commit or _read_reference(path) == commit:
        return
    note = path.with_name(f".{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(_lock(name, "refs"), lambda: None):
        try:
            note.write_text(commit)
            os.replace(note, path)
        except OSError:
            with contextlib.suppress(OSError):
                note.unlink(missing_ok=True)
            raise


def _read_reference(path: Path) -> str:
    """Return the commit that a reference names; empty without one."""
    try:
        commit = path.read_text().strip()
    except (OSError, ValueError):
        return ""
    return commit if _COMMIT.fullmatch(commit) else ""


def _missing_bytes(name: HubName, commit: str, file: HubFile) -> int:
    blob, size = _blob(name, commit, file), file.size or 0
    partial = blob.with_name(f"{blob.name}.incomplete")
    have = size if blob.exists() else partial.stat().st_size if partial.exists() else 0
    return max(size - have, 0)


def _blob(name: HubName, commit: str, file: HubFile) -> Path:
    """Return the path of a blob: by its checksum, or, if unknown, by commit and file."""
    key = file.checksum or hashlib.sha256(f"{commit}/{file.path}".encode()).hexdigest()
    return _repository(name) / "blobs" / key


def _path(name: HubName, commit: str, file: HubFile) -> Path:
    return _repository(name) / "snapshots" / commit / file.path


def _lock(name: HubName, what: str) -> Path:
    directory = cache_directory() / ".locks" / _folder(name)
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{what}.lock"


def _snapshot(name: HubName) -> Path | None:
    """Return the directory of a revision's files, if it exists."""
    repository = _repository(name)
    commit = _read_reference(repository / "refs" / name.revision) or name.revision
    snapshot = repository / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _repository(name: HubName) -> Path:
    return cache_directory() / _folder(name)


def _folder(name: HubName) -> str:
    return f"{FOLDER}{name.repo.replace('/', '--')}"


def _first_line(error: Exception) -> str:
    line = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return printable(line)
