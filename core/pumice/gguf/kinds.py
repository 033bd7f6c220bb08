"""Kinds of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODEL, ADAPTER, CONTROL_VECTOR, PROJECTOR = "model", "adapter", "controlvector", "mmproj"

_NO_MODELS = {
    ADAPTER: "a LoRA adapter, not a model; load it beside its model with --lora",
    CONTROL_VECTOR: "a control vector, not a model; load it beside its model with --control-vector",
    PROJECTOR: "a projector, not a model; load it beside its model with --mmproj",
    "imatrix": "an importance matrix, not a model; `pumice quantize` takes it with --imatrix",
}


def kind_of(metadata: Mapping[str, Any]) -> str:
    """Return ``general.type``, by default ``model``.

    Control vectors, and some projectors, have their kind in ``general.architecture``.
    """
    architecture, kind = metadata.get("general.architecture"), metadata.get("general.type", MODEL)
    if isinstance(architecture, str) and architecture == CONTROL_VECTOR:
        return CONTROL_VECTOR
    if isinstance(architecture, str) and architecture == "clip" and kind == MODEL:
        return PROJECTOR
    return kind if isinstance(kind, str) else ""


def why_no_model(metadata: Mapping[str, Any]) -> str:
    """Return what a file is and which option takes it, if it is of a known kind other than a model, else ``""``."""
    return _NO_MODELS.get(kind_of(metadata), "")
