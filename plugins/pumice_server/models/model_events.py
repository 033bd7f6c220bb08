"""Events of models, streamed to clients: llama-server's ``/models/sse``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pumice_server.http.answers import event
from pumice_server.pools import LISTENERS, Place

_STAGE = "text_model"  # llama-server's name of what is loaded
_MAX_WAITING = 256  # events that a listener has not taken; beyond, its stream ends

Events = asyncio.Queue[bytes]


class ModelEvents:
    """Passes events to listeners. Used by the event loop alone."""

    def __init__(self) -> None:
        self._listeners: dict[Events, Place] = {}
        self._ended = asyncio.Event()

    def tell(self, name: str, model: str, data: Mapping[str, Any] | None = None) -> None:
        """Pass an event to all listeners; ``model`` is ``*`` for all models."""
        if not self._listeners:
            return
        part = event({"model": model, "event": name, **({} if data is None else {"data": data})})
        for listener in list(self._listeners):
            try:
                listener.put_nowait(part)
            except asyncio.QueueFull:
                self.forget(listener)

    def status(self, model: str, status: str, progress: float | None = None) -> None:
        """Tell the state of a model; ``progress`` of loading is between 0 and 1."""
        data: dict[str, Any] = {"status": status}
        if progress is not None:
            data["progress"] = {"stages": [_STAGE], "current": _STAGE, "value": round(progress, 3)}
        self.tell("model_status", model, data)

    def listen(self) -> Events:
        """Return a queue of the events from now on. Raises HTTPException if there are too many listeners."""
        place = LISTENERS.take()
        listener = Events(_MAX_WAITING)
        self._listeners[listener] = place
        return listener

    def forget(self, listener: Events) -> None:
        if place := self._listeners.pop(listener, None):
            place.release()

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    async def follow(self, listener: Events) -> AsyncIterator[bytes]:
        """Yield events until the server stops, or the listener was dropped because it took none."""
        ended = asyncio.ensure_future(self._ended.wait())
        coming: asyncio.Future[bytes] | None = None
        try:
            while not self._ended.is_set() and (listener in self._listeners or not listener.empty()):
                coming = asyncio.ensure_future(listener.get())
                await asyncio.wait({coming, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
                yield coming.result()
        finally:
            ended.cancel()
            if coming is not None:
                coming.cancel()
