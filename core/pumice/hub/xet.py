"""Fetch files that are too large for plain HTTP from the Hub, by its package ``hf_xet``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.errors import HubError

if TYPE_CHECKING:
    from pumice.hub.client import HubClient


def is_too_large(n_bytes: int | None) -> bool:
    """Return True if a file of ``n_bytes`` needs Xet."""
    from huggingface_hub import constants

    return (n_bytes or 0) > constants.MAX_HTTP_DOWNLOAD_SIZE


def fetch_by_xet(
    client: HubClient, url: str, n_bytes: int, headers: Mapping[str, str], path: Path, report: Callable[[int], None]
) -> None:
    """Fetch a file to ``path``. Not for clients of the server, since connections are not checked."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import xet_get
    from huggingface_hub.utils._xet import parse_xet_file_data_from_response

    if client.access.public_only:
        raise HubError(
            f"{url}: {n_bytes:,} bytes are too many for a client's download; fetch the model with pumice pull"
        )
    answer = client.ask("HEAD", url, headers, follow=False)
    data = parse_xet_file_data_from_response(answer, endpoint=constants.ENDPOINT)
    if data is None:
        raise HubError(f"{url}: {n_bytes:,} bytes are too many for plain HTTP, and the server has no Xet")
    xet_get(
        incomplete_path=path,
        xet_file_data=data,
        headers=dict(headers),
        expected_size=n_bytes,
        tqdm_class=_bar_class(report),
    )


def _bar_class(report: Callable[[int], None]) -> Any:
    """Return a class with the interface of tqdm's progress bars, for ``xet_get``."""

    class Bar:
        def __init__(self, initial: int = 0, **_: Any) -> None:
            self._done = initial

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: int) -> None:
            self._done += n
            report(self._done)

    return Bar
