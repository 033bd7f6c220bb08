"""A process that reads the headers of models, for a server that lists those which are not loaded."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pumice.errors import EngineError, PumiceError
from pumice.gguf import GGUFFile
from pumice.isolation.wire import read_frame, take_standard_streams, write_frame
from pumice.process.codec import MAX_LOADING_BYTES, REPORTS, Summarized
from pumice.process.header import Header
from pumice.spawning import spawns, start
from pumice.summary import Summary

_SECONDS = 60.0

logger = logging.getLogger("pumice")


def read_summaries(paths: Sequence[Path]) -> list[Summary | None]:
    """What the headers of GGUF files say; None for one that is not to be read.

    A process of its own reads them where this one has a spawner; one that it may not read is none to be read.
    Raises PumiceError, OSError.
    """
    if not spawns() or not paths:
        return [_read(path) for path in paths]
    child = start("reader", msgspec.msgpack.encode([os.fsencode(path) for path in paths]))
    timer = threading.Timer(_SECONDS, child.kill)
    timer.start()
    try:
        return [_told(path, read_frame(child.stdout, MAX_LOADING_BYTES)) for path in paths]
    except OverflowError as error:
        raise EngineError(f"the reader of headers sends {error} bytes") from None
    finally:
        timer.cancel()
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _told(path: Path, data: bytes | None) -> Summary | None:
    if data is None:
        raise EngineError(f"the reader of headers ended before it told that of {path}")
    try:
        told = REPORTS.decode(data)
        if not isinstance(told, Summarized):
            raise EngineError(f"the reader of headers says {type(told).__name__}")
        return told.header.read()[1] if told.header else None
    except EngineError as error:  # those of other files can be read
        logger.warning("%s: its header cannot be read: %s", path, error)
        return None


def _read(path: Path) -> Summary | None:
    try:
        with GGUFFile.open(path) as file:
            return Summary.of(file)
    except PumiceError:
        return None


def main(paths: Sequence[str]) -> None:
    """Tell of each file in turn. An empty path is one that is not to be read."""
    _, answers = take_standard_streams()
    for path in paths:
        write_frame(answers, _report(Path(path)) if path else REPORTS.encode(Summarized(None)))


def _report(path: Path) -> bytes:
    try:
        summary = _read(path)
        return REPORTS.encode(Summarized(Header.of(summary.metadata, summary, []) if summary else None))
    except (PumiceError, ValueError):  # of metadata that are too large, or no text
        return REPORTS.encode(Summarized(None))


if __name__ == "__main__":
    main(sys.argv[1:])
