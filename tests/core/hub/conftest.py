"""Answers instead of a network, for clients that check which hosts they connect to."""

from collections.abc import Callable

import httpx2
import pytest

from pumice.hub.client import _Transport

NAMES = {
    "good.example": ["1.1.1.1"],
    "images.example": ["1.1.1.1"],
    "other.example": ["2606:4700::1111", "8.8.8.8"],
    "inner.example": ["10.0.0.1"],
    "mixed.example": ["1.1.1.1", "127.0.0.1"],
    "169.254.169.254": ["169.254.169.254"],
    "2130706433": ["127.0.0.1"],
    "localhost.": ["127.0.0.1"],
    "127.0.0.1": ["127.0.0.1"],
    "::1": ["::1"],
}
"""The addresses of the names that are known."""


class Wire(httpx2.BaseTransport):
    """Answers requests by their addresses.

    Attributes:
        seen: Host of the connection, name of the certificate, Host header and token of each request.
        asked: Names that were resolved.
        answers: By address: a place to redirect to, the bytes of a file, or a function that makes a response.
        file: The answer at every other address.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.asked: list[str] = []
        self.answers: dict[str, str | bytes | Callable[[], httpx2.Response]] = {}
        self.file = b"ok"

    def handle_request(self, request):
        name, headers = request.extensions.get("sni_hostname"), request.headers
        self.seen.append((request.url.host, name, headers["Host"], headers.get("Authorization")))
        answer = self.answers.get(f"{request.url.scheme}://{headers['Host']}{request.url.path}", self.file)
        if isinstance(answer, str):
            return httpx2.Response(302, headers={"Location": answer})
        return httpx2.Response(200, content=iter([answer])) if isinstance(answer, bytes) else answer()

    def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in NAMES:
            raise OSError(f"{host}: unknown")
        return NAMES[host]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    monkeypatch.setattr(_Transport, "_way", lambda self, proxy: wire)
    monkeypatch.setattr("pumice.hub.addresses.resolve", wire.resolve)
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return wire
