"""Where a sound has speech: by silero's voice detector, or by its loudness; and where to cut it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

from pumice.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

Detector = Literal["off", "auto", "silero", "energy"]
RATE: Final = 16_000  # samples a second
LONGEST: Final = 30 * RATE  # samples of a piece
_SEARCHED = 5 * RATE  # samples at its end among which the quietest place is where it is cut
_FRAME = RATE // 50  # samples whose loudness is measured together
_SILENCE = 2 * RATE  # samples of the shortest silence that is skipped
_KEPT = 2 * RATE // 5  # samples of it that remain on each side
_BELOW, _QUIET = 35, -60  # decibels below loud speech, and below full scale, of silence
_LOUD = 95  # percentile of loud speech among frames
_FLOOR = 1e-12


@dataclass(frozen=True)
class Speech:
    """The parts of a sound with speech, one behind the other.

    Attributes:
        samples: float32 ``[n]``, 16,000 a second.
        spans: first sample and end of each part in the whole sound.
    """

    samples: Samples
    spans: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, samples: Samples, detector: Detector) -> Speech:
        """Return the speech of a sound. Raises RequestError if the detector is not installed."""
        import numpy as np

        if detector == "off":
            return cls(samples, [(0, len(samples))])
        if detector == "silero" or (detector == "auto" and find_spec("silero_vad") is not None):
            spans = _by_silero(samples)
        else:
            spans = _by_energy(samples)
        parts = [samples[start:end] for start, end in spans]
        return cls(np.concatenate(parts) if parts else samples[:0], spans)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(end - start for start, end in self.spans))

    def second(self, place: float, is_end: bool = False) -> float:
        """Return the second of the whole sound for a sample of its speech; at a cut that before it, for an end."""
        if not self.spans:
            return 0.0
        number = (bisect_left if is_end else bisect_right)(self._ends, place)
        number = min(number, len(self.spans) - 1)
        return (self.spans[number][1] - (self._ends[number] - place)) / RATE


def pieces(samples: Samples) -> Iterator[tuple[int, int]]:
    """Yield first sample and end of each piece of up to 30 seconds, cut at the quietest place of its last seconds."""
    import numpy as np

    start = 0
    while len(samples) - start > LONGEST:
        end = start + LONGEST
        quietest = int(np.argmin(_energy(samples[end - _SEARCHED : end])))
        cut = end - _SEARCHED + quietest * _FRAME + _FRAME // 2
        yield start, cut
        start = cut
    yield start, len(samples)


def _energy(samples: Samples) -> Samples:
    """Return the mean square of each whole frame."""
    import numpy as np

    frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
    energy: Samples = np.einsum("ij,ij->i", frames, frames) / _FRAME
    return energy


def _by_energy(samples: Samples) -> list[tuple[int, int]]:
    """Return what is left of a sound without long silence, which is quiet beside its loud parts."""
    import numpy as np

    energy = _energy(samples)
    if not len(energy):
        return [(0, len(samples))]
    level = 10 * np.log10(energy + _FLOOR)
    loud = np.flatnonzero(level > max(float(np.percentile(level, _LOUD)) - _BELOW, _QUIET)) * _FRAME
    return _joined([(int(first), int(first) + _FRAME) for first in loud], len(samples))


def _joined(spans: Sequence[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    """Return spans without short silence between them, and with a part of the silence around them."""
    made: list[tuple[int, int]] = []
    for start, end in spans:
        if made and start - made[-1][1] < _SILENCE:
            made[-1] = made[-1][0], end
        else:
            made.append((start, end))
    return [(max(start - _KEPT, 0), min(end + _KEPT, n)) for start, end in made]


def _by_silero(samples: Samples) -> list[tuple[int, int]]:
    """Return the spans in which silero's model finds a voice. Raises RequestError if its package is missing."""
    if find_spec("silero_vad") is None:
        raise RequestError(
            "vad: 'silero' needs the package silero-vad (pip install silero-vad); 'energy' needs nothing"
        )
    import torch  # type: ignore[import-not-found,unused-ignore]  # of the optional package
    from silero_vad import get_speech_timestamps, load_silero_vad  # type: ignore[import-not-found,unused-ignore]

    found = get_speech_timestamps(torch.from_numpy(samples.copy()), load_silero_vad(), sampling_rate=RATE)
    return _joined([(span["start"], span["end"]) for span in found], len(samples))
