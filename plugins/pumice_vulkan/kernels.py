"""The compiled kernels of one device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from pumice_vulkan.device import ComputePipeline, Device
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.quirks import UNROLLED
from pumice_vulkan.shaders import rolled, shader

MOST_THREADS = 4  # maximum threads that compile
KEPT = "persistent"  # kernels that keep their unrolled loops: lavapipe of Mesa 22.3 computes them wrongly without
Key = tuple[str, tuple[int, ...]]  # a kernel and its specialization constants


def code_of(kernel: str, avoided: Container[str]) -> bytes:
    """Return the SPIR-V of a kernel, without unrolled loops where they are ``avoided``."""
    is_rolled = UNROLLED in avoided and not kernel.startswith(KEPT)
    return (rolled if is_rolled else shader)(kernel)


class Kernels:
    """Pipelines, each compiled once, by the first thread that needs it; other threads wait."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pipelines: dict[Key, Future[ComputePipeline]] = {}
        self._lookup = threading.Lock()

    def names(self) -> list[str]:
        """Return the kernels with their constants, such as "matvec.q4_0 32 8 2"."""
        return [" ".join([kernel, *map(str, constants)]) for kernel, constants in self._pipelines]

    def pipeline(self, dispatch: Dispatch) -> ComputePipeline:
        """Return the pipeline of a dispatch. Raises BackendError if it does not compile; a later call tries again."""
        key = dispatch.kernel, dispatch.constants
        with self._lookup:
            pending = self._pipelines.get(key)
            if pending is None:
                self._pipelines[key] = own = Future[ComputePipeline]()
        if pending is not None:
            return pending.result()
        try:
            own.set_result(self._compile(dispatch))
        except BaseException as error:
            del self._pipelines[key]
            own.set_exception(error)
            raise
        return own.result()

    def compile(self, dispatches: Iterable[Dispatch], ends: Callable[[], bool] = lambda: False) -> None:
        """Compile the pipelines of dispatches, several at a time if the device supports that, until ``ends()``."""

        def compile_next(dispatch: Dispatch) -> None:
            if not ends():
                self.pipeline(dispatch)

        missing = {(dispatch.kernel, dispatch.constants): dispatch for dispatch in dispatches}
        missing = {key: dispatch for key, dispatch in missing.items() if key not in self._pipelines}
        if len(missing) < 2 or not self._device.compiles_beside:
            for dispatch in missing.values():
                compile_next(dispatch)
            return
        with ThreadPoolExecutor(min(MOST_THREADS, len(missing)), "pumice-vulkan-compiler") as pool:
            list(pool.map(compile_next, missing.values()))

    def _compile(self, dispatch: Dispatch) -> ComputePipeline:
        return self._device.new_pipeline(
            code_of(dispatch.kernel, self._device.description.avoided),
            len(dispatch.buffers),
            len(dispatch.push),
            dispatch.constants,
            full_subgroups=dispatch.full_subgroups,
        )
