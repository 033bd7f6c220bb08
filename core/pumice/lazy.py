"""Names of what is imported when it is used: ``"package.module:Name"``."""

import importlib
from typing import Any


def resolve(target: Any) -> Any:
    """What a text ``"package.module:Name"`` names; anything else is what it is.

    Raises what importing the module raises, and ImportError for a text of another form or a name that is not there.
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
