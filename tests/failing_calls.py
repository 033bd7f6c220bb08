"""Every call of an operation to the file system fails once, with one of several errors, and with each at night.

The calls of this thread are counted in Python, where they are made: a library loaded before libc would see those of the
interpreter too, needs a compiler, and a process for each failure, which takes a hundred times as long. What C code of
the interpreter does by itself, as copying in the kernel, is not seen.
"""

import builtins
import contextlib
import errno
import gc
import io
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from nightly import EXAMPLES
from pumice import PumiceError

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR, errno.EMFILE)
_BY_PATH = (
    "access", "chmod", "link", "listdir", "lstat", "mkdir", "open", "readlink", "rename", "replace", "rmdir", "scandir",
    "stat", "symlink", "truncate", "unlink", "utime",
)  # fmt: skip
_OF_FILES = {"write", "writelines", "read", "readinto", "readline", "seek", "truncate", "flush", "close"}


class Calls:
    """Counts calls about what is in ``root``, and fails the one with the number ``fails``."""

    def __init__(self, root: Path, fails: int | None, code: int) -> None:
        self.names: list[str] = []
        self._root = os.path.realpath(root)
        self._fails = fails
        self._code = code
        self._thread = threading.get_ident()
        self._descriptors: set[int] = set()

    def note(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._fails:
            raise OSError(self._code, os.strerror(self._code))

    def counts(self, where: object) -> bool:
        """True for a path in the folder, or a descriptor that was opened there."""
        if threading.get_ident() != self._thread:
            return False
        if isinstance(where, int):
            return where in self._descriptors
        return isinstance(where, (str, os.PathLike)) and os.path.abspath(where).startswith(self._root)

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            counted = bool(arguments) and self.counts(arguments[0])
            if counted and name != "close":
                self.note(name)
            result = call(*arguments, **options)
            if counted and name == "open":
                self._descriptors.add(result)
            if counted and name == "close":
                self._descriptors.discard(arguments[0])
                self.note(name)
            return result

        return wrapped

    def open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            if not self.counts(file):
                return real(file, *arguments, **options)
            if not isinstance(file, int):
                self.note("open")
            stream = real(file, *arguments, **options)
            self._descriptors.add(stream.fileno())
            return _File(stream, self)

        return opened

    def map(self, real: type[mmap.mmap]) -> Callable[..., Any]:
        def mapped(descriptor: int, *arguments: Any, **options: Any) -> Any:
            if self.counts(descriptor):
                self.note("mmap")
            return real(descriptor, *arguments, **options)

        return mapped


class _File:
    """A file whose calls are counted; one that cannot be closed is closed all the same."""

    def __init__(self, stream: Any, calls: Calls) -> None:
        self.__dict__.update(_stream=stream, _calls=calls)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stream, name)
        if name not in _OF_FILES:
            return value

        def call(*arguments: Any) -> Any:
            if name == "close" and not self._stream.closed:
                self._calls._descriptors.discard(self._stream.fileno())
                self._stream.close()
                self._calls.note(name)
            elif name != "close":
                self._calls.note(name)
            return value(*arguments)

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._stream, name, value)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)


@contextlib.contextmanager
def failing(root: Path, fails: int | None = None, code: int = errno.EIO, maps: tuple[str, ...] = ()) -> Iterator[Calls]:
    """Count the calls within the context, and fail one. ``maps``: names of ``mmap`` in modules."""
    calls = Calls(root, fails, code)
    with contextlib.ExitStack() as stack:
        for name in (*_BY_PATH, "close", "fdopen"):
            wrapped = calls.open(os.fdopen) if name == "fdopen" else calls.wrap(name, getattr(os, name))
            stack.enter_context(patch.object(os, name, wrapped))
        synced = calls.wrap("fsync", lambda descriptor: None)  # what a crash leaves is not looked at
        stack.enter_context(patch.object(os, "fsync", synced))
        for module in (io, builtins):
            stack.enter_context(patch.object(module, "open", calls.open(open)))
        for name in ("disk_usage", "copymode"):
            stack.enter_context(patch.object(shutil, name, calls.wrap(name, getattr(shutil, name))))
        for place in maps:
            stack.enter_context(patch(place, calls.map(mmap.mmap)))
        yield calls


def contents(root: Path) -> dict[str, bytes]:
    """Every file in a folder, without locks."""
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def check_every_call(
    root: Path,
    prepare: Callable[[], None],
    operate: Callable[[], object],
    *,
    errors: tuple[type[Exception], ...] = (PumiceError,),
    kept: Callable[[str], bool] = lambda name: False,
    maps: tuple[str, ...] = (),
    codes: tuple[int, ...] = ERRORS,
) -> list[str]:
    """Fail each call of ``operate`` once, at night with each error, after ``prepare``; return the calls that there are.

    AssertionError unless each failure ends in success, or in one of ``errors`` with one line; and then every file is as
    it was or as it will be, there are no others but those that ``kept`` names, or that could not be removed; and no
    descriptor stays open.
    """
    prepare()
    before = contents(root)
    with failing(root, maps=maps) as calls:
        operate()
    after = contents(root)
    n_open = _n_open(root)
    for number, name in enumerate(calls.names):
        for code in codes if EXAMPLES > 30 else [codes[number % len(codes)]]:
            what = f"call {number}, {name}, fails with {errno.errorcode[code]}"
            prepare()
            message = _message(operate, errors, failing(root, number, code, maps))
            assert message is None or (message.strip() and "\n" not in message), f"{what}: {message!r}"
            for path, content in contents(root).items():
                known = content in (before.get(path), after.get(path)) or kept(path) or name == "unlink"
                assert known, f"{what}: {path} is neither old nor new"
            assert set(before) - set(contents(root)) <= set(before) - set(after), f"{what}: an older file is gone"
            if _n_open(root) > n_open:
                gc.collect()
            assert _n_open(root) <= n_open, f"{what}: a file stays open"
    return calls.names


def _message(operate: Callable[[], object], errors: tuple[type[Exception], ...], failing: Any) -> str | None:
    """Return the message of the operation's error; None without one."""
    try:
        with failing:
            operate()
    except errors as error:
        return str(error)
    return None


def _n_open(root: Path) -> int:
    """Descriptors of files in a folder, where the system tells."""
    targets = []
    for link in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            targets.append(os.readlink(link))
    return sum(target.startswith(f"{os.path.realpath(root)}/") for target in targets)
