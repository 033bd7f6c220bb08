"""The HTTP client of downloads, which restricts hosts, limits waits, and can be aborted.

Every redirect is followed as a separate request: its scheme, host and addresses are checked, the connection uses a
checked address, and the bodies of redirects are not read.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import hf_raise_for_status

from pumice.errors import HubError
from pumice.hub.abort import Abort
from pumice.hub.addresses import resolve_public
from pumice.hub.names import LOCAL_HOSTS

Origin = tuple[str, str, int]  # scheme, host, port

_SILENT_SECONDS = 30.0  # to connect, or between two bytes
_ANSWER_SECONDS = 60.0  # until the headers of a response, or all of a short one, have arrived
_MAX_ANSWER = 64 << 20  # bytes of a short response, such as a list of files
_MAX_REDIRECTS = 10
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class AllowedHosts:
    """The hosts that a download may reach.

    Args:
        trusted: origins that the operator configured, such as the Hub's endpoint or addresses in the catalogue.
        public_only: other hosts must use https on port 443, and have public addresses only.
        hosts: names of the only hosts besides trusted ones; None allows any.
    """

    trusted: frozenset[Origin] = frozenset()
    public_only: bool = False
    hosts: frozenset[str] | None = None

    def check(self, url: httpx2.URL) -> list[str]:
        """Return the addresses to connect to; empty allows any. Raises HubError, OSError."""
        origin = origin_of(url)
        scheme, host, port = origin
        if scheme not in _PORTS:
            raise HubError(f"{url}: downloads need https://")
        if origin in self.trusted:
            return []
        if self.hosts is not None and host.rstrip(".") not in self.hosts:
            raise HubError(f"{host} is not among the allowed hosts")
        if scheme == "http" and (self.public_only or not self._plain(host)):
            raise HubError(f"{url}: anybody on the way could change what http:// brings; use https://")
        if not self.public_only:
            return []
        if port != _PORTS["https"]:
            raise HubError(f"{url}: clients of the server may use port 443 only")
        return resolve_public(host, port)

    def _plain(self, host: str) -> bool:
        """Return True if http is allowed: for this machine, or if the operator's own mirror uses it."""
        return host in LOCAL_HOSTS or any(scheme == "http" for scheme, _, _ in self.trusted)


def origin_of(url: str | httpx2.URL) -> Origin:
    """Return the origin of an address. Raises ``httpx2.InvalidURL``."""
    url = httpx2.URL(url)
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS.get(url.scheme, 0)


class HubClient:
    """Sends requests to hosts that ``access`` allows. A context manager."""

    def __init__(self, access: AllowedHosts, abort: Abort) -> None:
        self.access, self.abort = access, abort
        transport = _Transport(access, abort)
        self._client = httpx2.Client(transport=transport, timeout=_SILENT_SECONDS, trust_env=False)

    def __enter__(self) -> HubClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, follow: bool = True
    ) -> httpx2.Response:
        """Return a short response with its body, whatever its status. Raises HubError, ``httpx2.HTTPError``."""
        with self.abort.deadline(_ANSWER_SECONDS), self.stream(method, url, headers, follow=follow) as response:
            body = bytearray()
            if method != "HEAD":
                refuse_encoding(response)
                for chunk in response.iter_raw():
                    self.abort.check()
                    body += chunk
                    if len(body) > _MAX_ANSWER:
                        raise HubError(f"{url}: the response is longer than {_MAX_ANSWER >> 20} MiB")
            return httpx2.Response(
                response.status_code, headers=_without_encoding(response), content=bytes(body), request=response.request
            )

    @contextlib.contextmanager
    def stream(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, follow: bool = True
    ) -> Iterator[httpx2.Response]:
        """Yield the response, after redirects if ``follow``; read its body with ``iter_raw``."""
        request = self._client.build_request(method, url, headers={**(headers or {}), "Accept-Encoding": "identity"})
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._client.send(request, stream=True)
            try:
                if response.next_request is None or not follow:
                    yield response
                    return
                request = response.next_request  # without credentials if the origin changes
            finally:
                response.close()
        raise HubError(f"{url}: more than {_MAX_REDIRECTS} redirects")


def raise_for_status(response: httpx2.Response) -> None:
    """Like ``hf_raise_for_status``, but leave the body of a streamed response unread."""
    headers = _without_encoding(response)
    bare = httpx2.Response(response.status_code, headers=headers, content=b"", request=response.request)
    hf_raise_for_status(bare)


def refuse_encoding(response: httpx2.Response) -> None:
    """Raise HubError for a compressed body, which was not requested and may expand to any size."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HubError(
            f"{response.url}: the server sends a compressed response ({encoding!r:.40}), which was not requested"
        )


def _without_encoding(response: httpx2.Response) -> httpx2.Headers:
    headers = response.headers.copy()
    headers.pop("Content-Encoding", None)
    return headers


class _Transport(httpx2.BaseTransport):
    """Connects to checked addresses, through the proxy of the environment if there is one."""

    def __init__(self, access: AllowedHosts, abort: Abort) -> None:
        self._access = access
        self._abort = abort
        self._ways: dict[str, httpx2.HTTPTransport] = {}  # by the proxy's address; empty for none

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._abort.check()
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled(f"offline mode is enabled: {request.url}")
        proxy = _proxy_of(request.url)
        try:
            addresses = self._access.check(request.url)
        except OSError as error:
            if not proxy:
                raise httpx2.ConnectError(f"{request.url.host}: {error.strerror or error}", request=request) from None
            addresses = []  # the proxy resolves the name
        way = self._way(proxy)
        if proxy or not addresses:
            return self._send(way, request, request.url)
        for address in addresses[:-1]:
            with contextlib.suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return self._send(way, request, request.url.copy_with(host=address))
        return self._send(way, request, request.url.copy_with(host=addresses[-1]))

    def _send(self, way: httpx2.HTTPTransport, request: httpx2.Request, url: httpx2.URL) -> httpx2.Response:
        """Send a request to ``url``, which has an address as its host; the certificate must match the name."""
        extensions = {**request.extensions, "trace": self._abort.trace}
        if url != request.url:
            extensions["sni_hostname"] = request.url.raw_host.decode("ascii").rstrip(".")
        with self._abort.deadline(_ANSWER_SECONDS):
            return way.handle_request(
                httpx2.Request(
                    request.method, url, headers=request.headers, stream=request.stream, extensions=extensions
                )
            )

    def _way(self, proxy: str) -> httpx2.HTTPTransport:
        if proxy not in self._ways:
            # Connections are not reused: two names at one address need two certificates.
            limits = httpx2.Limits(max_keepalive_connections=0)
            self._ways[proxy] = httpx2.HTTPTransport(_certificates(), proxy=proxy or None, limits=limits)
        return self._ways[proxy]

    def close(self) -> None:
        for way in self._ways.values():
            way.close()


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that this machine trusts, or those of ``$SSL_CERT_FILE``; loading them is slow."""
    return httpx2.create_ssl_context()


def _proxy_of(url: httpx2.URL) -> str:
    """Return the proxy that the environment sets for an address; empty without one."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(url.host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
