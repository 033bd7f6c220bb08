"""Files that are there whole or not at all: a temporary name in the same folder, then a rename."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pumice.errors import GGUFError


def check_output(path: Path, force: bool) -> None:
    """GGUFError if a file cannot come into being at ``path``, or one is there already and ``force`` is not said."""
    with write_errors(path):
        if path.exists():
            if not path.is_file():
                raise GGUFError(f"{path}: is not a regular file")
            if not force:
                raise GGUFError(f"{path}: exists already; give --force to replace it")
        elif path.is_symlink():
            raise GGUFError(f"{path}: is a link to a file that does not exist")
        if not path.parent.is_dir():
            raise GGUFError(f"{path}: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise GGUFError(f"{path}: the folder cannot be written to")


def check_space(folder: Path, n_bytes: int) -> None:
    """GGUFError if the disk has no room for so much."""
    with write_errors(folder):
        free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise GGUFError(f"{folder}: {n_bytes:,} bytes are to be written but {free:,} are free")


class NewFiles:
    """Files written under temporary names, which get their own when all of them are whole.

    A context manager: leaving it without an error puts the files in place, the first one last, since that is the
    one that is opened; after an error they are removed, and what was there before stays. Links are followed.
    GGUFError names the file that cannot be written.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, force: bool = False) -> None:
        self.paths = [Path(path) for path in paths]
        self.force = force
        self._written: list[tuple[Path, Path]] = []  # temporary name, own name
        self._file: BinaryIO | None = None

    def __enter__(self) -> "NewFiles":
        for path in self.paths:
            check_output(path, self.force)
        return self

    def next(self) -> None:
        """Begin the next file."""
        self._finish()
        path = Path(os.path.realpath(self.paths[len(self._written)]))
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        with write_errors(path):
            self._file = temporary.open("xb")
            self._written.append((temporary, path))

    def write(self, data: bytes | memoryview) -> None:
        """Append to the current file."""
        assert self._file is not None
        with write_errors(self._written[-1][1]):
            self._file.write(data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
                self._put_in_place()
        finally:
            if self._file is not None:
                with contextlib.suppress(OSError):  # of a full disk, which was named when it was met first
                    self._file.close()
            for temporary, _ in self._written:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def _finish(self) -> None:
        """The current file's bytes are on the disk."""
        if self._file is not None:
            with write_errors(self._written[-1][1]):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            self._file = None

    def _put_in_place(self) -> None:
        for _, path in self._written:
            check_output(path, self.force)  # another may have come meanwhile
        for temporary, path in reversed(self._written):
            with write_errors(path):
                if path.exists():
                    shutil.copymode(path, temporary)
                os.replace(temporary, path)
                _sync_folder(path.parent)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Errors of the system as a GGUFError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise GGUFError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _sync_folder(folder: Path) -> None:
    """The folder's new names are on the disk, where the system can say so."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
