"""`Trial`: executes a target's check on inputs, with a record that survives a crash of the process."""

import struct
import traceback
from collections.abc import Callable
from hashlib import sha256
from mmap import mmap
from pathlib import Path
from time import perf_counter, thread_time

from fuzz.targets import Target

SLOW = 3.0  # seconds of CPU time for one input
_HEADER = struct.Struct("<QQI")
_ROOM = 1 << 16


class Record:
    """Number of executions and finds, and the current input, in a file that the parent process reads."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEADER.size + _ROOM))
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 0)

    def write(self, executions: int, finds: int, data: bytes) -> None:
        memory, size = self._memory, _HEADER.size
        _HEADER.pack_into(memory, 0, executions, finds, len(data))
        memory[size : size + len(data)] = data

    def read(self) -> tuple[int, int, bytes]:
        """Return executions, finds and the last input."""
        executions, finds, length = _HEADER.unpack_from(self._memory)
        return executions, finds, self._memory[_HEADER.size : _HEADER.size + length]


class Trial:
    """Runs a target's check; exceptions and slow inputs are finds, stored once per location in the code."""

    def __init__(self, target: Target, record: Record, finds: Path, report: Callable[[str], None]) -> None:
        self._target = target
        self._record = record
        self._folder = finds
        self._report = report
        self._places: set[str] = set()
        self.executions = 0

    def __call__(self, data: bytes) -> None:
        data = data[:_ROOM]
        self.executions += 1
        self._record.write(self.executions, len(self._places), data)
        started = perf_counter()  # cheaper than the time of the processor
        try:
            self._target.check(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._keep(_place(error), "".join(traceback.format_exception(error)), data)
        else:
            if perf_counter() - started > SLOW and all(self._seconds(data) > SLOW for _ in range(3)):
                self._keep("slow", f"more than {SLOW} s of CPU time for {len(data)} bytes", data)

    def _seconds(self, data: bytes) -> float:
        started = thread_time()
        self._target.check(data)
        return thread_time() - started

    def _keep(self, place: str, what: str, data: bytes) -> None:
        if place in self._places:
            return
        self._places.add(place)
        self._record.write(self.executions, len(self._places), data)
        path = keep(self._folder, self._target.name, data, place)
        self._report(f"FIND {self._target.name}: {path}\n{what}")


def keep(folder: Path, name: str, data: bytes, place: str = "") -> Path:
    """Write an input to a folder and return its path, which the place decides, or the data if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{sha256(place.encode() or data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _place(error: BaseException) -> str:
    """Return the type of an error and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    asserted = frames[-2] if last.name == "check_linear" and len(frames) > 1 else last
    return f"{type(error).__name__} {asserted.filename}:{asserted.lineno}"
