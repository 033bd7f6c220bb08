"""Files at web addresses that clients of a server name, fetched from the hosts that its operator lists."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from pumice.errors import HubError, RequestError
from pumice.hub.abort import Abort

if TYPE_CHECKING:
    from pumice.hub.client import HubClient

SECONDS = 30.0  # for all files of a request
_SHOWN = 80  # characters of an address in messages

_logger = logging.getLogger("pumice")


def media_host(text: str) -> str:
    """Return a host's name in the form of ``AllowedHosts.hosts``. Raises ValueError for others, such as a URL."""
    import httpx2

    from pumice.hub.client import origin_of

    try:
        _, host, port = origin_of(f"https://{text}")
    except httpx2.InvalidURL:
        host, port = "", 0
    if not host or port != 443 or any(letter in text for letter in "/?#@\\*:[]"):
        raise ValueError(f"expected the name of a host, such as images.example.org, not {text!r}")
    return host.rstrip(".")


class MediaFetch:
    """Fetches files from the hosts that the operator allows.

    Addresses begin with https:// and have port 443. The addresses of their hosts must be public; redirects are followed
    under the same rules.

    Args:
        hosts: names of hosts, from ``media_host``.
        most: bytes of all files together.
    """

    def __init__(self, hosts: Collection[str], most: int) -> None:
        self._hosts = frozenset(hosts)
        self._most = most
        self._abort = Abort()

    def run(self, urls: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of files by address, each of which is fetched once.

        Raises:
            RequestError: an address is not allowed, a file cannot be fetched, or all take more bytes or time than
                allowed. What other hosts answer is only logged.
        """
        from pumice.hub.client import AllowedHosts, HubClient

        timer = threading.Timer(SECONDS, self.abort)
        timer.daemon = True
        timer.start()
        files: dict[str, bytes] = {}
        left = self._most
        try:
            with HubClient(AllowedHosts(public_only=True, hosts=self._hosts), self._abort) as client:
                for url in dict.fromkeys(urls):
                    files[url] = self._file(client, url, left)
                    left -= len(files[url])
        finally:
            timer.cancel()
        return files

    def abort(self) -> None:
        """End ``run``, which then raises RequestError. Thread-safe."""
        self._abort.abort()

    def _file(self, client: HubClient, url: str, most: int) -> bytes:
        import httpx2
        from huggingface_hub.errors import OfflineModeIsEnabled

        from pumice.hub.client import origin_of, refuse_encoding

        shown = repr(url[:_SHOWN])
        try:
            scheme, host, _ = origin_of(url)
            if scheme != "https" or httpx2.URL(url).userinfo:
                raise RequestError(f"image: {shown}: expected an address that begins with https:// and names no user")
            if host.rstrip(".") not in self._hosts:
                raise RequestError(f"image: {shown}: this server fetches nothing from {host}; send a data: URL")
            with client.stream("GET", url, {"Accept": "image/*"}) as response:
                if response.status_code != HTTPStatus.OK:
                    raise HubError(f"{url}: status {response.status_code}")
                refuse_encoding(response)
                data = bytearray()
                for piece in response.iter_raw():
                    self._abort.check()
                    data += piece
                    if len(data) > most:
                        mebibytes = f"{self._most / 2**20:g} MiB"
                        raise RequestError(f"image: {shown}: the files of a request may have {mebibytes} together")
                return bytes(data)
        except (HubError, OSError, httpx2.HTTPError, httpx2.InvalidURL, OfflineModeIsEnabled) as error:
            _logger.error("%s: %s: %s", shown, type(error).__name__, error)
            raise RequestError(f"image: {shown} cannot be fetched; see the server's log") from None
