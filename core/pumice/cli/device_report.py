"""The file of ``pumice doctor --report``: devices, their results beside NumPy's, and times, to attach to an issue."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from pumice.cli.device_list import list_backends
from pumice.cli.machine_report import Finding
from pumice.wording import printable

_REFERENCE = "numpy"
_MESSAGES = ("facts", "n_checks", "check", "product_seconds")  # of `pumice.device_checks`
_MAX_ERROR = 4096  # bytes of standard error that are read


def write_report(path: Path, findings: list[Finding], progress: Callable[[str, int, int], None]) -> list[str]:
    """Write the report as JSON, and return a line for each device. Raises OSError.

    Each device is checked in a process of its own, which a driver may crash. Paths in the user's home are shortened to
    ``~``, and identifiers of devices left out. ``progress`` takes a device's label, the finished checks and all checks.
    """
    devices = []
    for backend in list_backends():
        for number, device in enumerate(backend["devices"] if backend["backend"] != _REFERENCE else []):
            label = f"{backend['backend']}{number}"
            examined = _examine(backend["backend"], number, partial(progress, label))
            details = {name: value for name, value in device["details"].items() if name != "uuid"}
            devices.append({"label": label, **device, "details": details, **examined})
    report = {
        "pumice": version("pumice"),
        "machine": [asdict(finding) for finding in findings],
        "unavailable": {item["backend"]: item["reason"] for item in list_backends() if not item["available"]},
        "devices": devices,
    }
    from pumice.cache_files import replace_file

    replace_file(path, (json.dumps(_anonymous(report, _homes()), indent=1) + "\n").encode(), 0o644)
    return [_line(device) for device in devices]


def _examine(name: str, number: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return what the process of a device reports: facts, checks, times, and the error that ended it, if any.

    Drivers write to the process's output, too: on standard output anything but its messages is skipped, and standard
    error goes to a file, since a full pipe would stop the process.
    """
    from pumice.sandbox import launch

    command, environment = launch("pumice.device_checks", [name, str(number)])
    report: dict[str, Any] = {"facts": {}, "n_checks": 0, "checks": []}
    report |= {"product_seconds": {}, "error": None}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        for kind, value in filter(None, map(_message, process.stdout)):
            if kind == "check":
                report["checks"].append(value)
                progress(len(report["checks"]), report["n_checks"])
            else:
                report[kind] = value
        process.wait()
        last = _last_line(errors)
    if process.returncode:
        after = f" after {report['checks'][-1]['name']}" if report["checks"] else ""
        report["error"] = f"exit status {process.returncode}{after}: {last or 'no message'}"
    return report


def _message(line: bytes) -> tuple[str, Any] | None:
    """Return the kind and value of a line of ``pumice.device_checks``; None for a line that something else wrote."""
    try:
        ((kind, value),) = json.loads(line).items()
    except (ValueError, AttributeError, RecursionError):
        return None
    return (kind, value) if kind in _MESSAGES else None


def _last_line(file: IO[bytes]) -> str:
    """Return the last line of a file, without its beginning if it is long."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_ERROR))
    return printable((file.read().decode(errors="replace").strip().splitlines() or [""])[-1])


def _anonymous(value: Any, homes: Sequence[str]) -> Any:
    """Return JSON in which ``~`` stands for the user's home in every text."""
    if isinstance(value, dict):
        return {_anonymous(name, homes): _anonymous(item, homes) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_anonymous(item, homes) for item in value]
    if isinstance(value, str):
        for home in homes:
            value = value.replace(home, "~")
    return value


def _homes() -> list[str]:
    """Return the paths of the user's home: as it is named, and where links lead, the longer one first."""
    home = Path.home()
    return sorted({str(path) for path in (home, home.resolve()) if path != Path(path.anchor)}, key=len, reverse=True)


def _line(device: dict[str, Any]) -> str:
    """Return a device's line: how many checks passed, and the first problem."""
    wrong = [f"{check['name']}: {check['problem']}" for check in device["checks"] if check["problem"]]
    n_left = sum(check["difference"] is None and not check["problem"] for check in device["checks"])
    n_passed = len(device["checks"]) - len(wrong) - n_left
    line = f"{device['label']}: {n_passed} checks pass, {len(wrong)} fail, {n_left} are left to other backends"
    return printable("; ".join([line, *([device["error"]] if device["error"] else wrong[:1])]))
