"""Images at addresses that clients name: only listed hosts, and what an attacker may try there."""

import threading

import httpx2
import pytest

from pumice import RequestError
from pumice.hub import MediaFetch, media, media_host

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
START = "https://images.example/a.png"
HOSTS = ["images.example", "inner.example", "mixed.example", "127.0.0.1", "::1"]


@pytest.fixture(autouse=True)
def files(wire, monkeypatch):
    wire.file = PNG
    monkeypatch.setenv("HF_TOKEN", "secret")


def fetch(*urls, most=1 << 20):
    return MediaFetch(HOSTS, most).run(urls)


def test_a_listed_host_is_asked_once_for_each_address(wire):
    wire.answers["https://images.example/b.png"] = b"b"
    files = fetch(START, "https://images.example/b.png", START)
    assert files == {START: PNG, "https://images.example/b.png": b"b"}
    assert [(host, token) for host, *_, token in wire.seen] == [("1.1.1.1", None)] * 2


@pytest.mark.parametrize(
    "url",
    [
        *("https://other.example/a.png", "https://images.example.other.example/a.png"),
        *("https://inner.example/a.png", "https://mixed.example/a.png", "https://127.0.0.1/a.png"),
        *("https://[::1]/a.png", "https://2130706433/a.png", "https://images.example:8443/a.png"),
        *("https://images.example@other.example/a.png", "https://user:word@images.example/a.png"),
        *("http://images.example/a.png", "https://", "https://[/", "https://images.example/\n.png"),
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
        *("https://other.example/a.png", "https://inner.example/a.png", "http://images.example/a.png"),
        *("https://images.example:22/a.png", "file:///etc/passwd", "https://169.254.169.254/latest/meta-data"),
    ],
)
def test_a_redirect_is_another_address(wire, url):
    wire.answers[START] = url
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
        wire.answers[START] = lambda answer=answer: answer
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


@pytest.mark.parametrize("text", ["", "*", "*.example", "https://a.example", "a.example/x", "a.example:443", "u@a"])
def test_invalid_host_names(text):
    with pytest.raises(ValueError, match="expected the name of a host"):
        media_host(text)
