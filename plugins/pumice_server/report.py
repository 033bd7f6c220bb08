"""What a stream tells beside its text, where a request asks: ``return_progress`` and ``timings_per_token``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pumice_server.answers import Frame
from pumice_server.body import Body
from pumice_server.figures import timings
from pumice_server.service import Progress
from pumice_server.streams import S, Source, interleave, merge


@dataclass(frozen=True)
class Reading:
    """A prompt is read so far: the fields that its event has beside those of every event."""

    fields: Mapping[str, Any]


class Report:
    """What one request wants to be told, by llama-server's names."""

    def __init__(self, body: Body, stream: bool) -> None:
        self.usage = body.wants_usage
        self._timings = body.get("timings_per_token", bool, False)
        self._wants_progress = body.get("return_progress", bool, False) and stream
        self._readings: asyncio.Queue[tuple[int, Reading]] = asyncio.Queue()
        self._streams: Sequence[Source[Any, Any]] = ()

    @property
    def progress(self) -> Progress | None:
        """For ``Service.complete`` and ``Service.chat``."""
        return self._take if self._wants_progress else None

    def _take(self, number: int, n_read: int, n_prompt: int) -> None:
        times = self._streams[number].timings
        told = {
            "total": n_prompt,
            "cache": times.prompt_cached,
            "processed": n_read,
            "time_ms": int(times.prompt_seconds * 1000),
        }
        seconds = times.prompt_seconds if n_read > times.prompt_cached else 0.0  # the first is told before any work
        so_far = self.fields(replace(times, prompt_tokens=n_read, prompt_seconds=seconds))
        self._readings.put_nowait((number, Reading({**so_far, "prompt_progress": told})))

    def merge(self, streams: Sequence[Source[S, Any]]) -> AsyncIterator[tuple[int, Sequence[S] | Reading]]:
        """As ``streams.merge``; how far prompts are read comes as it is told."""
        self._streams = streams
        items = merge(streams)
        return interleave(items, self._readings) if self._wants_progress else items

    def frame(self, make: Callable[[str], bytes]) -> Callable[[str], bytes]:
        """Events that differ in one text: made once, unless each has timings of its own."""
        return make if self._timings else Frame(make)

    def fields(self, times: Any, ended: bool = False) -> dict[str, Any]:
        """Of an event of a stream with these ``Timings``; the last has them, unless it is the usage that comes last."""
        return {"timings": timings(times)} if self._timings or (ended and not self.usage) else {}
