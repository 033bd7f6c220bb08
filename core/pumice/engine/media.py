"""Media in prompts: spans of embedding rows, with ids for their positions that equal contents share."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.engine.messages import Span
from pumice.errors import RequestError

MOST_KNOWN = 4096  # contents whose ids are kept
MOST_IDS = 2**31 - 1  # int32


@dataclass
class MediaIds:
    """Assigns a negative id to each position of a media span; equal rows have equal ids, and others never do.

    Where a prompt has tokens, the engine sees these ids, so that the prefix cache distinguishes media by contents.
    Thread-safe. Contents not seen for a long time get new ids, and are computed again. When all ids are used, they
    start over in a new round, whose number belongs to the keys of cached blocks.
    """

    _known: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    _next: int = -1
    _round: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, spans: Sequence[NDArray[np.float32]]) -> tuple[int, list[range]]:
        """Return the ids' round, and the ids of each span's positions, for all spans ``[n, n_embd]`` of a prompt."""
        keys = [_key(rows) for rows in spans]
        with self._lock:
            if -self._next + sum(map(len, spans)) > MOST_IDS:
                self._known.clear()
                self._next, self._round = -1, self._round + 1
            return self._round, [self._assign(key, len(rows)) for key, rows in zip(keys, spans, strict=True)]

    def _assign(self, key: bytes, n: int) -> range:
        first = self._known.setdefault(key, self._next)
        if first == self._next:
            self._next -= n
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return range(first, first - n, -1)


def _key(rows: NDArray[np.float32]) -> bytes:
    """Return a hash of the contents and the shape of rows."""
    shape = np.array(rows.shape, np.int64).tobytes()
    return hashlib.blake2b(shape + rows.tobytes(), digest_size=32, person=b"media span").digest()


@dataclass(frozen=True)
class MediaRows:
    """The embeddings of a prompt's media by id of their position; ``round`` is that of the ids."""

    spans: Sequence[tuple[range, NDArray[np.float32]]]
    round: int = 0

    def of(self, id: int) -> NDArray[np.float32]:
        """Return the row ``[n_embd]`` of a negative id."""
        for ids, rows in self.spans:
            if id in ids:
                return rows[ids.index(id)]
        raise RuntimeError(f"the media id {id} belongs to no span of its prompt")


def place_spans(prompt: Sequence[int], spans: Sequence[Span], ids: MediaIds, width: int) -> tuple[list[int], MediaRows]:
    """Return a prompt with ids of media at the positions of its spans, and their rows.

    Args:
        prompt: token ids; those at positions of spans are ignored.
        spans: in the order of their positions.
        ids: assigns ids to contents.
        width: values of a row; 0 if the model takes no media.

    Raises:
        RequestError: a span does not fit the prompt or the model.
    """
    tokens, end, checked = list(prompt), 0, []
    for number, span in enumerate(spans):
        where, n = f"media[{number}]", len(span.rows)
        if not width:
            raise RequestError(f"{where}: this model takes no images or sound; load it with its projector (mmproj)")
        if span.rows.ndim != 2 or span.rows.shape[1] != width or not n:
            raise RequestError(f"{where}.rows: expected [n, {width}] values, not {list(span.rows.shape)}")
        rows = np.ascontiguousarray(span.rows, np.float32)
        if not np.isfinite(rows).all():
            raise RequestError(f"{where}.rows: a value is not a finite number; the projector's file may be damaged")
        if not end <= span.start <= len(tokens) - n:
            raise RequestError(f"{where}.start: {n} positions from {span.start} on do not fit the prompt")
        end = span.start + n
        checked.append(rows)
    number_of_round, ranges = ids.of(checked)
    for span, positions in zip(spans, ranges, strict=True):
        tokens[span.start : span.start + len(positions)] = positions
    return tokens, MediaRows(list(zip(ranges, checked, strict=True)), number_of_round)
