"""What an open device has made: counted, and closed with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pumice_vulkan.device.contract import Buffer


class Ledger:
    """The buffers, pipelines and command buffers of a device that are open."""

    def __init__(self) -> None:
        self.n_allocations = 0  # buffers
        self.allocated_bytes = 0  # in them
        self.on_closing: list[Callable[[Any], None]] = []  # called with each item when it is struck out
        self._items: dict[Any, None] = {}  # in the order made

    def opened(self, item: Any) -> None:
        """Enter something that was made."""
        self._items[item] = None
        if isinstance(item, Buffer):
            self.n_allocations += 1
            self.allocated_bytes += item.n_bytes

    def closing(self, item: Any) -> bool:
        """Strike something out; whether it was still open."""
        if item not in self._items:
            return False
        del self._items[item]
        if isinstance(item, Buffer):
            self.n_allocations -= 1
            self.allocated_bytes -= item.n_bytes
        for tell in self.on_closing:
            tell(item)
        return True

    def items(self) -> list[Any]:
        """What is open, in the order made."""
        return list(self._items)
