"""Timing of single dispatches of the Vulkan backend, lowered without a graph; shared by the kernel benchmarks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "plugins")]

from pumice.backend.step import Limits  # noqa: E402
from pumice.errors import BackendError  # noqa: E402
from pumice.graph import MemoryPlan, Tensor  # noqa: E402
from pumice_vulkan.kernels import Kernels  # noqa: E402
from pumice_vulkan.lower.rule import Dispatch, Lowering, SegmentMemory  # noqa: E402
from pumice_vulkan.memory import BufferSlice, Scratch, Weights  # noqa: E402
from pumice_vulkan.probe import matrix_shape  # noqa: E402
from pumice_vulkan.recorder import launch  # noqa: E402
from pumice_vulkan.step import SIZE_WORDS  # noqa: E402


class Bench:
    """A device with memory for successive large weights, and lowering without a graph."""

    def __init__(self, device: Any, weight_bytes: int, columns: int, rows: int) -> None:
        self.device = device
        self.int8 = True  # activations of products with vectors, unless said otherwise
        self.half = False  # products without matrix units in float16
        self.kernels = Kernels(device)
        weight_bytes = min(weight_bytes, device.description.max_buffer_bytes // 2)
        self.weights = device.new_buffer(weight_bytes)
        self.x = device.new_buffer(4 * columns * rows * 3)
        self.y = device.new_buffer(4 * 131072 * rows)
        self.scratch = Scratch(device, 64 << 20)
        self.constants = Weights(device)
        self.host = device.new_buffer(8 << 20, host=True)
        self.step = device.new_buffer(64, host=True)
        self.rng = np.random.default_rng(0)
        self._fill(self.weights)
        self._fill(self.x, np.float32)

    def _fill(self, buffer: Any, dtype: Any = None) -> None:
        if dtype is None:
            self.host.contents[:] = self.rng.integers(0, 256, self.host.n_bytes, dtype=np.uint8)
        else:
            self.host.contents.view(np.float32)[:] = self.rng.standard_normal(self.host.n_bytes // 4)
        command = self.device.new_command_buffer()
        encoder = command.encoder()
        for offset in range(0, buffer.n_bytes, self.host.n_bytes):
            encoder.copy_buffer(self.host, 0, buffer, offset, min(self.host.n_bytes, buffer.n_bytes - offset))
        encoder.end()
        command.commit_and_wait()

    def lowering(self, n_tokens: int, int8: bool | None = None) -> tuple[Lowering, Callable[[int, int], Tensor]]:
        """Return a lowering, and a function that creates an activation of it at an offset."""
        plan = MemoryPlan(self.x.n_bytes, {})
        none: Any = None
        self.step.contents.view(np.uint32)[SIZE_WORDS["n_tokens"]] = n_tokens
        lowering = Lowering(
            SegmentMemory(
                self.device,
                Limits(n_tokens, n_tokens, n_tokens, n_tokens, 32, {}, "f16"),
                plan,
                self.constants,
                BufferSlice(self.x, 0, self.x.n_bytes // 4),
                self.step,
                none,
                none,
                self.scratch,
                int8=self.int8 if int8 is None else int8,
                half=self.half,
                cooperative=matrix_shape(self.device.description),
            ),
            n_tokens,
            n_tokens,
        )

        def activation(columns: int, offset: int = 0) -> Tensor:
            tensor = Tensor("x", ("n_tokens", columns))
            plan.offsets[tensor] = offset
            return tensor

        return lowering, activation

    def copies(self, n_bytes: int) -> list[int]:
        """Return word offsets of weights of ``n_bytes`` to be read in turn."""
        size = -(-n_bytes // 256) * 256
        n = max(1, min(self.weights.n_bytes // size, 100))
        return [i * size // 4 for i in range(n)]

    def warm_up(self, dispatches: Sequence[Dispatch], seconds: float = 0.1) -> None:
        """Keep the device busy until its clocks are up."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.time(dispatches[:20])

    def time(self, dispatches: Sequence[Dispatch], runs: int = 4) -> float:
        """Return the microseconds of one dispatch, each behind a barrier."""
        self.constants.finish()
        command = self.device.new_command_buffer(timestamps=2)
        encoder = command.encoder()
        encoder.timestamp(0)
        for dispatch in dispatches:
            encoder.barrier()
            encoder.launch(launch(self.kernels, dispatch))
        encoder.timestamp(1)
        encoder.end()
        best = float("inf")
        for _ in range(runs):
            started = time.perf_counter()
            command.commit_and_wait()
            wall = (time.perf_counter() - started) * 1e6
            best = min(best, command.timestamps()[1] or wall)
        command.close()
        return best / len(dispatches)

    def compile(self, dispatches: Sequence[Dispatch]) -> list[bool]:
        """Create the pipelines of many dispatches at once; return those that could be created."""

        def make(dispatch: Dispatch) -> bool:
            try:
                self.kernels.pipeline(dispatch)
            except BackendError as error:
                print(f"  {dispatch.kernel} {dispatch.constants}: {error}", file=sys.stderr)
                return False
            return True

        with ThreadPoolExecutor(12) as pool:
            return list(pool.map(make, dispatches))
