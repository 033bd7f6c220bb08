"""Read the headers of models in a separate process, for a server that lists models that are not loaded."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pumice.errors import EngineError, PumiceError, TokenizerError
from pumice.gguf import GGUFFile
from pumice.isolation.wire import read_frame, take_standard_streams, write_frame
from pumice.model_files.summary import Summary
from pumice.process.codec import MAX_LOADING_BYTES, REPORTS, VOCABULARIES, Summarized
from pumice.process.header import Header
from pumice.spawning import end, spawns, start
from pumice.tokenizers import from_metadata, has_tokenizer, is_built_in
from pumice.wording import printable

MOST_PROBLEM = 500  # characters
_SECONDS = 60.0

logger = logging.getLogger("pumice")


def read_summaries(paths: Sequence[Path]) -> list[Summary | None]:
    """Return the summaries of GGUF files; None for files that cannot be read.

    If this process has a spawner, a separate process reads them, within its sandbox. Raises PumiceError, OSError.
    """
    if not spawns() or not paths:
        return [_read(path) for path in paths]
    summaries = []
    for path, report in _reports(paths, checks=False):
        try:
            summaries.append(report.header.read()[1] if report.header else None)
        except EngineError as error:  # other headers may still be valid
            logger.warning("%s: the header cannot be read: %s", path, error)
            summaries.append(None)
    return summaries


def read_vocabulary_problem(path: Path) -> str:
    """Return why the tokenizer of a GGUF file cannot be made; empty if it can, or if the file has none.

    Read as by ``read_summaries``. The tokenizers of plugins are not tried. Raises PumiceError, OSError.
    """
    if not spawns():
        return _vocabulary_problem(path)
    ((_, report),) = _reports([path], checks=True)
    return report.problem


def _reports(paths: Sequence[Path], checks: bool) -> Iterator[tuple[Path, Summarized]]:
    """Yield a reader process's report on each file: its vocabulary's problem if it ``checks``, else its header."""
    child = start("reader", msgspec.msgpack.encode((checks, [os.fsencode(path) for path in paths])))
    timer = threading.Timer(_SECONDS, child.kill)
    timer.start()
    try:
        for path in paths:
            yield path, _told(path, read_frame(child.stdout, MAX_LOADING_BYTES))
    except OverflowError as error:
        raise EngineError(f"the reader of headers sent a message of {error} bytes, which exceeds the limit") from None
    finally:
        timer.cancel()
        end(child)
        child.stdin.close()
        child.stdout.close()


def _told(path: Path, data: bytes | None) -> Summarized:
    if data is None:
        raise EngineError(f"the reader of headers ended before {path}")
    try:
        report = REPORTS.decode(data)
    except EngineError as error:
        logger.warning("%s: the header cannot be read: %s", path, error)
        return Summarized(None)
    if isinstance(report, Summarized):
        return report
    logger.warning("%s: unexpected message %s from the reader of headers", path, type(report).__name__)
    return Summarized(None)


def _read(path: Path) -> Summary | None:
    try:
        with GGUFFile.open(path) as file:
            return Summary.of(file)
    except PumiceError:
        return None


def _vocabulary_problem(path: Path) -> str:
    with GGUFFile.open(path) as file:
        try:
            if has_tokenizer(file.metadata) and is_built_in(file.metadata):
                from_metadata(file.metadata).prepare()  # also what is made at the first text, such as merges
        except TokenizerError as error:
            return str(error)
        return ""


def main(arguments: Sequence[str]) -> None:
    """Send the report on each file in turn; the arguments are ``headers`` or ``vocabularies``, then paths.

    An empty path stands for a file that must not be read.
    """
    order, *paths = arguments
    report = _problem_report if order == VOCABULARIES else _report
    _, answers = take_standard_streams()
    with contextlib.suppress(BrokenPipeError):  # the parent was killed
        for path in paths:
            write_frame(answers, report(Path(path)) if path else REPORTS.encode(Summarized(None)))


def _report(path: Path) -> bytes:
    try:
        summary = _read(path)
        return REPORTS.encode(Summarized(Header.of(summary.metadata, summary) if summary else None))
    except (PumiceError, ValueError):  # the metadata is too large, or not valid text
        return REPORTS.encode(Summarized(None))


def _problem_report(path: Path) -> bytes:
    try:
        problem = _vocabulary_problem(path)
    except PumiceError as error:
        problem = str(error).replace(str(path), path.name)  # a client knows its file's name, and gets this text
    return REPORTS.encode(Summarized(None, printable(problem)[:MOST_PROBLEM]))


if __name__ == "__main__":
    main(sys.argv[1:])
