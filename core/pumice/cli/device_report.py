"""The file of ``pumice doctor --report``: devices, their results beside NumPy's, and rates, to attach to an issue."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pumice.cli.device_list import list_backends
from pumice.cli.machine_report import Finding

_REFERENCE = "numpy"


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

    replace_file(path, (_anonymous(json.dumps(report, indent=1)) + "\n").encode(), 0o644)
    return [_line(device) for device in devices]


def _examine(name: str, number: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return what the process of a device reports: facts, checks, rates, and the error that ended it, if any."""
    from pumice.sandbox import launch

    command, environment = launch("pumice.device_checks", [name, str(number)])
    report: dict[str, Any] = {"facts": {}, "n_checks": 0, "checks": [], "rates": None, "error": None}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            ((kind, value),) = json.loads(line).items()
            if kind == "check":
                report["checks"].append(value)
                progress(len(report["checks"]), report["n_checks"])
            else:
                report[kind] = value
        last = process.stderr.read().strip().splitlines()[-1:]
    if process.returncode:
        after = f" after {report['checks'][-1]['name']}" if report["checks"] else ""
        report["error"] = f"exit status {process.returncode}{after}: {''.join(last) or 'no message'}"
    return report


def _anonymous(text: str) -> str:
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def _line(device: dict[str, Any]) -> str:
    """Return a device's line: how many checks passed, and the first problem."""
    wrong = [f"{check['name']}: {check['problem']}" for check in device["checks"] if check["problem"]]
    n_left = sum(check["difference"] is None and not check["problem"] for check in device["checks"])
    n_passed = len(device["checks"]) - len(wrong) - n_left
    line = f"{device['label']}: {n_passed} checks pass, {len(wrong)} fail, {n_left} are left to other backends"
    return "; ".join([line, *([device["error"]] if device["error"] else wrong[:1])])
