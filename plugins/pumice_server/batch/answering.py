"""Rows answered by what ``pumice serve`` serves, without a socket: a row's body is a request, its answer a result."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Self

import httpx2

from pumice_server.application import make_application
from pumice_server.batch.results import is_failed
from pumice_server.batch.rows import Row
from pumice_server.entry import Load, Spec
from pumice_server.models import Models
from pumice_server.settings import Settings

ROW_SECONDS = 86_400.0  # that a row may take, from when it is given to the engine

_PASSING = (429, 503)  # statuses that another try may not have
_PAUSES = (1.0, 5.0, 15.0)  # seconds before a row is tried again


class Answering:
    """Answers rows by one model. Use as an asynchronous context manager: the model is loaded, and closed."""

    def __init__(self, spec: Spec, load: Load) -> None:
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

    async def answer(self, row: Row) -> dict[str, Any]:
        """The result of a row. Where the engine died, or has no room, it is tried again a few times."""
        for pause in _PAUSES:
            result = await self._ask(row)
            if not is_passing(result):
                break
            await asyncio.sleep(pause)
        return result

    async def _ask(self, row: Row) -> dict[str, Any]:
        response = await self._client.post(row.url, json=row.body)
        told = {
            "status_code": response.status_code,
            "request_id": response.headers.get("X-Request-Id", ""),
            "body": response.json(),
        }
        return {
            "id": f"batch_req_{secrets.token_hex(12)}",
            "custom_id": row.custom_id,
            "response": told,
            "error": None,
        }


def is_passing(result: dict[str, Any]) -> bool:
    """Whether a row failed by what may not be its fault."""
    return is_failed(result) and result["response"]["status_code"] in _PASSING
