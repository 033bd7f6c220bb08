"""Temporary files of targets, in memory if the system has such a folder."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


def scratch(name: str, data: bytes) -> Path:
    """Write a new file of this process. The previous one may still be mapped, so it is not overwritten."""
    path = folder() / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


@cache
def folder() -> Path:
    """Return a folder that is removed when the process ends."""
    shared_memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="pumice-fuzz-", dir=shared_memory if shared_memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
