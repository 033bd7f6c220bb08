"""Answer rows of batches by an application, without a socket."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Self

import httpx2
import orjson
from starlette.applications import Starlette

from pumice.plugin.unstable import BatchRow
from pumice_server.batch.results import is_failed
from pumice_server.http.gate import CLIENT_HEADER
from pumice_server.work import aside

_BUSY = 429  # status of a full queue or an empty bucket: a row waits for as long as it takes
_PASSING = (_BUSY, 503)  # statuses that may not recur
_PAUSES = (1.0, 5.0, 15.0, 60.0, 300.0)  # seconds before each retry of 503, which a row that kills engines may cause
_MAX_PAUSE = 60  # seconds before each retry of 429


class RowClient:
    """Answers rows, for a client. An asynchronous context manager."""

    def __init__(self, application: Starlette, client: str = "") -> None:
        transport = httpx2.ASGITransport(application, raise_app_exceptions=False)
        headers = {CLIENT_HEADER: client}
        self._client = httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=None, headers=headers
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def answer(self, row: BatchRow) -> dict[str, Any]:
        """Return the result of a row. If the engine died, retry a few times; if it is full, for ever."""
        pauses = iter(_PAUSES)
        content = await aside(orjson.dumps, row.body)
        custom_id, url = row.custom_id, row.url
        del row  # its values take a multiple of their text, and the application reads them again
        while True:
            result, seconds = await self._ask(custom_id, url, content)
            if not is_passing(result):
                return result
            pause = seconds if result["response"]["status_code"] == _BUSY else next(pauses, None)
            if pause is None:
                return result
            await asyncio.sleep(pause)

    async def _ask(self, custom_id: str, url: str, content: bytes) -> tuple[dict[str, Any], float]:
        """Return the result of a row, and the seconds before a retry, if there is one."""
        response = await self._client.post(url, content=content, headers={"Content-Type": "application/json"})
        answer = {
            "status_code": response.status_code,
            "request_id": response.headers.get("X-Request-Id", ""),
            "body": await aside(orjson.loads, response.content, size=len(response.content)),
        }
        result = {
            "id": f"batch_req_{secrets.token_hex(12)}",
            "custom_id": custom_id,
            "response": answer,
            "error": None,
        }
        return result, min(_MAX_PAUSE, int(response.headers.get("Retry-After", "1")))


def is_passing(result: dict[str, Any]) -> bool:
    """Return True if a row failed for a reason that may not be its own."""
    return is_failed(result) and result["response"]["status_code"] in _PASSING
