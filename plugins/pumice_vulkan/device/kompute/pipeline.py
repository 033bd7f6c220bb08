"""Pipelines as Kompute's algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pumice.plugin import BackendError
from pumice_vulkan.device.contract import ComputePipeline
from pumice_vulkan.device.kompute.api import kp
from pumice_vulkan.device.kompute.manager import Manager
from pumice_vulkan.device.kompute.memory import KomputeBuffer


class KomputePipeline(ComputePipeline):
    """A shader and its algorithms: Kompute binds each algorithm to its tensors and grid."""

    def __init__(
        self, manager: Manager, spirv: bytes, n_buffers: int, push_bytes: int, constants: Sequence[int]
    ) -> None:
        if not n_buffers:
            raise ValueError("Kompute requires at least one buffer per pipeline")
        self.n_buffers = n_buffers
        self.push_bytes = push_bytes
        self._manager = manager
        self._spirv = spirv
        self._constants = np.array([value & 0xFFFFFFFF for value in constants], np.uint32)
        self._algorithms: dict[tuple[tuple[KomputeBuffer, ...], tuple[int, int, int]], Any] = {}
        manager.ledger.opened(self)
        manager.ledger.on_closing.append(self._forget)

    def dispatch(self, buffers: tuple[KomputeBuffer, ...], grid: tuple[int, int, int], push: bytes) -> Any:
        """Return the operation that runs the pipeline."""
        algorithm = self._algorithm(buffers, grid)
        if not push:
            return kp.OpAlgoDispatch(algorithm)
        return kp.OpAlgoDispatch(algorithm, np.frombuffer(push, np.uint32))

    def _algorithm(self, buffers: tuple[KomputeBuffer, ...], grid: tuple[int, int, int]) -> Any:
        key = buffers, grid
        if key not in self._algorithms:
            tensors = [buffer.tensor for buffer in buffers]
            push = np.zeros(self.push_bytes // 4, np.uint32)
            try:
                self._algorithms[key] = self._manager.handle.algorithm(
                    tensors, self._spirv, grid, self._constants, push
                )
            except RuntimeError as error:
                raise BackendError(f"vulkan: cannot compile a shader: {error}") from None
        return self._algorithms[key]

    def _forget(self, item: Any) -> None:
        """Free the algorithms bound to a buffer that is closed."""
        for key in [key for key in self._algorithms if item in key[0]]:
            self._algorithms.pop(key).destroy()

    def close(self) -> None:
        if self._manager.ledger.closing(self):
            self._manager.ledger.on_closing.remove(self._forget)
            for algorithm in self._algorithms.values():
                algorithm.destroy()
            self._algorithms.clear()
