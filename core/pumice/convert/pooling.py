"""The pooling of an embedding model, from the files of sentence-transformers beside it."""

from __future__ import annotations

import json
from typing import Any

from pumice.convert.folder import Folder, read_json
from pumice.errors import ConvertError

MODULES = "modules.json"
TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}  # pooling_type
FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "lasttoken"}


def pooling(folder: Folder) -> dict[str, Any]:
    """Return the keys ``pooling_type`` and ``classifier.pooling_type`` that the folder sets. Raises ConvertError."""
    keys = {}
    if (path := _module(folder)) is not None:
        values = read_json(folder.path / path / "config.json")
        flagged = next((mode for flag, mode in FLAGS.items() if values.get(flag)), None)
        keys["pooling_type"] = _type(folder, flagged or values.get("pooling_mode"))
    if folder.config.first("classifier_pooling") in TYPES:
        keys["classifier.pooling_type"] = TYPES[folder.config["classifier_pooling"]]
    return keys


def _module(folder: Folder) -> str | None:
    """Return the path of the pooling module's description."""
    if not folder.has(MODULES):
        return None
    try:
        modules = json.loads((folder.path / MODULES).read_text("utf-8-sig"))
        return next((str(module["path"]) for module in modules if str(module["type"]).endswith("Pooling")), None)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConvertError(f"{folder.path / MODULES}: not a list of modules: {error}") from None


def _type(folder: Folder, mode: Any) -> int:
    if mode not in TYPES:
        raise ConvertError(f"{folder.path}: unknown pooling {mode!r}; only {', '.join(TYPES)} are supported")
    return TYPES[mode]
