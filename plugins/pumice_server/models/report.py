"""Progress of prompts and timings in a stream, for ``return_progress`` and ``timings_per_token``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pumice
from pumice_server.http.answers import Frame
from pumice_server.http.bodies import TextBody
from pumice_server.models.figures import timings
from pumice_server.models.service import CompletionProgress
from pumice_server.models.streams import S, Source, interleave, merge


@dataclass(frozen=True)
class Reading:
    """Progress of a prompt: the further fields of its event."""

    fields: Mapping[str, Any]


class Report:
    """Reports progress and timings as one request asks for them, by llama-server's names."""

    def __init__(self, body: TextBody, stream: bool) -> None:
        self.usage = body.wants_usage
        self._timings = body.timings_per_token
        self._wants_progress = body.return_progress and stream
        self._readings: asyncio.Queue[tuple[int, Reading]] = asyncio.Queue()
        self._streams: Sequence[Source[Any, Any]] = ()

    @property
    def progress(self) -> CompletionProgress | None:
        """Callback for ``Service.complete`` and ``Service.chat``."""
        return self._take if self._wants_progress else None

    def _take(self, number: int, n_read: int, n_prompt: int) -> None:
        times = self._streams[number].timings
        progress = {
            "total": n_prompt,
            "cache": times.prompt_cached,
            "processed": n_read,
            "time_ms": int(times.prompt_seconds * 1000),
        }
        seconds = (
            times.prompt_seconds if n_read > times.prompt_cached else 0.0
        )  # the first report comes before any work
        so_far = self.fields(replace(times, prompt_tokens=n_read, prompt_seconds=seconds))
        self._readings.put_nowait((number, Reading({**so_far, "prompt_progress": progress})))

    def merge(self, streams: Sequence[Source[S, Any]]) -> AsyncIterator[tuple[int, Sequence[S] | Reading]]:
        """Merge streams as ``streams.merge`` does, with the progress of prompts in between."""
        self._streams = streams
        items = merge(streams)
        return interleave(items, self._readings) if self._wants_progress else items

    def frame(self, make: Callable[[str], bytes]) -> Callable[[str], bytes]:
        """Return a function for events that differ in one text, encoded once unless each has timings."""
        return make if self._timings else Frame(make)

    def fields(self, times: pumice.Timings, ended: bool = False) -> dict[str, Any]:
        """Return the timings of an event, if it has any; the last event has them unless usage follows."""
        return {"timings": timings(times)} if self._timings or (ended and not self.usage) else {}
