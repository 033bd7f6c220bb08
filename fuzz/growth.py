"""Checks for linear cost: a text twice as long takes twice as long, not four times."""

from collections.abc import Callable
from time import thread_time
from zlib import crc32

_SMALL = 2_000  # characters
_FACTOR = 8
_ENOUGH = 0.25  # seconds; smaller times are noise and not judged
_ALLOWED = 3 * _FACTOR  # quadratic growth would be 64 times
_PATIENCE = 5  # maximum measurements, of which the best counts


def chosen(data: bytes, one_in: int) -> bool:
    """Return True for one of ``one_in`` inputs, deterministically: selects inputs for costly properties."""
    return crc32(data) % one_in == 0


def check_linear(act: Callable[[str], object], begin: str, unit: str, end: str = "") -> None:
    """Raise AssertionError if the cost of ``act`` grows faster than the number of repetitions of ``unit``."""
    if not unit:
        return
    n = max(1, _SMALL // len(unit))
    small, large = begin + unit * n + end, begin + unit * n * _FACTOR + end
    cost = _seconds(act, large)
    if cost < _ENOUGH:
        return
    cost = min([cost, *(_seconds(act, large) for _ in range(_PATIENCE))])
    base = min(_seconds(act, small) for _ in range(_PATIENCE))
    assert cost < max(_ENOUGH, _ALLOWED * base), (
        f"{len(large)} characters take {cost:.2f} s, {len(small)} take {base:.3f} s: {unit!r} repeated"
    )


def _seconds(act: Callable[[str], object], text: str) -> float:
    started = thread_time()
    act(text)
    return thread_time() - started
