"""Headers and paths: Host and Origin checks, keys, ranges; nothing passes that a naive reader refuses."""

from collections.abc import Iterable
from functools import cache

from fuzz.draw import Draw
from fuzz.served import Application, Headers, tiny_application

MODULES = (
    "pumice_server.http.gate",
    "pumice_server.keys",
    "pumice_server.endpoints.static",
    "pumice_server.http.rates",
)
MAX_LEN = 300
_KEY = "sk-right"
_NAMES = (
    b"host", b"origin", b"authorization", b"x-api-key", b"range", b"if-none-match", b"if-modified-since",
    b"content-type", b"content-length", b"transfer-encoding", b"accept-encoding", b"sec-fetch-site", b"sec-fetch-mode",
    b"x-request-id", b"cookie", b"if-range", b"traceparent", b"accept",
)  # fmt: skip
_PATHS = (
    "/",
    "/static/main.js",
    "/static/../gate.py",
    "/health",
    "/v1/models",
    "/v1/models/a/b",
    "/props",
    "/metrics",
    "/tokenize",
)
TOKENS = (
    b"127.0.0.1", b"localhost:8080", b"[::1]", b"evil.example", b"http://", b"https://127.0.0.1", b"null", b"Bearer ",
    _KEY.encode(), b"bytes=0-", b"bytes=-5", b"bytes=5-1,7-", b"cross-site", b"same-origin", b"navigate", b"\xff",
    b"..", b"%2e%2e%2f", b"\0", b"application/json; charset=x", b"chunked", b"W/\"", b"*",
    b"Mon, 01 Jan 2024 00:00:00 GMT",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    yield _input(4, 0, b"", [(0, b"127.0.0.1"), (2, f"Bearer {_KEY}".encode())])
    yield _input(4, 0, b"", [(0, b"localhost:8080"), (3, _KEY.encode()), (1, b"http://localhost:8080")])
    yield _input(0, 0, b"", [(0, b"127.0.0.1"), (11, b"cross-site"), (12, b"navigate")])
    yield _input(1, 0, b"", [(0, b"127.0.0.1"), (4, b"bytes=0-10"), (5, b'"x"'), (10, b"gzip")])
    yield _input(8, 1, b'{"content": "a"}', [(0, b"127.0.0.1"), (7, b"text/plain"), (2, b"bearer " + _KEY.encode())])
    yield _input(2, 0, b"", [(0, b"evil.example"), (1, b"null")])


def _input(path: int, method: int, body: bytes, headers: list[tuple[int, bytes]]) -> bytes:
    listed = b"".join(bytes([name, len(value)]) + value for name, value in headers)
    return bytes([path, method, len(headers)]) + listed + body


@cache
def _application() -> Application:
    return Application(tiny_application(keys=(_KEY,)))


def check(data: bytes) -> None:
    draw = Draw(data)
    path, method = draw.choice(_PATHS), draw.choice(("GET", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "x"))
    headers: Headers = [(draw.choice(_NAMES), draw.bytes(draw.below(40))) for _ in range(draw.below(6))]
    if draw.flag():
        path = "/" + draw.text(20)
    answer = _application()(method, path, draw.rest(), headers)
    assert answer.status < 500 or answer.status == 501, (path, headers, answer)
    if answer.status < 300:
        _check_may_pass(path, headers)
    if b"gate.py" in data:
        assert b"class Gate" not in answer.body


def _check_may_pass(path: str, headers: Headers) -> None:
    values: dict[bytes, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value.decode("latin-1"))
    host = values.get(b"host", [""])[0].lower()
    assert host.startswith(("127.0.0.1", "localhost", "[::1]")), headers
    origin = values.get(b"origin", [""])[0].lower()
    assert not origin or origin.endswith(host), headers
    if path not in ("/", "/health", "/static/main.js") and not path.startswith("/static/"):
        keys = values.get(b"authorization", []) + values.get(b"x-api-key", [])
        assert any(_KEY in key for key in keys) or path in ("/v1/health", "/livez", "/readyz"), (path, headers)
