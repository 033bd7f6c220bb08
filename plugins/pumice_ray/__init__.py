"""Models on the machines of a Ray cluster. Submodules are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice_ray.data import map_prompts
    from pumice_ray.deployment import app
    from pumice_ray.model import load

__all__ = ["app", "load", "map_prompts"]

_HOMES = {"app": "deployment", "load": "model", "map_prompts": "data"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
