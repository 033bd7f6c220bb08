"""How a model for embeddings makes one vector of a text, as the package sentence-transformers says beside it."""

from __future__ import annotations

import json
from typing import Any

from pumice.convert.folder import Folder, read_json
from pumice.errors import ConvertError

MODULES = "modules.json"
TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}  # pooling_type
FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "lasttoken"}


def pooling(folder: Folder) -> dict[str, Any]:
    """Keys ``pooling_type`` and ``classifier.pooling_type``, where the folder says them. Raises ConvertError."""
    found = {}
    if (path := _module(folder)) is not None:
        values = read_json(folder.path / path / "config.json")
        flagged = next((mode for flag, mode in FLAGS.items() if values.get(flag)), None)
        found["pooling_type"] = _type(folder, flagged or values.get("pooling_mode"))
    if folder.config.first("classifier_pooling") in TYPES:
        found["classifier.pooling_type"] = TYPES[folder.config["classifier_pooling"]]
    return found


def _module(folder: Folder) -> str | None:
    """Where the module that pools is described."""
    if not folder.has(MODULES):
        return None
    try:
        modules = json.loads((folder.path / MODULES).read_text("utf-8"))
        return next((str(each["path"]) for each in modules if str(each["type"]).endswith("Pooling")), None)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConvertError(f"{folder.path / MODULES}: is no list of modules: {error}") from None


def _type(folder: Folder, mode: Any) -> int:
    if mode not in TYPES:
        raise ConvertError(f"{folder.path}: pools tokens by {mode!r}; only {', '.join(TYPES)} are known")
    return TYPES[mode]
