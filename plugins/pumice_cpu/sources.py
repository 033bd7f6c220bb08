"""What kernels are compiled from, and what they are called in object files."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from pumice.plugin import ELEMENTWISE

DIGEST_BYTES = 16


@functools.cache
def digest() -> str:
    """A digest of this package's sources and of the formulas of operations: with another, kernels are others."""
    sources = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    sources.update(repr({name: each.formula for name, each in ELEMENTWISE.items()}).encode())
    return sources.hexdigest()


def symbol(kernel: str) -> str:
    """What a kernel is called in its object file."""
    return "pumice_" + "".join(c if c.isalnum() else "_" for c in kernel)
