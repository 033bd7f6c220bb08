"""Bodies and headers that clients should not send: an answer below 500, in one shape, and the server goes on."""

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest

from pumice_server import limits
from server_thread import connect, exchange, running
from waiting import PATIENCE, at_best, slowness, wait_until

CHAT = "/v1/chat/completions"
GOOD = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}
LONG = "word " * 2000


def error_of(response) -> dict:
    error = response.json()["error"]
    assert error["message"]
    assert error["code"] == response.status_code
    return error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "the body must be an object, not []"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"messages": "x"}', "messages must be a list"),
        (b'\xef\xbb\xbf{"messages": "x"}', "messages must be a list"),  # a byte order mark is no part of JSON
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "not valid JSON"),
        (b'{"temperature": NaN, "messages": []}', "not valid JSON"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "levels of brackets"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "not valid JSON"),
        (json.dumps({**GOOD, "n": True}).encode(), "n must be an integer, not true"),
        (json.dumps({**GOOD, "stop": [None]}).encode(), "stop[0] must be text, not null"),
        (json.dumps({**GOOD, "stop": [[None, {"a": False}]]}).encode(), "not [null, {'a': false}]"),
        (json.dumps({"messages": [{"role": True, "content": "a"}]}).encode(), "not true"),
        (json.dumps({**GOOD, "response_format": {"type": [None]}}).encode(), "not [null]"),
        (json.dumps({**GOOD, "tools": [5]}).encode(), "tools"),
        (json.dumps({**GOOD, "json_schema": False}).encode(), "schema"),
        (json.dumps({**GOOD, "json_schema": {"type": "hiccup"}}).encode(), "Invalid type: hiccup"),
    ],
)
def test_hostile_bodies(server, body, message):
    response = server.client.post(CHAT, content=body)
    assert response.status_code == 400
    assert message in error_of(response)["message"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/responses", {"input": LONG}),
        ("/v1/messages", {"messages": [{"role": "user", "content": LONG}], "max_tokens": 9}),
        ("/api/chat", {"messages": [{"role": "user", "content": LONG}]}),
        ("/api/generate", {"prompt": LONG, "raw": True}),
        ("/completion", {"prompt": LONG}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_never_cut(server, path, told, stream):
    response = server.client.post(path, json={**told, "stream": stream})
    assert response.status_code == 400
    assert re.search(r"the prompt has \d{4,} tokens, n_ctx is 512", response.text)
    assert "exceeds the available context size" in response.text  # which coding agents look for
    assert ("prompt is too long: " in response.text) == (path == "/v1/messages")
    assert ('"n_ctx":512' in response.text) == (path in (CHAT, "/v1/responses", "/completion"))


@pytest.fixture
def listener() -> Iterator[tuple[str, list[object]]]:
    """An address on this machine, and who came."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)

        def accept() -> None:
            with contextlib.suppress(OSError):
                came.append(listening.accept()[1])

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/latest/meta-data", came


def with_address(url: str) -> list[tuple[str, dict]]:
    """Requests that name an address, in every way that protocols have."""
    user = {"role": "user"}
    theirs = {"type": "image", "source": {"type": "url", "url": url}}
    item = {"type": "message", **user}
    return [
        (CHAT, {"messages": [{**user, "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
        (CHAT, {"messages": [{**user, "content": [{"type": "image_url", "image_url": url}]}]}),
        (CHAT, {"messages": [{**user, "content": [{"type": "input_audio", "input_audio": {"url": url}}]}]}),
        ("/v1/messages", {"messages": [{**user, "content": [theirs]}]}),
        ("/v1/messages", {"messages": [{**user, "content": [{**theirs, "type": "document"}]}]}),
        ("/v1/responses", {"input": [{**item, "content": [{"type": "input_image", "image_url": url}]}]}),
        ("/v1/responses", {"input": [{**item, "content": [{"type": "input_file", "file_url": url}]}]}),
        ("/api/chat", {"messages": [{**user, "content": "x", "images": [url]}]}),
        ("/api/generate", {"prompt": "x", "images": [url]}),
        (CHAT, {**GOOD, "json_schema": {"$ref": url}}),
        ("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": [url]}}),
        ("/completion", {"prompt": "x", "image_data": [{"data": url, "id": 1}]}),
        ("/embedding", {"content": {"prompt_string": "x", "multimodal_data": [url]}}),
    ]


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_addresses_are_never_asked(server, listener, scheme):
    url, came = listener
    for path, body in with_address(url if scheme == "http" else "file:///etc/passwd"):
        response = server.client.post(path, json={"max_tokens": 2, **body})
        assert response.status_code == 400, (path, body, response.text)
        assert "root:" not in response.text
    assert came == []


def test_forms_that_take_for_ever_hold_nobody_up(server):
    """They are refused or cost little; others are answered meanwhile."""
    repeated = "(((a{1,1000}){1,1000}){1,1000}){1,1000}"
    forms = [
        {"structured_outputs": {"regex": repeated}},
        {"structured_outputs": {"regex": "|".join(f"x{i}.*y" for i in range(2000))}},
        {"grammar": 'root ::= ("a"{0,1000}){0,1000}'},
        {"grammar": f'root ::= {"(" * 60_000}"a"{")" * 60_000}'},
        {"json_schema": {"type": "string", "pattern": repeated}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"pattern": repeated}}}]},
    ]
    for form in forms:

        def seconds(form=form) -> float:
            answer, slowest = beside(server, CHAT, {**GOOD, **form}, "/livez")
            assert answer.status_code in (200, 400), answer.text
            return max(slowest, 0.1 * answer.elapsed.total_seconds()) / slowness()

        assert at_best(seconds, 3.0) < 3.0, form


def test_unknown_paths_and_methods(server):
    absent = error_of(server.client.get("/nowhere"))
    assert (absent["type"], absent["message"]) == ("not_found_error", "there is no endpoint '/nowhere'")
    assert error_of(server.client.get(CHAT))["message"] == f"{CHAT} does not support GET"


PART = b" " * (1 << 20)
CHUNKED = "Transfer-Encoding: chunked\r\n"
LEFT = 12 << 20  # bytes that no buffers of the system hold


@pytest.fixture(scope="module")
def narrow(model):
    with running(model, max_body=1000) as server:
        yield server


def test_a_body_that_is_too_large(narrow):
    for body in (b" " * 1001, (b" " * 100 for _ in range(11))):
        response = narrow.client.post(CHAT, content=body)
        assert (response.status_code, error_of(response)["message"]) == (413, "the body has more than 1000 bytes")
    assert narrow.client.post(CHAT, json=GOOD).status_code == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LEFT}\r\n", 413),
        (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LEFT}\r\nConnection: close\r\n", 413),
        (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n{CHUNKED}\r\n{LEFT:x}\r\n", 413),
        (f"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n{CHUNKED}Connection: close\r\n\r\n{LEFT:x}\r\n", 404),
        ("NO REQUEST\r\n", 400),
    ],
)
def test_clients_that_send_too_much_read_the_answer(narrow, head, status):
    """All of it is sent before the answer is read, which a reset of the connection would take away."""
    with connect(narrow.url) as connection:
        connection.sendall(f"{head}\r\n".encode())
        for _ in range(LEFT // len(PART)):
            connection.sendall(PART)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer


def test_a_body_of_broken_chunks_has_one_answer(server, caplog):
    """Its request has begun when the chunk comes, and must not answer, too."""
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = exchange(server.url, head.encode() + b"1\r\n{\r\nzz\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+) ", answers) == [b"400"]
    assert server.client.get("/health").status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def beside(server, path, body, other):
    """The answer to a request, and the seconds of the slowest of those for another path meanwhile."""
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(httpx2.post(server.url + path, json=body, timeout=PATIENCE))
    )
    thread.start()
    slowest = 0.0
    while thread.is_alive():
        started = time.perf_counter()
        server.client.get(other)
        slowest = max(slowest, time.perf_counter() - started)
    return answers[0], slowest


@pytest.mark.parametrize(
    ("path", "body", "other", "status", "limit"),
    [
        ("/detokenize", {"tokens": [500] * (1 << 20)}, "/livez", 200, 0.3),
        ("/tokenize", {"content": "word and " * 200_000, "with_pieces": True}, "/livez", 200, 0.3),
        (CHAT, {"messages": [{"role": "user", "content": "word and " * 300_000}]}, "/", 400, 0.5),
    ],
)
def test_long_texts_hold_nobody_up(server, path, body, other, status, limit):
    """The slowest of the requests beside one takes a part of its time at best."""

    def share() -> float:
        answer, slowest = beside(server, path, body, other)
        assert answer.status_code == status
        return slowest / answer.elapsed.total_seconds()

    assert at_best(share, limit) < limit


def test_a_full_queue(model):
    """Too many at once are told to come again, and the others are served."""
    long = {"prompt": ["Once"] * 64, "max_tokens": 400, "ignore_eos": True}
    with running(model) as server:
        response = server.client.post("/v1/completions", json=long)
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "1"
        assert error_of(response)["type"] == "rate_limit_error"
        wait_until(lambda: server.client.post("/v1/completions", json={"prompt": "Once"}).status_code == 200)


def send_without_end(connection: socket.socket) -> None:
    for _ in range(1000):
        connection.sendall(b"100000\r\n" + PART + b"\r\n")


@pytest.mark.parametrize("keeps", ["close", "keep-alive"])
def test_discarded_bytes_are_bounded(narrow, monkeypatch, keeps):
    monkeypatch.setattr(limits, "MAX_DRAINED", len(PART))
    head = f"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n{CHUNKED}Connection: {keeps}\r\n\r\n"
    with connect(narrow.url) as connection:
        connection.sendall(head.encode())
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_without_end(connection)
