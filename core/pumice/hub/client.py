"""The HTTP client of downloads: which hosts it may reach, for how long it waits, and how it is stopped.

Every hop of a redirect is a request of its own here: its scheme, host and addresses are checked, the connection goes to
an address that was checked, and the bodies of redirects are not read.
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

_SILENT_SECONDS = 30.0  # without a byte, or to connect
_ANSWER_SECONDS = 60.0  # until the headers of an answer, or all of a short one, are there
_MAX_ANSWER = 64 << 20  # bytes of a short answer: a list of files
_MAX_REDIRECTS = 10
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Access:
    """The hosts that a download may reach.

    Args:
        trusted: origins that the operator named: the endpoint of the Hub, an address in the catalogue.
        public_only: other hosts are reached by https, at port 443, and only if all their addresses are public.
    """

    trusted: frozenset[Origin] = frozenset()
    public_only: bool = False

    def check(self, url: httpx2.URL) -> list[str]:
        """Return the addresses to connect to; none: whatever the name resolves to. Raises HubError, OSError."""
        origin = origin_of(url)
        scheme, host, port = origin
        if scheme not in _PORTS:
            raise HubError(f"{url}: downloads come by https://")
        if origin in self.trusted:
            return []
        if scheme == "http" and (self.public_only or not self._plain(host)):
            raise HubError(f"{url}: anybody on the way could change what http:// brings; use https://")
        if not self.public_only:
            return []
        if port != _PORTS["https"]:
            raise HubError(f"{url}: clients of the server reach port 443 alone")
        return resolve_public(host, port)

    def _plain(self, host: str) -> bool:
        """Whether http will do: on this machine, or where the operator's own mirror has nothing better."""
        return host in LOCAL_HOSTS or any(scheme == "http" for scheme, _, _ in self.trusted)


def origin_of(url: str | httpx2.URL) -> Origin:
    """The origin of an address. Raises ``httpx2.InvalidURL``."""
    url = httpx2.URL(url)
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS.get(url.scheme, 0)


class HubClient:
    """Asks hosts that ``access`` allows. A context manager."""

    def __init__(self, access: Access, abort: Abort) -> None:
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
        """Return a short answer with all of its body, whatever its status. Raises HubError, ``httpx2.HTTPError``."""
        with self.abort.deadline(_ANSWER_SECONDS), self.stream(method, url, headers, follow=follow) as response:
            body = bytearray()
            if method != "HEAD":
                refuse_encoding(response)
                for chunk in response.iter_raw():
                    self.abort.check()
                    body += chunk
                    if len(body) > _MAX_ANSWER:
                        raise HubError(f"{url}: the answer is longer than {_MAX_ANSWER >> 20} MiB")
            return httpx2.Response(
                response.status_code, headers=_without_encoding(response), content=bytes(body), request=response.request
            )

    @contextlib.contextmanager
    def stream(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, *, follow: bool = True
    ) -> Iterator[httpx2.Response]:
        """The answer, after redirects unless they are not to be followed; its body is to be read with ``iter_raw``."""
        request = self._client.build_request(method, url, headers={**(headers or {}), "Accept-Encoding": "identity"})
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._client.send(request, stream=True)
            try:
                if response.next_request is None or not follow:
                    yield response
                    return
                request = response.next_request  # without the credentials, if that is another origin
            finally:
                response.close()
        raise HubError(f"{url}: more than {_MAX_REDIRECTS} redirects")


def raise_for_status(response: httpx2.Response) -> None:
    """As ``hf_raise_for_status``, without the body of a response that is being streamed."""
    headers = _without_encoding(response)
    bare = httpx2.Response(response.status_code, headers=headers, content=b"", request=response.request)
    hf_raise_for_status(bare)


def refuse_encoding(response: httpx2.Response) -> None:
    """Raise HubError for a body that is compressed, which was not asked for and may become any size."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HubError(
            f"{response.url}: the server compresses what it sends ({encoding!r:.40}), which was not asked for"
        )


def _without_encoding(response: httpx2.Response) -> httpx2.Headers:
    headers = response.headers.copy()
    headers.pop("Content-Encoding", None)
    return headers


class _Transport(httpx2.BaseTransport):
    """Connects to addresses that were checked, through the proxy of the environment if there is one."""

    def __init__(self, access: Access, abort: Abort) -> None:
        self._access = access
        self._abort = abort
        self._ways: dict[str, httpx2.HTTPTransport] = {}  # by the proxy's address; empty: none

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
            addresses = []  # the proxy knows names that this machine does not
        way = self._way(proxy)
        if proxy or not addresses:
            return self._send(way, request, request.url)
        for address in addresses[:-1]:
            with contextlib.suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return self._send(way, request, request.url.copy_with(host=address))
        return self._send(way, request, request.url.copy_with(host=addresses[-1]))

    def _send(self, way: httpx2.HTTPTransport, request: httpx2.Request, url: httpx2.URL) -> httpx2.Response:
        """``url`` is the request's, with an address as its host; the certificate is still the name's."""
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
            # A connection serves one request: those of two names at one address have two certificates.
            limits = httpx2.Limits(max_keepalive_connections=0)
            self._ways[proxy] = httpx2.HTTPTransport(_certificates(), proxy=proxy or None, limits=limits)
        return self._ways[proxy]

    def close(self) -> None:
        for way in self._ways.values():
            way.close()


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Those that this machine trusts, or ``$SSL_CERT_FILE``'s; they take a while to read."""
    return httpx2.create_ssl_context()


def _proxy_of(url: httpx2.URL) -> str:
    """The proxy that the environment names for an address; empty if none."""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(url.host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
