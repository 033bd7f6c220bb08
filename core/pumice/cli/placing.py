"""Outputs of a confined command: written to temporary folders, then moved by an unconfined process forked earlier.

The command itself cannot change the user's files. The other process moves files only to paths of the command line, and
replaces existing files only with ``--force``, except those that it moved itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from pumice.cli.files import WrittenFiles
from pumice.gguf.output import FilePlacement, write_errors
from pumice.spawning.fork import detach, fork_helper

WRITTEN, COMPLETE = "written", "complete"  # folder that the command writes to; file beside it, out of its reach
_MAX_BYTES = 1 << 16  # maximum size of a message, which holds two paths


class Placer(FilePlacement):
    """Delegates moving files to another process.

    Args:
        folders: temporary folders by the folders of the outputs.
        channel: socket to the other process.
    """

    def __init__(self, folders: dict[Path, Path], channel: socket.socket) -> None:
        self.folders = folders
        self._channel = channel

    def temporary(self, path: Path) -> Path:
        folder = self.folders.get(path.parent)
        return super().temporary(path) if folder is None else folder / path.name

    def put(self, temporary: Path, path: Path, force: bool) -> None:
        """Ask the other process, which decides on its own whether an existing file is replaced."""
        self._channel.send(json.dumps([os.fspath(temporary), os.fspath(path)]).encode("utf-8", "surrogatepass"))
        answer = json.loads(self._channel.recv(_MAX_BYTES) or b'[5, "the process that puts files in place has ended"]')
        if answer:
            raise OSError(*answer)


@contextlib.contextmanager
def placer(outputs: Sequence[WrittenFiles]) -> Iterator[Placer]:
    """Create the temporary folders, and fork the process that moves files. Call this before another thread starts."""
    folders: dict[Path, Path] = {}
    for folder in {output.folder for output in outputs}:
        if folder.is_dir() and os.access(folder, os.W_OK):  # else the command says why not
            with write_errors(folder):
                folders[folder] = Path(tempfile.mkdtemp(prefix=".pumice-", dir=folder), WRITTEN)
                folders[folder].mkdir()
    helper = fork_helper(lambda channel: _serve(channel, folders, outputs), socket.SOCK_SEQPACKET)
    try:
        yield Placer(folders, helper.channel)
    finally:
        helper.end()


def _serve(channel: socket.socket, folders: dict[Path, Path], outputs: Sequence[WrittenFiles]) -> NoReturn:
    """Move files until the other end closes ``channel``, then remove the temporary folders."""
    try:
        detach(channel)
        placed: set[Path] = set()
        while message := channel.recv(_MAX_BYTES):
            channel.send(json.dumps(_put(message, folders, outputs, placed)).encode())
    except OSError:
        pass  # the other end is gone
    finally:
        for folder in folders.values():
            shutil.rmtree(folder.parent, ignore_errors=True)
        os._exit(0)


def _put(message: bytes, folders: dict[Path, Path], outputs: Sequence[WrittenFiles], placed: set[Path]) -> list[object]:
    """Move a file for the command, which is not trusted, and return the arguments of an OSError, or an empty list."""
    try:
        temporary, path = map(Path, json.loads(message))
        meant = [output for output in outputs if output.folder == path.parent and output.pattern.fullmatch(path.name)]
        if not meant or temporary != folders[path.parent] / path.name:
            raise PermissionError(13, "not an output of this command")
        kept = folders[path.parent].with_name(COMPLETE)  # where the command cannot exchange it
        os.replace(temporary, kept)
        if not stat.S_ISREG(kept.lstat().st_mode):
            raise PermissionError(13, "not an output of this command")
        FilePlacement().put(kept, path, path in placed or any(output.force for output in meant))
        placed.add(path)
    except OSError as error:
        return [error.errno, error.strerror]
    except (ValueError, TypeError, KeyError):
        return [13, "not an output of this command"]
    return []
