"""The token history of a sequence."""

from array import array

import numpy as np
from numpy.typing import NDArray


class History:
    """An append-only list of token ids with cheap access to its end as an array."""

    def __init__(self) -> None:
        self._tokens = array("i")

    def append(self, token: int) -> None:
        self._tokens.append(token)

    def end(self, n: int) -> "History":
        """Return a history of the last ``n`` tokens."""
        other = History()
        other._tokens = self._tokens[-n:] if n else array("i")
        return other

    def last(self, n: int) -> NDArray[np.int32]:
        """Return the last ``n`` tokens as int32, oldest first; fewer if the sequence is shorter."""
        # A copy, since an array whose buffer NumPy has exported cannot grow.
        return np.array(self._tokens[-n:] if n else [], np.int32)
