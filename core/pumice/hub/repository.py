"""Repositories of the Hugging Face Hub: what is in them, what is here already, and fetching the rest.

Files lie in the cache of ``huggingface_hub``, in its layout, which its documentation describes ("Understand caching"):
`models--OWNER--NAME/{blobs/CHECKSUM, refs/REVISION, snapshots/COMMIT/FILE}`; other programs find them there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pumice.errors import HubError
from pumice.hub.choice import choose, models_in
from pumice.hub.download import Progress, Remote, check_space, download, explain_os_error, reporter
from pumice.hub.names import HubName

_SECONDS = 30  # timeout of a question about a repository


class HubFile(NamedTuple):
    """A file of a repository."""

    size: int  # bytes
    sha256: str  # hexadecimal; empty for the small files that git itself keeps


def cache_directory() -> Path:
    """Where ``huggingface_hub`` keeps files: ``$HF_HUB_CACHE``, by default ``~/.cache/huggingface/hub``."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_model(name: HubName) -> list[Path]:
    """The files of the model that ``name`` means among those that are here; empty if none is."""
    snapshot = _snapshot(name)
    if snapshot is None:
        return []
    files = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.exists()]
    try:
        return [snapshot / file for file in choose(name, models_in(files)).files]
    except HubError:
        return []


def fetch_model(name: HubName, progress: Progress | None = None) -> list[Path]:
    """Ask the Hub for the files that ``name`` means, and fetch those that are not here. Raises HubError."""
    with explained(str(name)):
        commit, files = _list_files(name)
        chosen = {file: files[file] for file in choose(name, models_in(files)).files}
        check_space(cache_directory(), sum(_missing_bytes(name, file) for file in chosen.values()))
        total = sum(file.size for file in chosen.values())
        paths: list[Path] = []
        done = 0
        for file, facts in chosen.items():
            report = reporter(progress, f"{name.repo}/{file}", done, total)
            paths.append(_fetch_file(name, commit, file, facts, report))
            done += facts.size
        return paths


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Errors of the network, of the Hub and of the disk as a HubError of one line about ``name``."""
    import httpx2
    from huggingface_hub import constants, errors

    try:
        yield
    except errors.GatedRepoError:
        raise HubError(
            f"{name}: its owner gives access on request: accept the conditions at {constants.ENDPOINT}, then set "
            "HF_TOKEN, or run `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise HubError(f"{name}: no such repository, or a private one: for that set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise HubError(f"{name}: the repository has no such revision") from None
    except errors.EntryNotFoundError as error:
        raise HubError(f"{name}: {_first_line(error)}") from None
    except errors.OfflineModeIsEnabled:
        raise HubError(f"{name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it") from None
    except errors.HfHubHTTPError as error:
        raise HubError(f"{name}: {_status_line(error.response.status_code)}") from None
    except httpx2.TimeoutException:
        raise HubError(f"{name}: the server does not answer; try again, what came is kept") from None
    except httpx2.HTTPError as error:
        raise HubError(f"{name}: no connection: {_first_line(error)}; try again, what came is kept") from None
    except errors.HFValidationError as error:
        raise HubError(f"{name}: {_first_line(error)}") from None
    except OSError as error:
        raise HubError(explain_os_error(error, error.filename or cache_directory())) from None


def _list_files(name: HubName) -> tuple[str, dict[str, HubFile]]:
    """The commit that the revision is now, and its files."""
    from huggingface_hub import HfApi, constants

    api = HfApi(endpoint=constants.ENDPOINT)
    info = api.model_info(name.repo, revision=name.revision, files_metadata=True, timeout=_SECONDS)
    files = {
        file.rfilename: HubFile(file.size or 0, file.lfs.sha256 if file.lfs else "") for file in info.siblings or []
    }
    return info.sha or name.revision, files


def _fetch_file(name: HubName, commit: str, file: str, facts: HubFile, report: Callable[[int], None]) -> Path:
    """Put the content where ``huggingface_hub`` looks for it; it then gives it its name."""
    from huggingface_hub import constants, hf_hub_download, hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    if facts.sha256 and not re.fullmatch("[0-9a-f]{64}", facts.sha256):
        raise HubError(f"{name}: the server gives {facts.sha256!r} for {file}, which is no checksum")
    if facts.sha256 and facts.size <= constants.MAX_HTTP_DOWNLOAD_SIZE:
        url = hf_hub_url(name.repo, file, revision=commit, endpoint=constants.ENDPOINT)
        remote = Remote(url, facts.size, facts.sha256, build_hf_headers())
        lock = cache_directory() / ".locks" / _folder(name) / f"{facts.sha256}.lock"
        download(remote, _blob(name, facts), lock, report)
    path = hf_hub_download(
        name.repo, file, revision=name.revision, cache_dir=cache_directory(), endpoint=constants.ENDPOINT
    )
    return Path(path)


def _missing_bytes(name: HubName, file: HubFile) -> int:
    blob = _blob(name, file)
    partial = blob.with_name(f"{blob.name}.incomplete")
    have = file.size if blob.exists() else partial.stat().st_size if partial.exists() else 0
    return max(file.size - have, 0)


def _blob(name: HubName, file: HubFile) -> Path:
    return cache_directory() / _folder(name) / "blobs" / file.sha256


def _snapshot(name: HubName) -> Path | None:
    """The directory of the files of a revision, if there is one."""
    repository = cache_directory() / _folder(name)
    ref = repository / "refs" / name.revision
    commit = ref.read_text() if ref.is_file() else name.revision
    snapshot = repository / "snapshots" / commit
    return snapshot if snapshot.is_dir() else None


def _folder(name: HubName) -> str:
    return f"models--{name.repo.replace('/', '--')}"


def _status_line(status: int) -> str:
    reasons = {
        401: "access denied (401): the token in HF_TOKEN is wrong or out of date",
        403: "access forbidden (403): the token in HF_TOKEN has no right to read it",
        404: "no such file (404)",
        429: "too many requests (429); wait a few minutes, or set HF_TOKEN",
    }
    return reasons.get(status, f"the server failed ({status}); try again later")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
