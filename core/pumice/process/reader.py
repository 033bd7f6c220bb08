"""Read the headers of models in a separate process, for a server that lists models that are not loaded."""

from __future__ import annotations

import contextlib
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
from pumice.model_files.summary import Summary
from pumice.process.codec import MAX_LOADING_BYTES, REPORTS, Summarized
from pumice.process.header import Header
from pumice.spawning import end, spawns, start

_SECONDS = 60.0

logger = logging.getLogger("pumice")


def read_summaries(paths: Sequence[Path]) -> list[Summary | None]:
    """Return the summaries of GGUF files; None for files that cannot be read.

    If this process has a spawner, a separate process reads them, within its sandbox. Raises PumiceError, OSError.
    """
    if not spawns() or not paths:
        return [_read(path) for path in paths]
    child = start("reader", msgspec.msgpack.encode([os.fsencode(path) for path in paths]))
    timer = threading.Timer(_SECONDS, child.kill)
    timer.start()
    try:
        return [_told(path, read_frame(child.stdout, MAX_LOADING_BYTES)) for path in paths]
    except OverflowError as error:
        raise EngineError(f"the reader of headers sent a message of {error} bytes, which exceeds the limit") from None
    finally:
        timer.cancel()
        end(child)
        child.stdin.close()
        child.stdout.close()


def _told(path: Path, data: bytes | None) -> Summary | None:
    if data is None:
        raise EngineError(f"the reader of headers ended before {path}")
    try:
        report = REPORTS.decode(data)
        if not isinstance(report, Summarized):
            raise EngineError(f"unexpected message {type(report).__name__} from the reader of headers")
        return report.header.read()[1] if report.header else None
    except EngineError as error:  # other headers may still be valid
        logger.warning("%s: the header cannot be read: %s", path, error)
        return None


def _read(path: Path) -> Summary | None:
    try:
        with GGUFFile.open(path) as file:
            return Summary.of(file)
    except PumiceError:
        return None


def main(paths: Sequence[str]) -> None:
    """Send the summary of each file in turn. An empty path stands for a file that must not be read."""
    _, answers = take_standard_streams()
    with contextlib.suppress(BrokenPipeError):  # the parent was killed
        for path in paths:
            write_frame(answers, _report(Path(path)) if path else REPORTS.encode(Summarized(None)))


def _report(path: Path) -> bytes:
    try:
        summary = _read(path)
        return REPORTS.encode(Summarized(Header.of(summary.metadata, summary) if summary else None))
    except (PumiceError, ValueError):  # the metadata is too large, or not valid text
        return REPORTS.encode(Summarized(None))


if __name__ == "__main__":
    main(sys.argv[1:])
