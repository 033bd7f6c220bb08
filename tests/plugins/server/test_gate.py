"""Access to the server: hosts, pages, keys."""

import click
import pytest

from pumice_server.settings import Settings
from server_thread import exchange, running

COMPLETE = {"prompt": "Once", "max_tokens": 2}
KEYS = ["first-key", "sécond"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:1", "LOCALHOST"])
def test_hosts_that_are_this_machine(server, host):
    assert server.client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[", "", "127.[::1]", "x@localhost"]
)
def test_other_hosts_are_refused(server, host):
    response = server.client.get("/v1/models", headers={"Host": host})
    assert response.status_code in (400, 403)


@pytest.mark.parametrize("host", ["box.local/health?", "box.local/#", "x/static/?a=", "box.local/livez?:80"])
def test_a_host_that_spells_a_path_opens_none(model, host):
    """A URL rebuilt from the Host header has another path than the one that routes the request."""
    with running(model, keys=["secret"], host="0.0.0.0") as server:
        for path in ("/v1/models", "/nothing", "/v1/messages"):
            refused = server.client.get(path, headers={"Host": host})
            assert refused.status_code in (400, 401, 403), path
        known = {"Host": host, "Authorization": "Bearer secret"}
        answers = {path: server.client.get(path, headers=known) for path in ("/api/nothing", "/v1/messages")}
        assert [isinstance(answers["/api/nothing"].json()["error"], str), answers["/v1/messages"].json()["type"]] == [
            True,
            "error",
        ], "errors have the form of the path that was asked for"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://[", "://", "a" * 9999]
)
def test_pages_of_others_are_refused(server, origin):
    response = server.client.post("/v1/completions", json=COMPLETE, headers={"Origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_pages_of_this_server_may_ask(server):
    assert server.client.post("/v1/completions", json=COMPLETE, headers={"Origin": server.url}).status_code == 200


def test_a_page_that_is_named_may_ask(model):
    page = "https://page.example"
    with running(model, origins=[page]) as server:
        asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
        assert server.client.options("/v1/completions", headers=asked).headers["access-control-allow-origin"] == page
        answer = server.client.post("/v1/completions", json=COMPLETE, headers={"Origin": page})
        assert answer.headers["access-control-allow-origin"] == page
        assert "access-control-allow-credentials" not in answer.headers
        assert server.client.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_others_embed_nothing(server, site):
    """Images, scripts and forms of others name no origin; a link to the page is followed."""
    told = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    for path in ("/props", "/v1/models", "/", "/health"):
        assert server.client.get(path, headers=told).status_code == 403
    link = {**told, "Sec-Fetch-Mode": "navigate"}
    assert server.client.get("/", headers=link).status_code == 200
    assert server.client.get("/props", headers=link).status_code == 403
    assert server.client.get("/props", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_body_of_two_lengths_ends_the_connection(server):
    head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange(server.url, f"{head}0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/livez", b"200"),
        ("HTTP://localhost:8080/tokenize?x=http://elsewhere/", b"405"),
        ("http://localhost?x", b"200"),
        ("http://elsewhere/livez", b"403"),
        ("http://localhost@elsewhere/livez", b"403"),
        ("http://elsewhere@localhost/livez", b"403"),
        ("http:///livez", b"404"),
    ],
)
def test_a_url_as_target_counts_as_host_and_path(server, target, status):
    """As RFC 9112 has it, instead of the Host header."""
    other = "localhost" if "elsewhere" in target else "elsewhere" if "localhost" in target else "localhost"
    answer = exchange(server.url, f"GET {target} HTTP/1.1\r\nHost: {other}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 %b " % status)


def test_keys(model):
    with running(model, keys=KEYS) as server:
        get = server.client.get
        assert get("/health").status_code == 200
        assert get("/v1/models").status_code == 401
        assert get("/v1/models").json()["error"]["type"] == "authentication_error"
        assert get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert get("/v1/models", headers={"Authorization": "Basic first-key"}).status_code == 401
        assert get("/v1/models", headers={"Authorization": "Bearer first-key"}).status_code == 200
        assert get("/v1/models", headers={"X-Api-Key": "first-key"}).status_code == 200


def test_keys_do_not_share_what_is_cached(model):
    with running(model, keys=[KEYS[0], "third"]) as server:
        body = {"prompt": "Tom and his sister went to the lake. " * 12, "max_tokens": 1}

        def cached(key: str) -> int:
            answer = server.client.post("/v1/completions", json=body, headers={"X-Api-Key": key}).json()
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert cached("first-key") == 0
        assert cached("first-key") > 0
        assert cached("third") == 0


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("box", False)])
def test_addresses_that_others_can_reach(host, loopback):
    settings = Settings(host=host)
    assert settings.is_loopback is loopback
    if loopback:
        settings.check(insecure=False)
    else:
        with pytest.raises(click.UsageError, match="set --api-key or --api-key-file, or allow it by --insecure"):
            settings.check(insecure=False)
        settings.check(insecure=True)
        Settings(host=host, keys=["k"]).check(insecure=False)
