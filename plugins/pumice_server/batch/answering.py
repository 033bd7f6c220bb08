"""Answer the rows of a batch by the application of ``pumice serve``, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from pumice.mcp import HostedTools
from pumice.plugin.unstable import BatchRow, ModelSpec
from pumice_server.application import make_application, run_tools
from pumice_server.batch.row_client import RowClient
from pumice_server.http.gate import ROW_SECONDS
from pumice_server.models.served_model import Load
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings


class Answering:
    """Answers rows by one model. As an asynchronous context manager it loads and closes the model.

    ``chat`` has options of ``Model.chat`` for rows that do not set them; ``tools`` are those of MCP servers that rows
    may name.
    """

    def __init__(
        self,
        spec: ModelSpec,
        load: Load,
        chat: Mapping[str, Any] | None = None,
        tools: HostedTools | None = None,
    ) -> None:
        self._tools = tools
        self._models = Models([spec], load, Settings(timeout=ROW_SECONDS, chat=chat or {}))

    async def __aenter__(self) -> Self:
        """Raises what loading raises."""
        try:
            async with self._models.using(self._models.served_models[0]):
                pass
        except BaseException:
            await self._models.close()
            raise
        self._watching = asyncio.create_task(self._models.watch())
        application = make_application(self._models)
        if self._tools:
            self._tools.start()
            run_tools(application, self._tools)
        self._client = RowClient(application)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await self._client.__aexit__()
        await self._models.close()

    async def answer(self, row: BatchRow) -> dict[str, Any]:
        """Return the result of a row."""
        return await self._client.answer(row)
