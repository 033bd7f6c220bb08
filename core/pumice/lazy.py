"""Objects named as ``"package.module:Name"``, and public names of packages, imported on first use."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def resolve(target: Any) -> Any:
    """Return the object that ``"package.module:Name"`` names; return any target that is not a string unchanged.

    Raises ImportError for a malformed or unknown name, and any exception of the import itself.
    """
    if not isinstance(target, str):
        return target
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise ImportError(f"expected 'package.module:Name', not {target!r}")
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(value, part):
            raise ImportError(f"module {module!r} has no {name!r}")
        value = getattr(value, part)
    return value


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose public names are imported on first use.

    Args:
        package: its name.
        homes: public names by module of the package.
    """

    def find(name: str) -> Any:
        home = next((module for module, names in homes.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
