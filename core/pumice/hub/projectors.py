"""The projector file (mmproj) of a vision model: the one that is configured, or the one beside the model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pumice.sandbox import granted

OFF = "off"
"""The configuration's word for no projector."""

_TYPE = re.compile(r"[-._](UD-)?(f16|bf16|q8_0|f32)$", re.IGNORECASE)
_TYPES = ("f16", "bf16", "q8_0", "f32")  # the first available one counts


def find_projector(model: Path, mmproj: str = "") -> Path | None:
    """Return the projector of a model.

    Args:
        model: the model's file.
        mmproj: path of the projector, "off" for none; empty: the file of the model's folder whose name contains
            ``mmproj``. Several that differ in their types alone, such as F16 and BF16, are one; several others none.
    """
    if mmproj:
        return None if mmproj == OFF else Path(mmproj)
    if not model.is_file():
        return None
    model = Path(os.path.abspath(model))
    folders = {os.path.realpath(model.parent), os.path.dirname(os.path.realpath(model))}
    # A confined process lists no folder.
    granted_paths = [path for path in map(Path, granted()) if path.parent == model.parent]
    beside = [path for path in {*model.parent.glob("*.gguf"), *granted_paths} if is_projector(path.name)]
    own = [path for path in beside if os.path.dirname(os.path.realpath(path)) in folders]  # no links to other places
    chosen = choose_projector(sorted(path.name for path in own))
    return None if chosen is None else model.parent / chosen


def is_projector(name: str) -> bool:
    """Return True for the name of a projector's file."""
    return "mmproj" in name.lower() and name.endswith(".gguf")


def choose_projector(names: list[str]) -> str | None:
    """Return the one of several projectors' names to use; None if they are of different models."""
    stems = {_TYPE.sub("", name.removesuffix(".gguf")) for name in names}
    return min(names, key=_preference) if len(stems) == 1 else None


def _preference(name: str) -> tuple[int, str]:
    match = _TYPE.search(name.removesuffix(".gguf"))
    return (_TYPES.index(match[2].lower()) if match else -1), name
