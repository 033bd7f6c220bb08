"""Which hosts a download reaches: every hop of a redirect, by the address that was checked."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import httpx2
import pytest

from pumice import HubError
from pumice.hub import client
from pumice.hub.abort import Abort
from pumice.hub.client import AllowedHosts, HubClient, origin_of

MIRROR = "http://mirror.local:8000"


def ask(url, public_only=True, mirror=MIRROR, **options):
    with HubClient(AllowedHosts(frozenset({origin_of(mirror)}), public_only), Abort()) as asking:
        return asking.ask("GET", url, **options)


def test_the_connection_goes_to_the_address_that_was_checked(wire):
    assert ask("https://good.example/x").content == b"ok"
    assert wire.seen == [("1.1.1.1", "good.example", "good.example", None)]
    assert wire.asked == ["good.example"], "a second answer of the name server would count for nothing"


@pytest.mark.parametrize(
    "url",
    [
        *("https://inner.example/x", "https://mixed.example/x", "https://169.254.169.254/latest/meta-data"),
        *("https://2130706433/x", "https://localhost./x", "https://good.example:8443/x", "http://good.example/x"),
        *("http://mirror.local:8001/x", "https://mirror.local:8000/x", "ftp://good.example/x", "file:///etc/passwd"),
        *("https://user@inner.example/x", "https://good.example@inner.example/x"),
    ],
)
def test_a_host_that_clients_may_not_name_is_not_connected_to(wire, url):
    for way in (url, "https://good.example/start"):
        wire.seen.clear()
        wire.answers = {"https://good.example/start": url}
        with contextlib.suppress(HubError, httpx2.HTTPError):
            assert ask(way).status_code == 302, "what is no address is not followed"
        assert [host for host, *_ in wire.seen] == ["1.1.1.1"] * (way != url)


def test_the_mirror_of_the_operator_may_be_anywhere(wire):
    wire.answers = {f"{MIRROR}/x": "https://good.example/x", f"{MIRROR}/y": "https://inner.example/y"}
    headers = {"Authorization": "Bearer secret"}
    assert ask(f"{MIRROR}/x", headers=headers).content == b"ok"
    assert wire.seen == [
        ("mirror.local", None, "mirror.local:8000", "Bearer secret"),
        ("1.1.1.1", "good.example", "good.example", None),
    ]
    with pytest.raises(HubError, match="public addresses only"):
        ask(f"{MIRROR}/y")


def test_redirects_end(wire):
    wire.answers = {"https://good.example/x": "https://good.example/x"}
    with pytest.raises(HubError, match="more than 10 redirects"):
        ask("https://good.example/x")


def test_behind_a_proxy_names_are_checked_where_they_are_known(wire, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.local:3128")
    assert ask("https://good.example/x").content == b"ok"
    assert ask("https://unknown.example/x").content == b"ok"
    assert [host for host, *_ in wire.seen] == ["good.example", "unknown.example"]
    with pytest.raises(HubError, match="public addresses only"):
        ask("https://inner.example/x")
    monkeypatch.setenv("NO_PROXY", "unknown.example")
    with pytest.raises(httpx2.ConnectError):
        ask("https://unknown.example/x")


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """A server with a certificate for good.test, and whatever name at its address."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    key, certificate = (str(tmp_path / name) for name in ("key.pem", "certificate.pem"))
    about = ["-days", "2", "-subj", "/CN=good.test", "-addext", "subjectAltName=DNS:good.test"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *about, "-keyout", key, "-out", certificate]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(client, "_PORTS", {"https": port})
        monkeypatch.setattr(client, "resolve_public", lambda host, port: ["127.0.0.1"])
        monkeypatch.setattr(client, "_certificates", lambda: ssl.create_default_context(cafile=certificate))
        monkeypatch.setenv("NO_PROXY", "*")

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listening.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                        stall = b"/stall" in connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + b"ok" * (not stall))
                        connection.recv(1)

        threading.Thread(target=accept, daemon=True).start()
        yield port
        listening.shutdown(socket.SHUT_RDWR)


def test_the_certificate_is_that_of_the_name(secure):
    assert ask(f"https://good.test:{secure}/x").content == b"ok"
    with pytest.raises(httpx2.ConnectError, match=r"not valid for 'evil\.test'"):
        ask(f"https://evil.test:{secure}/x")


def test_a_silent_server_is_left_when_the_download_is_aborted(secure):
    abort = Abort()
    timer = threading.Timer(0.3, abort.abort)
    timer.start()
    started = time.monotonic()
    with HubClient(AllowedHosts(public_only=True), abort) as asking, pytest.raises((HubError, httpx2.TransportError)):
        asking.ask("GET", f"https://good.test:{secure}/stall")
    assert time.monotonic() - started < client._SILENT_SECONDS


def test_http_to_elsewhere_is_refused_for_the_operator_too(wire):
    wire.answers = {"https://good.example/x": "http://other.example/x"}
    with pytest.raises(HubError, match="anybody on the way"):
        ask("https://good.example/x", public_only=False, mirror="https://huggingface.co")
