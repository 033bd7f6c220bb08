"""The package ``kp``, imported without its side effect."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from pumice.plugin import BackendError


def _import() -> Any:
    """Import ``kp`` without its call of ``logging.basicConfig()``, which is up to the application."""
    before = list(logging.root.handlers)
    try:
        return importlib.import_module("kp")
    except ImportError as error:
        raise BackendError(f"Kompute cannot be loaded ({error}); build it with tools/build_kompute.sh") from None
    finally:
        logging.root.handlers[:] = before


kp: Any = _import()
