"""Answer the rows of a batch by the application of ``pumice serve``, without a socket."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Self

import httpx2

from pumice.plugin import BatchRow, ModelSpec
from pumice_server.application import make_application
from pumice_server.batch.results import is_failed
from pumice_server.models import Models
from pumice_server.served_model import Load
from pumice_server.settings import Settings

ROW_SECONDS = 86_400.0  # maximum time of a row, from when the engine gets it

_PASSING = (429, 503)  # statuses that may not recur
_PAUSES = (1.0, 5.0, 15.0)  # seconds before each retry


class Answering:
    """Answers rows by one model. As an asynchronous context manager it loads and closes the model."""

    def __init__(self, spec: ModelSpec, load: Load) -> None:
        self._models = Models([spec], load, Settings(timeout=ROW_SECONDS))

    async def __aenter__(self) -> Self:
        """Raises what loading raises."""
        try:
            async with self._models.using(self._models.entries[0]):
                pass
        except BaseException:
            await self._models.close()
            raise
        self._watching = asyncio.create_task(self._models.watch())
        transport = httpx2.ASGITransport(make_application(self._models), raise_app_exceptions=False)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await self._client.aclose()
        await self._models.close()

    async def answer(self, row: BatchRow) -> dict[str, Any]:
        """Return the result of a row. If the engine died or is full, retry a few times."""
        for pause in _PAUSES:
            result = await self._ask(row)
            if not is_passing(result):
                break
            await asyncio.sleep(pause)
        return result

    async def _ask(self, row: BatchRow) -> dict[str, Any]:
        response = await self._client.post(row.url, json=row.body)
        answer = {
            "status_code": response.status_code,
            "request_id": response.headers.get("X-Request-Id", ""),
            "body": response.json(),
        }
        return {
            "id": f"batch_req_{secrets.token_hex(12)}",
            "custom_id": row.custom_id,
            "response": answer,
            "error": None,
        }


def is_passing(result: dict[str, Any]) -> bool:
    """Return True if a row failed for a reason that may not be its own."""
    return is_failed(result) and result["response"]["status_code"] in _PASSING
