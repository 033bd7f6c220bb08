"""Images at addresses that clients name: only listed hosts, and what an attacker may try there."""

import threading

import httpx2
import pytest

from pumice import RequestError
from pumice.hub import MediaFetch, media, media_host
from pumice.hub.client import _Transport

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
START = "https://images.example/a.png"
NAMES = {
    "images.example": ["1.1.1.1"],
    "other.example": ["8.8.8.8"],
    "inner.example": ["10.0.0.1"],
    "mixed.example": ["1.1.1.1", "127.0.0.1"],
}
HOSTS = ["images.example", "inner.example", "mixed.example", "127.0.0.1", "::1"]


class Wire(httpx2.BaseTransport):
    """Answers instead of a network."""

    def __init__(self):
        self.seen = []
        self.answers = {}

    def handle_request(self, request):
        address = f"{request.url.scheme}://{request.headers['Host']}{request.url.path}"
        self.seen.append((request.url.host, address, request.headers.get("Authorization")))
        answer = self.answers.get(address, PNG)
        if callable(answer):
            answer = answer()
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, content=iter([answer]))


@pytest.fixture
def wire(monkeypatch):
    wire = Wire()
    monkeypatch.setattr(_Transport, "_way", lambda self, proxy: wire)
    monkeypatch.setattr("pumice.hub.addresses.resolve", lambda host, port: NAMES.get(host, [host]))
    monkeypatch.setenv("HF_TOKEN", "secret")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return wire


def fetch(*urls, most=1 << 20):
    return MediaFetch(HOSTS, most).run(urls)


def redirect(to):
    return httpx2.Response(302, headers={"Location": to})


def test_a_listed_host_is_asked_once_for_each_address(wire):
    wire.answers["https://images.example/b.png"] = b"b"
    files = fetch(START, "https://images.example/b.png", START)
    assert files == {START: PNG, "https://images.example/b.png": b"b"}
    assert [(host, token) for host, _, token in wire.seen] == [("1.1.1.1", None)] * 2


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/a.png",
        "https://images.example.other.example/a.png",
        "https://inner.example/a.png",
        "https://mixed.example/a.png",
        "https://127.0.0.1/a.png",
        "https://[::1]/a.png",
        "https://2130706433/a.png",
        "https://images.example:8443/a.png",
        "https://images.example@other.example/a.png",
        "https://user:word@images.example/a.png",
        "http://images.example/a.png",
        "https://",
        "https://[/",
        "https://images.example/\n.png",
    ],
)
def test_an_address_that_is_not_allowed_is_not_connected_to(wire, url):
    with pytest.raises(RequestError) as error:
        fetch(url)
    assert "\n" not in str(error.value)
    assert "10.0.0.1" not in str(error.value), "what names resolve to is for the log"
    assert wire.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/a.png",
        "https://inner.example/a.png",
        "http://images.example/a.png",
        "https://images.example:22/a.png",
        "file:///etc/passwd",
        "https://169.254.169.254/latest/meta-data",
    ],
)
def test_a_redirect_is_another_address(wire, url):
    wire.answers[START] = redirect(url)
    with pytest.raises(RequestError, match="cannot be fetched"):
        fetch(START)
    assert [host for host, *_ in wire.seen] == ["1.1.1.1"]


def test_large_compressed_and_failed_responses_are_refused(wire):
    endless = iter(lambda: bytes(1 << 16), None)
    wire.answers[START] = lambda: httpx2.Response(200, content=endless, headers={"Content-Length": "10"})
    with pytest.raises(RequestError, match="1 MiB together"):
        fetch(START)
    wire.answers[START] = bytes(600 << 10)
    wire.answers["https://images.example/b.png"] = bytes(600 << 10)
    with pytest.raises(RequestError, match="1 MiB together"):
        fetch(START, "https://images.example/b.png")
    for answer in (
        httpx2.Response(200, content=iter([b"x"]), headers={"Content-Encoding": "gzip"}),
        httpx2.Response(404, content=iter([b"internal text"])),
    ):
        wire.answers[START] = answer
        with pytest.raises(RequestError, match="cannot be fetched") as error:
            fetch(START)
        assert "internal" not in str(error.value)


def test_a_host_that_sends_slowly_is_left(wire, monkeypatch):
    monkeypatch.setattr(media, "SECONDS", 0.05)
    more = threading.Event()

    def trickle():
        while not more.wait(0.01):
            yield b"x"

    wire.answers[START] = lambda: httpx2.Response(200, content=trickle())
    with pytest.raises(RequestError, match="cannot be fetched"):
        fetch(START)
    more.set()


@pytest.mark.parametrize(
    "text", ["", "*", "*.example", "https://a.example", "a.example/x", "a.example:443", "u@a", "["]
)
def test_invalid_host_names(text):
    with pytest.raises(ValueError, match="expected the name of a host"):
        media_host(text)
