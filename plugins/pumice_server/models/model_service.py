"""The state of a loaded model that all its requests share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from starlette.exceptions import HTTPException

import pumice
from pumice.cli.options import ASSUMED_TEMPLATE
from pumice_server.models.figures import build_info
from pumice_server.models.metrics import Metrics
from pumice_server.models.model_texts import ModelTexts
from pumice_server.models.streams import Source
from pumice_server.settings import Settings

BEAT_SECONDS = 10.0  # time in which a healthy engine finishes a batch
_LOOKS = 8  # waits in the timeout of a health check

Slot = tuple[str, int]  # client and number of a slot; -1: no slot


class SlotText(NamedTuple):
    """The tokens of a slot, and the salt with which they are cached."""

    tokens: Sequence[int] = ()
    salt: str = ""


logger = logging.getLogger("pumice")


class ModelService(ModelTexts):
    """A loaded model, its names, and what its requests have in common.

    Args:
        model: Loaded model.
        names: Names of the model.
        settings: Settings of the server.
        metrics: Counters of the server.
        scales: Scale of each LoRA adapter for requests that do not set it.
    """

    def __init__(
        self,
        model: pumice.Model,
        names: Sequence[str],
        settings: Settings,
        metrics: Metrics,
        scales: dict[str, float] | None = None,
    ) -> None:
        super().__init__(model)
        self.names, self.settings = names, settings
        self.fingerprint = build_info(settings.compat)
        self.assumed_template = None if model.template.exists else ASSUMED_TEMPLATE
        self.scales = {} if scales is None else scales
        self.slots: dict[Slot, SlotText] = {}
        self._in_slots = WeakKeyDictionary[Source[Any, Any], tuple[Slot, SlotText]]()  # with their prompts
        self._metrics = metrics
        self._asked: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    def adapter_of(self, name: str) -> str | None:
        """Return the adapter that ``ADAPTER`` and ``MODEL:ADAPTER`` name, with which alone a request computes."""
        adapter = name if name in self.scales else name.partition(":")[2]
        return None if name in self.names or adapter not in self.scales else adapter

    def put_in_slot(self, stream: Source[Any, Any], slot: Slot | None, prompt: SlotText) -> None:
        """Let a slot keep the tokens of a stream, if there is such a slot; a single one keeps those of every stream."""
        if slot is None:
            return
        client, number = slot
        number = 0 if number < 0 and self.model.config.n_parallel == 1 else number
        if 0 <= number < self.model.config.n_parallel:
            self._in_slots[stream] = (client, number), prompt

    def end(self, stream: Source[Any, Any]) -> None:
        """Keep the tokens of a closed stream in its slot, and count them.

        Names that clients make are no labels of metrics.
        """
        if found := self._in_slots.pop(stream, None):
            slot, prompt = found  # the last token is not computed
            self.slots[slot] = prompt._replace(tokens=[*prompt.tokens, *stream.tokens[:-1]])
        self._metrics.count(self.name, stream.timings)

    def count_encoded(self, n_tokens: int, seconds: float) -> None:
        """Count the tokens of texts that were embedded or ranked, and the time that this took."""
        self._metrics.count_encoded(self.name, n_tokens, seconds)

    async def snapshot(self, timeout: float | None = BEAT_SECONDS) -> pumice.Snapshot:
        """Return the state of the engine. Raises TimeoutError if it finishes no batch within the timeout."""
        return await asyncio.wait_for(asyncio.wrap_future(self.model.engine.client.inspect()), timeout)

    def ask(self, timeout: float) -> None:
        """Start a health check, unless one runs. An engine that does not answer in time is killed."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._expect(timeout))

    async def _expect(self, timeout: float) -> None:
        asking = asyncio.ensure_future(self.snapshot(None))
        try:
            for _ in range(_LOOKS):  # a jump of the clock, as after suspend, ends one wait only
                await asyncio.wait([asking], timeout=timeout / _LOOKS)
            if asking.done():
                asking.exception()  # the death of an engine is noticed elsewhere
                return
        finally:
            asking.cancel()
        logger.error("%s: its engine has not finished a batch for %.0f seconds", self.name, timeout)
        await asyncio.to_thread(self.model.engine.kill)


async def snapshot_of(service: ModelService) -> pumice.Snapshot:
    """Return the state of the engine. Raises HTTPException if the engine does not answer in time."""
    try:
        return await service.snapshot(BEAT_SECONDS)
    except TimeoutError:
        raise HTTPException(503, f"the engine has not finished a batch for {BEAT_SECONDS:.0f} seconds") from None
