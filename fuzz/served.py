"""ASGI applications called without a socket, and the server's application with a tiny model."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette

import pumice
from gguf_files import tiny_llama
from pumice_server.application import make_application
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings

N_CTX = 64
NAMES = ["tiny", "other"]

Headers = Sequence[tuple[bytes, bytes]]
JSON = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


class Answer(NamedTuple):
    """A raw response."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Application:
    """An application that serves requests sequentially."""

    def __init__(self, application: Starlette) -> None:
        self._loop = asyncio.new_event_loop()
        self.application = application

    def __call__(
        self, method: str, path: str, body: bytes = b"", headers: Headers = JSON, query: bytes = b""
    ) -> Answer:
        """Send a request and return the response. Exceptions of the application propagate."""
        return self._loop.run_until_complete(asyncio.wait_for(self._answer(method, path, body, headers, query), 60))

    async def _answer(self, method: str, path: str, body: bytes, headers: Headers, query: bytes) -> Answer:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(errors="surrogateescape"), "query_string": query, "root_path": "",
            "headers": list(headers), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
            "app": self.application,
        }  # fmt: skip
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []
        ended = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        try:
            await self.application(scope, receive, send)
        finally:
            ended.set()
        start = next(message for message in sent if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
        return Answer(start["status"], start["headers"], content)


def tiny_application(**settings: Any) -> Starlette:
    """Return the server's application with a two-layer model of byte tokens, in this process."""
    return make_application(Models.of(_tiny_model(), NAMES, Settings(**settings)))


@cache
def _tiny_model() -> pumice.Model:
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_llama(Path(folder) / "tiny.gguf", n_ctx=N_CTX, dim=16, n_ff=16)
        config = {"backend": "numpy", "chat_template": "chatml", "n_ctx": N_CTX, "n_parallel": 2, "n_batch": N_CTX}
        return pumice.load(path, config=config)
