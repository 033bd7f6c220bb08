"""What the programs of a model on one device share."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from pumice.plugin.unstable import Program, State
from pumice_vulkan.device import Device, MatrixShape
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.memory import Arena, Scratch, Weights
from pumice_vulkan.preparer import Preparer


@dataclass
class Shared:
    """State shared by a model's programs on one device."""

    device: Device
    kernels: Kernels
    weights: Weights
    cache: Arena
    scratch: Scratch
    arenas: Scratch  # of activations of programs that give no logits
    int8: bool = False
    cooperative: MatrixShape | None = None  # of the matrix units on which products run
    prepares: bool = False
    persistent: bool = False  # tokens of one sequence are one dispatch where possible
    most_rows: int | None = 1  # tokens of steps that are one dispatch where possible
    lanes: bool = False  # products on matrix units convert weights in registers
    sums_by_rows: bool | None = None  # order of a lane's sums on matrix units; None: unknown
    invariant: bool = False  # results of up to 16 rows do not depend on their number
    half: bool = False  # products without matrix units multiply in float16
    making: threading.RLock = field(default_factory=threading.RLock)  # held while lowering or recording
    states: dict[State, Any] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)  # that are not closed; the first one counts shared memory
    used: set[tuple[int, str]] = field(default_factory=set)  # source and name of the uploaded weights
    preparers: weakref.WeakSet[Preparer] = field(default_factory=weakref.WeakSet)  # whose threads use the device

    def close(self) -> None:
        """Close the device, after the threads that still prepare steps on it or fill buffers of an upload."""
        for preparer in list(self.preparers):
            preparer.close()
        self.weights.close()
        self.cache.close()
        self.scratch.close()
        self.arenas.close()
        self.device.close()
