"""A sampler that forbids what was just said."""

from collections import deque
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from pumice.plugin import Candidates, Sampler, SamplerContext


@dataclass
class NoRepeat(Sampler):
    """Forbid the last ``no_repeat`` tokens; 0: off."""

    no_repeat: Annotated[int, Ge(0)] = 1

    def start(self, context: SamplerContext) -> None:
        self._last: deque[int] = deque(maxlen=self.no_repeat)

    def accept(self, token: int) -> None:
        self._last.append(token)

    def apply(self, candidates: Candidates) -> None:
        allowed = ~np.isin(candidates.ids, list(self._last))
        if allowed.any():  # a sampler must leave at least one candidate
            candidates.keep(allowed)
