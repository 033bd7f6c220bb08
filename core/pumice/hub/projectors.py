"""Files beside a model, its projector (mmproj) and its vocoder: those that are configured, or found in its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from pumice.sandbox import granted

OFF = "off"
"""The configuration's word for no projector, or no vocoder."""

_TYPE = re.compile(r"[-._](UD-)?(f16|bf16|q8_0|f32)$", re.IGNORECASE)
_TYPES = ("f16", "bf16", "q8_0", "f32")  # the first available one counts


def find_projector(model: Path, mmproj: str = "") -> Path | None:
    """Return the projector of a model.

    Args:
        model: the model's file.
        mmproj: path of the projector, "off" for none; empty: the file of the model's folder whose name contains
            ``mmproj``. Several that differ in their types alone, such as F16 and BF16, are one; several others none.
    """
    return _find(model, mmproj, is_projector)


def find_vocoder(model: Path, vocoder: str = "") -> Path | None:
    """Return the vocoder of a model that speaks.

    Args:
        model: the model's file.
        vocoder: path of the vocoder, "off" for none; empty: the file of the model's folder whose name contains
            ``wavtokenizer``, of several as for ``find_projector``.
    """
    return _find(model, vocoder, is_vocoder)


def _find(model: Path, chosen_path: str, is_kind: Callable[[str], bool]) -> Path | None:
    if chosen_path:
        return None if chosen_path == OFF else Path(chosen_path)
    if not model.is_file():
        return None
    model = Path(os.path.abspath(model))
    folders = {os.path.realpath(model.parent), os.path.dirname(os.path.realpath(model))}
    # A confined process lists no folder.
    granted_paths = [path for path in map(Path, granted()) if path.parent == model.parent]
    beside = [path for path in {*model.parent.glob("*.gguf"), *granted_paths} if is_kind(path.name)]
    own = [path for path in beside if os.path.dirname(os.path.realpath(path)) in folders]  # no links to other places
    chosen = choose_projector(sorted(path.name for path in own))
    return None if chosen is None else model.parent / chosen


def is_projector(name: str) -> bool:
    """Return True for the name of a projector's file."""
    return "mmproj" in name.lower() and name.endswith(".gguf")


def is_vocoder(name: str) -> bool:
    """Return True for the name of a vocoder's file."""
    return "wavtokenizer" in name.lower() and name.endswith(".gguf")


def choose_projector(names: list[str]) -> str | None:
    """Return the one of several projectors' names to use; None if they are of different models."""
    stems = {_TYPE.sub("", name.removesuffix(".gguf")) for name in names}
    return min(names, key=_preference) if len(stems) == 1 else None


def _preference(name: str) -> tuple[int, str]:
    match = _TYPE.search(name.removesuffix(".gguf"))
    return (_TYPES.index(match[2].lower()) if match else -1), name
