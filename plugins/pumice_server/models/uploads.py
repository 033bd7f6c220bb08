"""Model files that clients upload: kept by their digests in a folder, within a bound, and linked into models."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path

from filelock import FileLock, Timeout
from starlette.exceptions import HTTPException

from pumice.plugin.unstable import PRIVATE, SPLIT_NAME
from pumice_server import limits
from pumice_server.errors import UnwritableError, bad_request
from pumice_server.pools import FILES, UPLOADS

_MAX_FILES = 4096  # beyond, the oldest that no model has are removed
_PIECE_BYTES = 1 << 20  # that are written and hashed at once
_MAX_UNCOUNTED = 1 << 26  # bytes that arrive before the files are counted again
_KEPT_FREE = 1 << 30  # bytes of the disk that uploads leave free
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NO_NAME = re.compile(r'[/\\:*?"<>|]|\A\.|\A\Z')
_MAX_NAME = 200  # bytes
_PARTIAL, _LOCK = ".incomplete", ".lock"


class Uploads:
    """Uploaded files in ``blobs``, and for each model made of them a folder of hard links in ``models``.

    Several servers may share the folder: a file is in use as long as a model of any of them links to it. Each has a
    folder of models with a lock, by which others know that it runs. The files are counted once for up to a quarter of
    the room that is left, so four servers may receive at once without exceeding ``space``.

    Args:
        folder: Folder of both.
        space: Maximum bytes of all files.
    """

    def __init__(self, folder: Path, space: int) -> None:
        self.space = space
        self._blobs, self._all_models = folder / "blobs", folder / "models"
        self._models = self._all_models / secrets.token_hex(8)  # of this server
        self._lock = FileLock(self._models.with_suffix(_LOCK))
        self._writing = threading.Lock()
        self._n_uncounted = 0  # bytes that may arrive before the files are counted
        for made in (self._blobs, self._all_models):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_leftovers()
        self._lock.acquire()
        self._models.mkdir(mode=0o700)

    def find(self, digest: str) -> Path | None:
        """Return the uploaded file of a digest, ``sha256:HEX``; None if there is none. Raises HTTPException."""
        path = self._blobs / _stem(digest)
        return path if path.is_file() else None

    async def receive(self, digest: str, parts: AsyncIterator[bytes], length: int = 0) -> None:
        """Keep a file that arrives in parts.

        Args:
            digest: Digest of the file, which is checked.
            parts: The file.
            length: Bytes of the file, if they are known.

        Raises:
            HTTPException: The file is too large or too slow, too many arrive, or the digest is another.
        """
        path = self._blobs / _stem(digest)
        partial = path.with_name(f"{path.name}-{secrets.token_hex(8)}{_PARTIAL}")
        place = UPLOADS.take()
        try:
            await FILES(self._make_room, length)
            # Only here, so that a thread that outlives a cancellation does not create the file again.
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
            sha256 = hashlib.sha256()
            async for piece in _pieces(parts):
                await FILES(self._append, partial, piece, sha256)
            if f"sha256:{sha256.hexdigest()}" != digest:
                raise bad_request(f"the file's digest is sha256:{sha256.hexdigest()}, not {digest}: upload it again")
            os.replace(partial, path)
        finally:
            place.release()
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def link(self, files: Mapping[str, str]) -> Path:
        """Return a new folder of uploaded files, by their names.

        Args:
            files: Digests of files by name.

        Raises:
            HTTPException: A file is missing or has a wrong name, or the disk has no links.
        """
        targets: dict[str, Path] = {}
        for name, digest in files.items():
            if not name.isprintable() or _NO_NAME.search(name) or len(name.encode()) > _MAX_NAME:
                raise bad_request(f"{name!r:.100} must be the name of a file, of at most {_MAX_NAME} bytes")
            target = self.find(digest)
            if target is None:
                raise bad_request(f"{name}: there is no file {digest}; upload it to /api/blobs/DIGEST")
            targets[name] = target
        folder = self._models / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        try:
            for name, target in targets.items():
                os.link(target, folder / name)
        except OSError as error:
            self.discard(folder)
            if isinstance(error, FileNotFoundError):  # removed to make room for another upload
                raise bad_request(f"{name}: the file {files[name]} was removed; upload it again") from None
            raise HTTPException(507, f"{name}: the uploaded file cannot be linked: {error.strerror}") from None
        return folder

    def discard(self, folder: Path) -> None:
        """Remove a folder of files that became no model. The files stay until their room is needed."""
        shutil.rmtree(folder, ignore_errors=True)

    def unlink(self, folder: Path) -> None:
        """Remove a folder of files, and the files unless other models have them."""
        with contextlib.suppress(OSError):
            files = {file.stat().st_ino for file in folder.iterdir()}
            shutil.rmtree(folder)
            for path, status in self._files():
                if status.st_ino in files and status.st_nlink == 1:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the models of this server; the files stay for the next one."""
        shutil.rmtree(self._models, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._lock.release()
            Path(self._lock.lock_file).unlink(missing_ok=True)

    def _append(self, partial: Path, piece: bytes, sha256: hashlib._Hash) -> None:
        """Write a piece to the end of a file that exists. Raises HTTPException."""
        sha256.update(piece)
        with self._writing:
            if len(piece) > self._n_uncounted:
                n_free = self._make_room(len(piece))
                self._n_uncounted = max(len(piece), min(n_free // 4, _MAX_UNCOUNTED))
            try:
                with partial.open("r+b") as file:
                    file.seek(0, os.SEEK_END)
                    file.write(piece)
            except OSError as error:
                raise UnwritableError("the file", error.strerror) from None
            self._n_uncounted -= len(piece)

    def _make_room(self, n_bytes: int) -> int:
        """Remove the files that no model has, the oldest first, until there is room for more. Raises HTTPException.

        Returns:
            Bytes that fit.
        """
        if n_bytes > self.space:
            raise HTTPException(413, f"the file has {n_bytes} bytes; --allow-uploads allows {self.space} altogether")
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        excess = sum(status.st_size for _, status in files) + n_bytes - self.space
        n_excess = len(files) + 1 - _MAX_FILES
        for path, status in files:
            if (excess > 0 or n_excess > 0) and status.st_nlink == 1 and path.suffix != _PARTIAL:
                path.unlink(missing_ok=True)
                excess -= status.st_size
                n_excess -= 1
        if n_excess > 0:
            raise HTTPException(507, f"models have {_MAX_FILES} uploaded files, which is the most; delete models")
        if excess > 0:
            raise HTTPException(
                507, f"uploaded files would have more than {self.space} bytes (--allow-uploads); delete models"
            )
        n_free = shutil.disk_usage(self._blobs).free - _KEPT_FREE
        if n_free < n_bytes:
            raise HTTPException(507, f"the disk has less than {_KEPT_FREE >> 20} MiB left besides the file")
        return min(n_bytes - excess, n_free)

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the uploaded files. Those that models have, of any server, have more than one link."""
        for path in self._blobs.iterdir():
            with contextlib.suppress(OSError):  # another upload has ended meanwhile
                yield path, path.stat()

    def _remove_leftovers(self) -> None:
        """Remove the models of servers that have ended without doing so, and without other servers parts of files."""
        for path in self._all_models.glob(f"*{_LOCK}"):
            with contextlib.suppress(OSError, Timeout), FileLock(path, timeout=0):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink()
        if not any(self._all_models.iterdir()):
            for partial in self._blobs.glob(f"*{_PARTIAL}"):
                partial.unlink(missing_ok=True)


async def _pieces(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what arrives in larger pieces. Raises HTTPException if one takes too long."""
    pending, size = list[bytes](), 0
    while True:
        part: bytes | None = None
        try:
            async with asyncio.timeout(limits.BODY_SECONDS):
                while size < _PIECE_BYTES and (part := await anext(parts, None)) is not None:
                    pending.append(part)
                    size += len(part)
        except TimeoutError:
            raise HTTPException(
                408, f"{_PIECE_BYTES} bytes of the file did not arrive within {limits.BODY_SECONDS:g} seconds"
            ) from None
        if pending:
            yield b"".join(pending)
        if part is None:
            return
        pending, size = [], 0


def model_of(files: Iterable[str]) -> str:
    """Return the name of the model among files, or of the first part of a split one.

    Raises HTTPException unless there is one GGUF model besides projectors.
    """
    models = [name for name in files if name.endswith(".gguf") and "mmproj" not in name.lower()]
    first = [name for name in models if not ((part := SPLIT_NAME.fullmatch(name)) and int(part["part"]) > 1)]
    if len(first) != 1:
        raise bad_request(
            f"files must have one model, NAME.gguf, not {len(first)}; `pumice convert` converts other formats"
        )
    return first[0]


def _stem(digest: str) -> str:
    """Return the name of a file on disk. Raises HTTPException."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise bad_request(f"the digest must be sha256: and 64 hexadecimal digits, not {digest!r:.100}")
    return f"sha256-{match[1]}"
