"""What an open device has made: counted, and closed with it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pumice_vulkan.device.contract import Buffer, Device


class LedgerDevice(Device):
    """A device that keeps account of its buffers, pipelines and command buffers."""

    def __init__(self) -> None:
        self.n_allocations = 0
        self.allocated_bytes = 0
        self._items: dict[Any, None] = {}  # in the order made
        self._closed = False

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
        return True

    def items(self) -> list[Any]:
        """What is open."""
        return list(self._items)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._wait_idle()
            for item in reversed(self.items()):
                item.close()
            self._destroy()

    @abstractmethod
    def _wait_idle(self) -> None: ...

    @abstractmethod
    def _destroy(self) -> None:
        """Free the device itself."""
