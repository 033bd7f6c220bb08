"""Values that configurations leave out, since they are the defaults of transformers' classes (5.24)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
    return table


def usual(kind: Any) -> Mapping[str, Any]:
    """Return the defaults of a configuration or a section of this ``model_type``; the names of sections have theirs."""
    return _table().get(kind, {}) if isinstance(kind, str) else {}
