"""Objects named as ``"package.module:Name"``, imported on first use."""

import importlib
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
