"""Modules that are imported when they are used: each worker of pytest imports every test, and runs a part of them."""

from importlib import import_module
from typing import Any


class Late:
    """A module, imported when an attribute of it is first asked for.

    pytest asks each name in a file of tests for special attributes, which is no use.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
