"""A process that reads the headers of models, for a server that lists those which are not loaded."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pumice.errors import EngineError, PumiceError
from pumice.gguf import GGUFFile
from pumice.isolation.wire import read_frame, take_standard_streams, write_frame
from pumice.process.codec import REPORTS, Summarized
from pumice.process.header import Header
from pumice.spawning import spawns, start
from pumice.summary import Summary

_SECONDS = 60.0
_MAX_BYTES = 1 << 24  # of a chat template, say


def read_summaries(paths: Sequence[Path]) -> list[Summary | None]:
    """What the headers of GGUF files say; None for one that is not to be read.

    A process of its own reads them where this one has a spawner. Raises PumiceError, OSError.
    """
    if not spawns() or not paths:
        return [_read(path) for path in paths]
    child = start("reader", msgspec.msgpack.encode([os.fsencode(path) for path in paths]))
    timer = threading.Timer(_SECONDS, child.kill)
    timer.start()
    try:
        return [_told(read_frame(child.stdout, _MAX_BYTES)) for _ in paths]
    except OverflowError as error:
        raise EngineError(f"the reader of headers sends {error} bytes") from None
    finally:
        timer.cancel()
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _told(data: bytes | None) -> Summary | None:
    told = REPORTS.decode(data or b"")
    if not isinstance(told, Summarized):
        raise EngineError(f"the reader of headers says {type(told).__name__}")
    return told.header.read()[1] if told.header else None


def _read(path: Path) -> Summary | None:
    try:
        with GGUFFile.open(path) as file:
            return Summary.of(file)
    except PumiceError:
        return None


def main(paths: Sequence[str]) -> None:
    _, answers = take_standard_streams()
    for path in paths:
        summary = _read(Path(path))
        header = Header.of(summary.metadata, summary, []) if summary else None
        write_frame(answers, REPORTS.encode(Summarized(header)))


if __name__ == "__main__":
    main(sys.argv[1:])
