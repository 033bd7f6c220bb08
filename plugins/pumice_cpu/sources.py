"""Source digest and symbol names of kernels."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pumice.plugin.unstable import CODINGS, ELEMENTWISE

DIGEST_BYTES = 16
# Paths in the folder of this package.
PARTS = ("kernels", "simd", "codegen.py", "formats.py", "isa.py", "kv_cache.py", "sources.py", "translation.py")


@functools.cache
def digest() -> str:
    """Return a digest of all sources that kernels are compiled from; it changes with any of them."""
    sources, package = hashlib.blake2b(digest_size=DIGEST_BYTES), Path(__file__).parent
    for part in PARTS:
        for path in sorted((package / part).rglob("*.py")) if (package / part).is_dir() else [package / part]:
            sources.update(path.read_bytes())
    sources.update(repr((CODINGS, {name: operation.formula for name, operation in ELEMENTWISE.items()})).encode())
    return sources.hexdigest()


def symbol(kernel: str) -> str:
    """Return a kernel's symbol in its object file."""
    return "pumice_" + "".join(c if c.isalnum() else "_" for c in kernel)
