"""Responses stored in memory for requests that continue them; the oldest are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from pumice.plugin.unstable import show_value
from pumice_server.interface import to_json
from pumice_server.limits import MAX_KEPT


@dataclass(frozen=True)
class Kept:
    """A stored response.

    Attributes:
        owner: Client that may continue it.
        messages: The chat up to and including it, as JSON.
        response: The response as it was sent, as JSON.
        listed: MCP servers whose tools are listed in it, or in responses before it.
        items: Ids of its items.
    """

    owner: str
    messages: bytes
    response: bytes
    listed: frozenset[str] = frozenset()
    items: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        owner: str,
        messages: Sequence[Mapping[str, Any]],
        response: object,
        items: Iterable[str],
        listed: frozenset[str] = frozenset(),
    ) -> Kept:
        return cls(owner, to_json(messages), to_json(response), listed, frozenset(items))

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.response)


class ResponseStore:
    """Stored responses. Each API key finds its own; ids are random and too long to guess."""

    def __init__(self, max_bytes: int = MAX_KEPT) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._responses: dict[str, str] = {}  # by the ids of their items
        self._max_bytes = max_bytes
        self._size = 0

    def keep(self, id: str, kept: Kept) -> None:
        self._kept[id] = kept
        self._responses |= dict.fromkeys(kept.items, id)
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

    def with_items(self, given: Sequence[dict[str, Any]], owner: str) -> list[dict[str, Any]]:
        """Return items of an input, with the stored items instead of references. Raises HTTPException.

        Reads whole responses: run it off the event loop.
        """
        found: dict[str, dict[str, Any]] = {}
        for i, item in enumerate(given):
            id = item.get("id")
            if not is_reference(item) or id in found:
                continue
            kept = self._kept.get(self._responses.get(id, "")) if isinstance(id, str) else None
            if kept is None or kept.owner != owner:
                raise HTTPException(404, f"input[{i}].id: no item {show_value(id)} is stored; send the item itself")
            found |= {item["id"]: item for item in orjson.loads(kept.response)["output"]}
        return [found[item["id"]] if is_reference(item) else item for item in given]

    def _forget(self, id: str) -> None:
        kept = self._kept.pop(id)
        self._size -= kept.size
        for item in kept.items:
            self._responses.pop(item, None)


def is_reference(item: Mapping[str, Any]) -> bool:
    """Return True for an item that names a stored one; its type may be left out."""
    return item.get("type") == "item_reference" or ("type" not in item and "role" not in item and "id" in item)
