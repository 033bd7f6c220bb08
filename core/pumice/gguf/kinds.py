"""Kinds of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL, ADAPTER, CONTROL_VECTOR = "model", "adapter", "controlvector"


def kind_of(metadata: Mapping[str, Any]) -> str:
    """Return ``general.type``, by default ``model``; a control vector has its kind in ``general.architecture``."""
    architecture, kind = metadata.get("general.architecture"), metadata.get("general.type", MODEL)
    if isinstance(architecture, str) and architecture == CONTROL_VECTOR:
        return CONTROL_VECTOR
    return kind if isinstance(kind, str) else ""
