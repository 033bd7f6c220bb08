"""Media in prompts: spans of embedding rows, with ids for their positions that equal contents share."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MediaKind, MediaRules
from pumice.embeddings import Embeddings
from pumice.errors import RequestError
from pumice.graph.media import N_AXES

MOST_KNOWN = 4096  # contents whose ids are kept
MOST_IDS = 2**31 - 1  # int32
MOST_TIME = 1 << 20  # places in time of a video
PLAIN = MediaRules()
NOT_FINITE = "a value is not a finite number; the projector's file may be damaged"


def are_finite(rows: NDArray[np.float32]) -> bool:
    """Return True if all values are finite numbers."""
    return not rows.size or bool(np.isfinite(rows.min()) and np.isfinite(rows.max()))  # of NaN and others, both are NaN


def keyed(parts: Sequence[str | Embeddings], content: NDArray[Any], form: object = None) -> list[str | Embeddings]:
    """Return the parts of an encoded image or sound with keys, by which equal ones are known without their rows.

    Args:
        parts: what stands for it in a prompt.
        content: its pixels or samples.
        form: what else decides the rows.

    Raises:
        RequestError: a value is not finite.
    """
    digest = hashlib.blake2b(repr((content.shape, content.dtype.str, form)).encode(), digest_size=32)
    digest.update(np.ascontiguousarray(content).data)
    named: list[str | Embeddings] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            named.append(part)
            continue
        assert part.rows is not None
        if not are_finite(part.rows):
            raise RequestError(f"{part.kind}: {NOT_FINITE}")
        key = hashlib.blake2b(b"%s %d" % (part.kind.encode(), number), digest_size=32, key=digest.digest())
        named.append(replace(part, key=key.digest()))
    return named


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

    def of(self, spans: Sequence[Embeddings], both_ways: Collection[MediaKind] = ()) -> tuple[int, list[range]]:
        """Return the ids' round, and the ids of each span's positions, for all spans of a prompt.

        ``both_ways``: kinds of spans whose positions attend to each other. Equal rows in another form have other
        states, and other ids.
        """
        keys = [_key(span, span.kind in both_ways) for span in spans]
        with self._lock:
            if -self._next + sum(span.n_rows for span in spans) > MOST_IDS:
                self._known.clear()
                self._next, self._round = -1, self._round + 1
            return self._round, [self._assign(key, span.n_rows) for key, span in zip(keys, spans, strict=True)]

    def _assign(self, key: bytes, n: int) -> range:
        first = self._known.setdefault(key, self._next)
        if first == self._next:
            self._next -= n
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return range(first, first - n, -1)


def _key(span: Embeddings, together: bool) -> bytes:
    """Return a hash of the shape and the form of rows, and of their key or, without one, of their contents."""
    assert span.rows is not None
    shape = np.array([*span.rows.shape, together, *(span.grid or ()), *span.times], np.int64).tobytes()
    digest = hashlib.blake2b(shape, digest_size=32, key=span.key, person=b"media span")
    if not span.key:
        digest.update(np.ascontiguousarray(span.rows).reshape(-1).view(np.uint8).data)
    return digest.digest()


@dataclass(frozen=True)
class MediaRows:
    """The embeddings of a prompt's media by id of their position.

    Attributes:
        spans: ids of consecutive positions, and their rows.
        round: that of the ids.
        together: ids of spans whose positions attend to each other, so that each is read in one step.
        places: int32 ``[n, 3]``: place in time, row and column of each position of the prompt, if the model's
            positions have axes; else None.
    """

    spans: Sequence[tuple[range, NDArray[np.float32]]]
    round: int = 0
    together: Sequence[range] = ()
    places: NDArray[np.int32] | None = None

    def copy_rows(self, ids: NDArray[np.int32], rows: NDArray[np.float32]) -> int:
        """Copy the row of each negative id into ``rows``, zero the others, and return the number of negative ids.

        Ids of neighbours in a span are neighbours in a prompt, so that few ranges are copied whole.

        Raises RuntimeError for ids of other prompts.
        """
        media = ids < 0
        rows[~media] = 0
        places = np.nonzero(media)[0]
        ends = np.nonzero((np.diff(places) != 1) | (np.diff(ids[places]) != -1))[0] + 1
        for part in np.split(places, ends) if len(places) else ():
            start, end = int(part[0]), int(part[-1]) + 1
            while start < end:  # spans may follow each other
                own = self._rows_from(int(ids[start]))[: end - start]
                rows[start : start + len(own)] = own
                start += len(own)
        return len(places)

    def _rows_from(self, id: int) -> NDArray[np.float32]:
        """Return the rows of a span from an id on."""
        for ids, rows in self.spans:
            if id in ids:
                return rows[ids.index(id) :]
        raise RuntimeError(f"the media id {id} belongs to no span of its prompt")

    def n_together(self, id: int) -> int:
        """Return the positions from an id to the end of its span if they attend to each other, else 0."""
        return next((len(ids) - ids.index(id) for ids in self.together if id in ids), 0)

    @property
    def forms(self) -> set[bool]:
        """The values of ``Batch.together`` in steps with media of its prompt and of what follows."""
        apart = self.places is not None or len(self.together) < len(self.spans)
        return ({True} if self.together else set()) | ({False} if apart else set())

    def places_from(self, start: int, n: int) -> NDArray[np.int32]:
        """Return the places ``[n, N_AXES]`` of positions, which may continue after the prompt."""
        if self.places is None:
            return text_places(start, n)
        n_known, shift = len(self.places), 0 if not len(self.places) else self._next - len(self.places)
        return np.concatenate([self.places[start : start + n], shift + text_places(max(start, n_known), n)])[:n]

    @property
    def _next(self) -> int:
        """The place of the first token after the prompt."""
        assert self.places is not None
        return int(self.places.max()) + 1


def text_places(start: int, n: int) -> NDArray[np.int32]:
    """Return the places ``[n, N_AXES]`` of text, which are its positions on every axis."""
    return np.repeat(np.arange(start, start + n, dtype=np.int32)[:, None], N_AXES, axis=1)


def _places(n_prompt: int, spans: Sequence[Embeddings]) -> NDArray[np.int32]:
    """Return the places ``[n_prompt, N_AXES]`` of a prompt's positions (M-RoPE, Wang et al. 2024, arXiv:2409.12191).

    Images stand still in time while their rows and columns count; what follows continues after the larger of both.
    Frames of a video have such a grid each, at their places in time; what follows continues after the largest place.
    """
    places, end, next_place = [np.zeros((0, N_AXES), np.int32)], 0, 0
    for span in spans:
        places.append(text_places(next_place, span.start - end))
        next_place += span.start - end
        end = span.start + span.n_rows
        rows, columns = span.grid or (1, span.n_rows)
        times = np.array(span.times or (0,), np.int32)
        cells = np.pad(np.indices((len(times), rows, columns), np.int32).reshape(3, -1).T, ((0, 0), (0, 1)))
        cells[:, 0] = times[cells[:, 0]]
        places.append(cells + np.int32(next_place) if span.grid else text_places(next_place, span.n_rows))
        next_place += max(rows, columns, int(times.max()) + 1)
    return np.concatenate([*places, text_places(next_place, n_prompt - end)])


def _places_of_own_grids(n_prompt: int, spans: Sequence[Embeddings]) -> NDArray[np.int32]:
    """Return the places ``[n_prompt, N_AXES]`` of a prompt for ``MediaRules.own_grid``."""
    places = text_places(0, n_prompt)
    for number, span in enumerate(span for span in spans if span.grid):
        inside = places[span.start : span.start + span.n_rows]
        cells = np.indices(span.grid or (), np.int32).reshape(2, -1).T
        inside[:, 1:3] = np.tile(cells, (max(len(span.times), 1), 1))
        inside[:, 3] = number
    return places


def place_spans(
    prompt: Sequence[int],
    spans: Sequence[Embeddings],
    ids: MediaIds,
    width: int,
    rules: MediaRules = PLAIN,
    n_batch: int = MOST_IDS,
) -> tuple[list[int], MediaRows]:
    """Return a prompt with ids of media at the positions of its spans, and their rows.

    Args:
        prompt: token ids; those at positions of spans are ignored.
        spans: in the order of their positions.
        ids: assigns ids to contents.
        width: values of a row; 0 if the model takes no media.
        rules: those of the model.
        n_batch: maximum positions of a step.

    Raises:
        RequestError: a span does not fit the prompt or the model.
    """
    tokens, end = list(prompt), 0
    checked: list[NDArray[np.float32]] = []
    for number, span in enumerate(spans):
        where, n = f"media[{number}]", span.n_rows
        if not width:
            raise RequestError(f"{where}: this model takes no images or sound; load it with its projector (mmproj)")
        if span.rows is None:
            raise RequestError(f"{where}.rows: this engine keeps no rows")
        if span.rows.ndim != 2 or span.rows.shape[1] != width or not n:
            raise RequestError(f"{where}.rows: expected [n, {width}] values, not {list(span.rows.shape)}")
        rows = np.ascontiguousarray(span.rows, np.float32)
        if not span.key and not are_finite(rows):
            raise RequestError(f"{where}.rows: {NOT_FINITE}")
        if not end <= span.start <= len(tokens) - n:
            raise RequestError(f"{where}.start: {n} positions from {span.start} on do not fit the prompt")
        if span.kind in rules.both_ways and n > n_batch:
            raise RequestError(f"{where}: {n} positions must be read in one step; load the model with n_batch={n}")
        if rules.windowless and n > rules.windowless:
            raise RequestError(f"{where}: {n} positions; this model reads at most {rules.windowless} of an image")
        if span.grid and not rules.axes:
            raise RequestError(f"{where}: the projector needs positions of rows and columns, which this model lacks")
        n_frames = max(len(span.times), 1)
        if span.grid and span.grid[0] * span.grid[1] * n_frames != n:
            frames = f"{n_frames} x " if span.times else ""
            raise RequestError(f"{where}.grid: {frames}{span.grid[0]} x {span.grid[1]} do not fit {n} rows")
        if span.times and not 0 <= min(span.times) <= max(span.times) < MOST_TIME:
            raise RequestError(f"{where}.times: expected 0 to {MOST_TIME - 1}")
        end = span.start + n
        checked.append(rows)
    number_of_round, ranges = ids.of(spans, rules.both_ways)
    for span, positions in zip(spans, ranges, strict=True):
        tokens[span.start : span.start + len(positions)] = positions
    make = _places_of_own_grids if rules.own_grid else _places
    places = make(len(tokens), spans) if rules.axes else None
    together = [positions for span, positions in zip(spans, ranges, strict=True) if span.kind in rules.both_ways]
    return tokens, MediaRows(list(zip(ranges, checked, strict=True)), number_of_round, together, places)
