"""What kernels are compiled from, and what they are called in object files."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pumice.plugin import CODINGS, ELEMENTWISE

DIGEST_BYTES = 16
PARTS = ("kernels", "simd", "codegen.py", "formats.py", "isa.py", "kv_cache.py", "sources.py")  # of this package


@functools.cache
def digest() -> str:
    """A digest of all that kernels are compiled from: with another, they are others."""
    sources, here = hashlib.blake2b(digest_size=DIGEST_BYTES), Path(__file__).parent
    for part in PARTS:
        for path in sorted((here / part).rglob("*.py")) if (here / part).is_dir() else [here / part]:
            sources.update(path.read_bytes())
    sources.update(repr((CODINGS, {name: each.formula for name, each in ELEMENTWISE.items()})).encode())
    return sources.hexdigest()


def symbol(kernel: str) -> str:
    """What a kernel is called in its object file."""
    return "pumice_" + "".join(c if c.isalnum() else "_" for c in kernel)
