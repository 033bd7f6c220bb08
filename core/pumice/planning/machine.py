"""The machine that a plan is made for: this one, or one that is described by its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pumice.backend import Backend
from pumice.backend.step import Limits
from pumice.errors import ConfigError
from pumice.graph import MemoryPlan, Node, Segment, State, Weight
from pumice.machine import parse_size
from pumice.wording import show_python

RESERVE = 256 * 2**20  # bytes of a planned GPU for scratch memory, command buffers and the driver

_MOST_GPUS = 64
_LEAST_BYTES = 2**16  # a smaller number lacks its unit

MemorySize = str | float
"""A size of memory: text with a unit, or a number of bytes."""
GPUMemory = MemorySize | Sequence[MemorySize] | Mapping[str, MemorySize]
"""Memory of the GPUs of a machine: one size or several, or sizes by the names of the GPUs."""


@dataclass(frozen=True)
class PlannedMachine:
    """A machine described by its memory.

    Attributes:
        gpus: bytes of each GPU by name; None: the GPUs of this machine.
        host_bytes: bytes of host memory; None: those that are free on this machine.
    """

    gpus: Mapping[str, int] | None = None
    host_bytes: int | None = None

    @classmethod
    def of(cls, memory: GPUMemory | None, ram: MemorySize | None) -> PlannedMachine:
        """Return the machine with these sizes; None stands for this machine. Raises ConfigError."""
        gpus = None
        if isinstance(memory, Mapping):
            if unnamed := [name for name in memory if not isinstance(name, str)]:
                raise ConfigError(f"memory: the name of a GPU is a text, not {show_python(unnamed[0])}")
            gpus = {name: _size("memory", size) for name, size in memory.items()}
        elif memory is not None:
            sizes = list(memory) if isinstance(memory, Iterable) and not isinstance(memory, str) else [memory]
            items = [item for size in sizes for item in (size.split(",") if isinstance(size, str) else [size])]
            gpus = {f"gpu{number}": _size("memory", size) for number, size in enumerate(items)}
        if gpus is not None:
            gpus = {name: size for name, size in gpus.items() if size}
            if len(gpus) > _MOST_GPUS:
                raise ConfigError(f"memory of {len(gpus)} GPUs; a plan has at most {_MOST_GPUS}")
        return cls(gpus, None if ram is None else _size("ram", ram))


def _size(name: str, size: MemorySize) -> int:
    """Return the bytes of a size. Raises ConfigError for a number that lacks its unit, and as ``parse_size``."""
    n_bytes = parse_size(size, name)
    if 0 < n_bytes < _LEAST_BYTES:
        raise ConfigError(f"{name}: {size} is a number of bytes; give a unit, such as 12GiB or 512MiB")
    return n_bytes


class PlannedGPUs(Backend):
    """GPUs that are not here: they support what GPUs compute, and hold weights and caches as files store them."""

    offload = True
    reads_in_place = True
    shares_arenas = True

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self._sizes = sizes

    def supports(self, node: Node, limits: Limits) -> bool:
        return True

    def free_memory(self) -> list[int | None]:
        return [max(size - RESERVE, 0) for size in self._sizes]

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        return 0 if limits.is_in_place(held.name) else super().footprint(held, limits)

    def host_footprint(self, weight: Weight, limits: Limits) -> int:
        return weight.nbytes if limits.is_in_place(weight.name) else 0

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> NoReturn:
        raise NotImplementedError("a planned GPU computes nothing")
