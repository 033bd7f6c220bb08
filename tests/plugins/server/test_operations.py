"""Traces and metrics for operators, and slow clients that are dropped."""

import json
import time

import pytest

import pumice
from pumice_server import limits
from pumice_server.http import tracing
from pumice_server.pools import ARRIVING
from server_thread import connect, exchange, running
from waiting import wait_until


@pytest.mark.parametrize("error", [pumice.EngineDiedError("it was killed"), TimeoutError()])
def test_metrics_without_an_engine_that_does_not_answer(server, monkeypatch, error):
    server.client.post("/completion", json={"prompt": "Once", "n_predict": 3})

    async def failing(timeout: float):
        raise error

    gauge, counter = "\npumice_engine_slots{", "\npumice_generated_tokens_total{"
    assert gauge in server.client.get("/metrics").text
    with monkeypatch.context() as dying:
        dying.setattr(server.application.state.models.served_models[0].service, "snapshot", failing)
        answer = server.client.get("/metrics")
    assert answer.status_code == 200
    assert gauge not in answer.text
    assert counter in answer.text
    assert gauge in server.client.get("/metrics").text


def test_metrics_by_llama_servers_names(server):
    server.client.post("/completion", json={"prompt": "Once", "n_predict": 3})

    def lines() -> list[str]:
        return server.client.get("/metrics?names=llamacpp").text.splitlines()

    assert "# TYPE llamacpp:tokens_predicted_total counter" in lines()
    wait_until(lambda: "llamacpp:requests_processing 0" in lines())  # others may have left their answers
    values = dict(line.split() for line in lines() if not line.startswith("#"))
    assert float(values["llamacpp:tokens_predicted_total"]) >= 3


def test_a_span_is_part_of_the_clients_trace(model, monkeypatch):
    trace = pytest.importorskip("opentelemetry.trace")
    propagate = pytest.importorskip("opentelemetry.propagate")
    seen = []

    class Span(trace.NonRecordingSpan):
        def set_attributes(self, attributes):
            seen.append(attributes)

    class Tracer(trace.NoOpTracer):
        def start_as_current_span(self, name, context=None, kind=None, attributes=None, **_):
            seen.append((name, trace.get_current_span(context).get_span_context().trace_id))
            return trace.use_span(Span(trace.INVALID_SPAN_CONTEXT))

    class Api:
        SpanKind = trace.SpanKind

        @staticmethod
        def get_tracer(name):
            return Tracer()

    monkeypatch.setattr(tracing, "_api", lambda: (Api, propagate))
    with running(model) as server:
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        body = {"prompt": "Once", "max_tokens": 2}
        server.client.post("/v1/completions", json=body, headers={"traceparent": parent})
    assert seen[0] == ("POST /v1/completions", 0x0AF7651916CD43DD8448EB211C80319C)
    assert seen[1]["gen_ai.usage.output_tokens"] == 2
    assert seen[1]["http.response.status_code"] == 200


@pytest.fixture
def slow(monkeypatch, model):
    """A server that waits for headers for a moment only."""
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.3)
    with running(model) as server:
        yield server


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_headers_that_do_not_come(slow, sent):
    started = time.monotonic()
    assert exchange(slow.url, sent) == b""
    assert time.monotonic() - started > 0.2


def test_a_body_that_does_not_come(server, monkeypatch):
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.3)
    with connect(server.url) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b'd\r\n{"content": "\r\n'
TOO_SMALL = b"the body has 1029 chunks of 1 bytes; send larger ones"


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (CHUNKED + b"1\r\n \r\n" * 10_000, b"400", TOO_SMALL),
        (CHUNKED + CHUNK + b"1\r\na\r\n" * 1000 + b'2\r\n"}\r\n0\r\n\r\n', b"200", b'{"tokens":['),
        (CHUNKED + CHUNK + b"100\r\n%b\r\n" % (b"a" * 256) * 4000 + b'2\r\n"}\r\n0\r\n\r\n', b"200", b'"tokens":['),
        (HEAD + b"a: b\r\n" * 40_000 + b"\r\n", b"400", b""),
        (HEAD + b"X: " + b"a" * 66_000 + b"\r\n\r\n", b"400", b"the headers have "),
        (b"A" * 66_000 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400", b"the headers have "),
    ],
    ids=["small chunks", "some small chunks", "chunks", "many headers", "a long header", "a long method"],
)
def test_requests_that_take_much_time_to_read(server, sent, status, told):
    """Chunks of a byte take seconds of the event loop for each megabyte."""
    answer = exchange(server.url, sent)
    assert answer.startswith(b"HTTP/1.1 %b " % status)
    assert told in answer


def test_bodies_that_do_not_end_take_little_memory_together(server, monkeypatch):
    """Large ones get 503 while others arrive, small ones are answered; when those leave there is room again."""
    monkeypatch.setattr(ARRIVING, "n_places", 2 << 20)  # of which one client has half
    body = json.dumps({"content": "a" * (300 << 10)}).encode()
    with connect(server.url) as connection:
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"
        connection.sendall(head + bytes(900 << 10))
        # Before another comes, whose bytes could have this one refused.
        wait_until(lambda: ARRIVING.n_held == 900 << 10)
        refused = server.client.post("/tokenize", content=body)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert server.client.post("/tokenize", json={"content": "a"}).status_code == 200
    wait_until(lambda: server.client.post("/tokenize", content=body).status_code == 200)
