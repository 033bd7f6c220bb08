"""The devices of each backend, as JSON and as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pumice.backend import Backend
    from pumice.registry import Registry


def list_devices() -> str:
    """Return the lines that list the devices of each backend."""
    return "\n".join(map(format_backend, list_backends()))


def list_backends() -> list[dict[str, Any]]:
    """Return the JSON of every backend, in the configured order."""
    from pumice.config import load_config
    from pumice.registry import get_registry

    config = load_config()
    registry = get_registry(config)
    names = [*config.backends, *(name for name in registry.backends if name not in config.backends)]
    return [describe(name, registry) for name in names]


def describe(name: str, registry: Registry) -> dict[str, Any]:
    """Return the JSON of a backend: its devices, or the reason why it is not available."""
    if name not in registry.backends:
        return _unavailable(name, "not installed: no plugin that loaded registers it; see `pumice plugins`")
    from pumice.errors import PumiceError

    try:
        return _devices(name, registry)
    except PumiceError as error:  # one broken driver must not hide the others
        return _unavailable(name, str(error))


def _devices(name: str, registry: Registry) -> dict[str, Any]:
    from pumice.engine.placement.backends import unavailable
    from pumice.guard import guarded

    reason = unavailable(registry, name)
    if reason:
        return _unavailable(name, reason)
    facts = guarded(_facts, f"{registry.backends.describe(name)}: devices")
    return {"backend": name, "available": True, "reason": None, "devices": facts(registry.backends[name])}


def _facts(backend: type[Backend]) -> list[dict[str, Any]]:
    return [
        {"name": device.name, "kind": device.kind, "memory_bytes": device.memory_bytes, "details": device.details}
        for device in backend.devices()
    ]


def _unavailable(name: str, reason: str) -> dict[str, Any]:
    return {"backend": name, "available": False, "reason": " ".join(reason.split()), "devices": []}


def format_backend(item: dict[str, Any]) -> str:
    """Return a backend's line, then a line for each of its devices."""
    from pumice.wording import format_bytes, printable

    lines = [item["backend"] if item["available"] else f"{item['backend']}: {item['reason']}"]
    for device in item["devices"]:
        facts = [device["kind"], *([format_bytes(device["memory_bytes"])] if device["memory_bytes"] else [])]
        details = ", ".join([*facts, *(f"{key} {value}" for key, value in device["details"].items())])
        lines.append(printable(f"  {device['name']} ({details})"))
    return "\n".join(lines)
