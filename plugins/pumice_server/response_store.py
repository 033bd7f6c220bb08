"""Responses stored in memory for requests that continue them; the oldest are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from pumice_server.answers import to_json
from pumice_server.limits import MAX_KEPT


@dataclass(frozen=True)
class Kept:
    """A stored response.

    Attributes:
        owner: Client that may continue it.
        messages: The chat up to and including it, as JSON.
        response: The response as it was sent, as JSON.
        listed: MCP servers whose tools are listed in it, or in responses before it.
    """

    owner: str
    messages: bytes
    response: bytes
    listed: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        owner: str,
        messages: Sequence[Mapping[str, Any]],
        response: Mapping[str, Any],
        listed: frozenset[str] = frozenset(),
    ) -> Kept:
        return cls(owner, to_json(messages), to_json(response), listed)

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.response)


class ResponseStore:
    """Stored responses. Each API key finds its own; ids are random and too long to guess."""

    def __init__(self, max_bytes: int = MAX_KEPT) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._max_bytes = max_bytes
        self._size = 0

    def keep(self, id: str, kept: Kept) -> None:
        self._kept[id] = kept
        self._size += kept.size
        while self._size > self._max_bytes:
            self._forget(next(iter(self._kept)))

    def get(self, id: str, owner: str) -> Kept:
        """Return a stored response. Raises HTTPException if this owner has none with the id."""
        kept = self._kept.get(id)
        if kept is None or kept.owner != owner:
            raise HTTPException(
                404, f"there is no response {id!r:.100}: it was not stored, or was dropped for newer ones"
            )
        self._kept.move_to_end(id)
        return kept

    def delete(self, id: str, owner: str) -> None:
        """Delete a stored response. Raises as ``get``."""
        self.get(id, owner)
        self._forget(id)

    def _forget(self, id: str) -> None:
        self._size -= self._kept.pop(id).size
