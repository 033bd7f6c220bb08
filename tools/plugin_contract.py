"""Write the promised tier of the contract of plugins, for review: ``python tools/plugin_contract.py``.

A name or a line that disappears from the file breaks plugins: it needs a deprecation over two minor versions first.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "fixtures" / "plugin_contract.txt"


def describe() -> str:
    """Return a line for each name of ``pumice.plugin``, and for each public member of its classes."""
    import pumice.plugin as contract

    return "\n".join(line for name in contract.__all__ for line in _lines(name, getattr(contract, name))) + "\n"


def _lines(name: str, thing: object) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield name + (_signature(thing) if inspect.isroutine(thing) else "")
        return
    ours = [cls for cls in thing.__mro__ if cls.__module__.startswith("pumice.")]
    yield f"class {name}({', '.join(base.__name__ for base in thing.__bases__ if base is not object)})"
    if any(cls.__dict__.get("__init__") for cls in ours) and not issubclass(thing, Exception):
        yield f"  {name}{_signature(thing.__init__)}"
    fields = {field.name: field.type for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else {}
    members = {key for cls in ours for key in (*vars(cls), *inspect.get_annotations(cls))}
    for member in sorted(key for key in members if not key.startswith("_")):
        value = inspect.getattr_static(thing, member, None)
        if member in fields or not (callable(value) or isinstance(value, (staticmethod, classmethod))):
            yield f"  {name}.{member}"
        else:
            yield f"  {name}.{member}{_signature(getattr(thing, member))}"


def _signature(call: Any) -> str:
    """Return parameters with their defaults; types are left to mypy, since their text depends on versions."""
    signature = inspect.signature(getattr(call, "rule", call))
    parameters = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    shown = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    return re.sub(r"<[^>]*>", "...", shown)


if __name__ == "__main__":
    TARGET.write_text(describe())
