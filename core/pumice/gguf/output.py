"""Write files atomically: under a temporary name in the same folder, then renamed."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pumice.errors import GGUFError
from pumice.file_names import NO_FILE, real_path, why_absent

_TRIAL = bytes(4096)  # which a full disk does not take


def check_output(path: Path, force: bool) -> None:
    """Raise GGUFError if ``path`` cannot be written, or exists and ``force`` is False.

    A file under its temporary name is written and removed: permissions do not tell about quotas, long names and disks
    that are full.
    """
    _check_place(path, force)
    with write_errors(path):
        temporary = _placement.temporary(real_path(path))
        with temporary.open("xb") as file:
            try:
                file.write(_TRIAL)
                file.flush()
            finally:
                temporary.unlink()


def _check_place(path: Path, force: bool) -> None:
    """Raise GGUFError if no new file can have this name."""
    with write_errors(path):
        if path.exists():
            if not path.is_file():
                raise GGUFError(f"{path}: not a regular file")
            if not force:
                raise GGUFError(f"{path}: exists already; give --force to replace it")
        elif path.is_symlink():
            reason = why_absent(path)
            raise GGUFError(f"{path}: {'a link to a file that does not exist' if reason == NO_FILE else reason}")
        if not path.parent.is_dir():
            raise GGUFError(f"{path}: the folder {path.parent} does not exist")
        if not os.access(path.parent, os.W_OK):
            raise GGUFError(f"{path}: the folder is not writable")


def check_space(folder: Path, n_bytes: int) -> None:
    """Raise GGUFError if the disk has less than ``n_bytes`` free."""
    with write_errors(folder):
        free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise GGUFError(f"{folder}: {n_bytes:,} bytes are needed, but only {free:,} are free")


class FilePlacement:
    """Creates temporary files and renames them. A confined process delegates this to another process."""

    def temporary(self, path: Path) -> Path:
        """Return a new temporary name of a file that will be renamed to ``path``."""
        return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")

    def put(self, temporary: Path, path: Path, force: bool) -> None:
        """Rename a temporary file to ``path``, with the mode of the file that it replaces.

        Raises OSError: FileExistsError if ``path`` exists and ``force`` is False.
        """
        if not force:
            _put_new(temporary, path)
        else:
            if path.exists():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
        _sync_folder(path.parent)


_placement = FilePlacement()


@contextlib.contextmanager
def placed_by(placement: FilePlacement) -> Iterator[None]:
    """Use ``placement`` for all files written within this context."""
    global _placement
    before, _placement = _placement, placement
    try:
        yield
    finally:
        _placement = before


class NewFiles:
    """Files written under temporary names, which are renamed once all of them are complete.

    A context manager: leaving it without an error renames the files, the first one last, since readers open that one;
    after an error the temporary files are removed, and existing files stay. Links are followed.

    Args:
        paths: names of the files.
        force: replace existing files.

    Raises:
        GGUFError: a file cannot be written; the message names it.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, force: bool = False) -> None:
        self.paths = [Path(path) for path in paths]
        self.force = force
        self._written: list[tuple[Path, Path]] = []  # temporary name, final name
        self._file: BinaryIO | None = None

    def __enter__(self) -> "NewFiles":
        for path in self.paths:
            check_output(path, self.force)
        return self

    def next(self) -> None:
        """Start the next file."""
        self._finish()
        path = real_path(self.paths[len(self._written)])
        temporary = _placement.temporary(path)
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
                with contextlib.suppress(OSError):  # a full disk, which the first error has already reported
                    self._file.close()
            for temporary, _ in self._written:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def _finish(self) -> None:
        """Flush the current file to the disk."""
        if self._file is not None:
            with write_errors(self._written[-1][1]):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
            self._file = None

    def _put_in_place(self) -> None:
        for _, path in self._written:
            _check_place(path, self.force)  # another process may have created it meanwhile
        for temporary, path in reversed(self._written):
            with write_errors(path):
                _placement.put(temporary, path, self.force)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert system errors to a GGUFError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise GGUFError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _put_new(temporary: Path, path: Path) -> None:
    """Rename a temporary file to ``path``. Raises FileExistsError if that exists, even if it was created just now."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: an empty file takes the name first
        path.open("xb").close()
        os.replace(temporary, path)
    else:
        temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush the folder's new names to the disk, if the system supports it."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
