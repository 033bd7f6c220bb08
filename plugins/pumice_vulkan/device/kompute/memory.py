"""Buffers as Kompute's tensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice_vulkan.device.contract import Buffer
from pumice_vulkan.device.kompute.api import kp
from pumice_vulkan.device.kompute.manager import Manager


class KomputeBuffer(Buffer):
    """A ``storage`` tensor in device memory, or a ``host`` tensor, which the device reads over the bus.

    The kind ``device`` would store everything twice.
    """

    def __init__(self, manager: Manager, n_bytes: int, host: bool) -> None:
        self.n_bytes = n_bytes
        self.host = host
        self._ledger = manager.ledger
        kind = kp.TensorTypes.host if host else kp.TensorTypes.storage
        # A storage tensor uses only the array's size; its pages are never touched.
        initial = np.zeros(n_bytes // 4, np.uint32) if host else np.empty(n_bytes // 4, np.uint32)
        self.tensor = manager.handle.tensor_t(initial, kind)
        self._contents: NDArray[np.uint8] | None = self.tensor.data().view(np.uint8) if host else None
        self._ledger.opened(self)

    @property
    def contents(self) -> NDArray[np.uint8]:
        if self._contents is None:
            raise ValueError("the host can only access open buffers created with host=True")
        return self._contents

    def close(self) -> None:
        if self._ledger.closing(self):
            self._contents = None
            self.tensor.destroy()
