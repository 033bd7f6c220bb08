"""Places in an engine's cache for steps that a test submits itself, while nothing else runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from pumice.engine import Engine
from pumice.engine.requests.batches import Place


@contextmanager
def taken(engine: Engine, n_positions: int, n_seqs: int = 1) -> Iterator[list[Place]]:
    """Return places of this many sequences, with blocks for their positions."""
    places = [Place(slot, engine.cache.begin([])[0]) for slot in range(n_seqs)]
    assert all(engine.cache.extend(place.tables, 0, n_positions) for place in places)
    yield places
    for place in places:
        engine.cache.release(place.tables)
