"""The tokens of a sequence so far."""

from array import array

import numpy as np
from numpy.typing import NDArray


class History:
    """An append-only list of token ids whose end is cheap to read as an array."""

    def __init__(self) -> None:
        self._tokens = array("i")

    def append(self, token: int) -> None:
        self._tokens.append(token)

    def last(self, n: int) -> NDArray[np.int32]:
        """int32: the last ``n`` tokens, oldest first; fewer if there are not so many."""
        # A copy of the end, because an array that NumPy looks into cannot grow.
        return np.array(self._tokens[-n:] if n else [], np.int32)
