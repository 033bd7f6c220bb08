"""The compiled shaders: in the wheel beside this module, in a checkout in ``shaders/spv``."""

from __future__ import annotations

import functools
from pathlib import Path

from pumice.plugin import BackendError

PACKAGE = Path(__file__).parent
FOLDERS = [PACKAGE / "spv", PACKAGE.parents[1] / "shaders" / "spv"]


@functools.cache
def shader(name: str) -> bytes:
    """The SPIR-V of a variant in ``shaders/variants.yaml``. Raises BackendError if there is none."""
    for folder in FOLDERS:
        path = folder / f"{name}.spv"
        if path.exists():
            return path.read_bytes()
    raise BackendError(f"vulkan: the shader {name!r} is missing; install pumice again, or compile shaders/")
