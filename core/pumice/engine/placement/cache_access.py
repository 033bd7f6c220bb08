"""Access to the caches of a model's compiled graphs, between steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.backend import CacheForm
from pumice.engine.placement.guarded import SegmentProgram
from pumice.engine.placement.placed import PlacedGraph

Bytes = NDArray[np.uint8]


class CacheAccess:
    """Copies, reads and writes the blocks and slots of a compiled graph, which other graphs of the model share."""

    def __init__(self, placed: PlacedGraph) -> None:
        self._placed = placed

    @property
    def form(self) -> CacheForm | None:
        """The bytes of blocks and slots that can leave the devices; None if they cannot."""
        return self._placed.program.cache_form if self._placed.program else None

    @property
    def keeps_states(self) -> bool:
        """True if there are recurrent states that can be copied; known once compiled."""
        return self._placed.keeps_states

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy recurrent states between slots, for each pair of source and target."""
        self._steps.call(self._steps.program.copy_slots, pairs)

    def read_blocks(self, window: int, blocks: Sequence[int]) -> Bytes:
        """Return a copy of blocks; see ``Program.read_blocks``."""
        return self._steps.call(self._steps.program.read_blocks, window, blocks)

    def write_blocks(self, window: int, blocks: Sequence[int], data: Bytes) -> None:
        """Write what ``read_blocks`` returned."""
        self._steps.call(self._steps.program.write_blocks, window, blocks, data)

    def read_slots(self, slots: Sequence[int]) -> Bytes:
        """Return a copy of the recurrent states of slots."""
        return self._steps.call(self._steps.program.read_slots, slots)

    def write_slots(self, slots: Sequence[int], data: Bytes) -> None:
        """Write what ``read_slots`` returned."""
        self._steps.call(self._steps.program.write_slots, slots, data)

    @property
    def _steps(self) -> SegmentProgram:
        assert self._placed.steps is not None, "compile comes first"
        return self._placed.steps
