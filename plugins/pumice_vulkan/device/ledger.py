"""The ledger of an open device: counts its objects, and closes them with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pumice_vulkan.device.contract import Buffer


class Ledger:
    """The open buffers, pipelines and command buffers of a device."""

    def __init__(self) -> None:
        self.n_allocations = 0  # number of open buffers
        self.allocated_bytes = 0  # total bytes of open buffers
        self.host_bytes = 0  # of these in host memory
        self.on_closing: list[Callable[[Any], None]] = []  # called with each item that closes
        self._items: dict[Any, None] = {}  # in creation order
        self._writing = threading.Lock()

    def opened(self, item: Any) -> None:
        """Enter a new object."""
        with self._writing:
            self._items[item] = None
            if isinstance(item, Buffer):
                self.n_allocations += 1
                self.allocated_bytes += item.n_bytes
                self.host_bytes += item.n_bytes if item.host else 0

    def closing(self, item: Any) -> bool:
        """Remove an object; return True if it was still open."""
        with self._writing:
            if item not in self._items:
                return False
            del self._items[item]
            if isinstance(item, Buffer):
                self.n_allocations -= 1
                self.allocated_bytes -= item.n_bytes
                self.host_bytes -= item.n_bytes if item.host else 0
        for callback in self.on_closing:
            callback(item)
        return True

    def items(self) -> list[Any]:
        """Return the open objects in creation order."""
        return list(self._items)
