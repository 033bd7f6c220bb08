"""Plugins as distributions of two files, as pip leaves them, and as modules for ``plugins=[...]``."""

from pathlib import Path
from types import ModuleType

from pumice.plugin import hookimpl


def passed(kind: str, name: str = "passed", **things: object) -> ModuleType:
    """Return a plugin that registers objects of a kind, such as ``backends``, by their names."""

    def hook(register):  # type: ignore[no-untyped-def]
        for key, thing in things.items():
            register(key, thing)

    hook.__name__ = f"pumice_register_{kind}"
    module = ModuleType(name)
    setattr(module, hook.__name__, hookimpl(hook))
    return module


def install(
    site: Path, distribution: str, source: str, *, name: str = "", version: str = "1.0", api: int | None = 1
) -> None:
    """Put a module and its metadata in ``site``, a folder on ``sys.path``; ``name`` is the entry point's.

    The module states the version ``api`` of the contract; None: it states none.
    """
    module = distribution.replace("-", "_")
    (site / f"{module}.py").write_text(source if api is None else f"{source}\npumice_api = {api}\n")
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[pumice]\n{name or module} = {module}\n")


def backend_plugin(name: str, options: str = "") -> str:
    """Source of a plugin that registers a subclass of the NumPy backend; ``options`` are its dataclass's fields."""
    return f"""
from dataclasses import dataclass
from pumice.plugin import hookimpl
from pumice_numpy import NumpyBackend

@dataclass
class Options:
    {options or "pass"}

class MyBackend(NumpyBackend):
    Options = Options

@hookimpl
def pumice_register_backends(register):
    register({name!r}, MyBackend)
"""
