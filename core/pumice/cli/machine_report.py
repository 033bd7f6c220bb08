"""Parts of the report of ``pumice doctor``: processor, memory, backends, packages, caches, speed."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pumice.guard import Terminated

_PACKAGES = {
    "numba": ("compiler", "compiles CPU kernels that did not come with the package"),
    "starlette": ("server", "pumice serve and batch"),
}
_LOW_SPACE = 2**30  # bytes
_PROMPT, _GENERATED = 64, 128  # tokens


@dataclass(frozen=True)
class Finding:
    """One part of the report.

    Attributes:
        name: title of the part.
        state: ok, partial or absent.
        details: further lines.
    """

    name: str
    state: str
    details: list[str]


def survey(measure: bool = True) -> Iterator[Finding]:
    """Yield the findings on this machine, in order. A part that fails yields a finding with the error."""
    parts: dict[str, Callable[[], Finding]] = {
        "processor": _processor,
        "backends": _backends,
        "packages": _packages,
        "caches": _caches,
    }
    if measure:
        parts["speed"] = _speed
    for name, find in parts.items():
        try:
            yield find()
        except Terminated:
            raise
        except (Exception, SystemExit) as error:  # a failing driver, disk or plugin must not hide the other parts
            yield Finding(name, "absent", [f"cannot be examined: {type(error).__name__}: {error}"])


def _processor() -> Finding:
    from pumice.machine import cores, host_memory_bytes
    from pumice.wording import format_bytes

    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    memory = host_memory_bytes()
    details = [f"{_processor_name()}, {cores()} cores", f"{format_bytes(memory)} of memory", system]
    return Finding("processor", "ok" if memory else "partial", details)


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _backends() -> Finding:
    from pumice.cli.device_list import describe, format_backend
    from pumice.config import load_config
    from pumice.registry import get_registry

    config = load_config()
    registry = get_registry(config)
    items = [describe(name, registry) for name in config.backends]
    lines = [line.strip() for item in items for line in format_backend(item).splitlines()]
    return Finding("backends", "ok" if any(item["available"] for item in items) else "absent", lines)


def _packages() -> Finding:
    from pumice.installed import install_command

    missing = [
        f"{name} is missing: {use}: {install_command(extra)}"
        for name, (extra, use) in _PACKAGES.items()
        if not importlib.util.find_spec(name)
    ]
    return Finding("packages", "partial" if missing else "ok", missing or [f"installed: {', '.join(_PACKAGES)}"])


def _caches() -> Finding:
    from pumice.hub.repository import cache_directory
    from pumice.sandbox.launch import cache_home
    from pumice.wording import format_bytes

    own = cache_home() / "pumice"
    folders = {
        "Hugging Face models": cache_directory(),
        "models of web addresses": own / "models",
        "CPU kernels": own / "kernels",
        "caches of confined processes": own / "sandbox",
    }
    lines = [f"{name}: {format_bytes(_size(folder))} in {folder}" for name, folder in folders.items()]
    place = next(folder for folder in (own, *own.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    problems = [] if os.access(place, os.W_OK) else [f"{place} is read-only: set XDG_CACHE_HOME to another folder"]
    problems += [f"little space at {place}: delete models with `pumice rm`"] if free < _LOW_SPACE else []
    return Finding("caches", "partial" if problems else "ok", [*lines, f"{format_bytes(free)} free", *problems])


def _size(folder: Path) -> int:
    """Return the total bytes of all files below a folder, without unreadable files and the targets of links."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            total += status.st_size
    return total


def _speed() -> Finding:
    """Measure prompt processing and generation of the demo model, each after a warm-up run."""
    import pumice
    from pumice.evaluate import speed

    with pumice.load(n_ctx=512) as model:
        speed.settle(model)
        rates = []
        for n_tokens, seconds in ((_PROMPT, speed.prompt_seconds), (_GENERATED, speed.generation_seconds)):
            seconds(model, n_tokens)
            rates.append(n_tokens / seconds(model, n_tokens))
        backends = ", ".join(model.backends)
    return Finding(
        "speed", "ok", [f"demo model on {backends}: prompt {rates[0]:.0f} tokens/s, generation {rates[1]:.0f} tokens/s"]
    )
