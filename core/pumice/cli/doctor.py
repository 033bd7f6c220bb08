"""``pumice doctor``: check this machine, and suggest what to install or set."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from pumice.cli.files import OutputFile
from pumice.cli.machine_report import Finding, survey
from pumice.cli.options import json_option
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import printable

_SECONDS = 60


@click.command("doctor")
@option("--no-measure", is_flag=True, help="Leave out the measurement of speed with the demo model.")
@option(
    "--report",
    type=OutputFile(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Check every device's kernels beside NumPy's, measure its speed, and write a file to attach to an issue; "
    "replaces an earlier one.",
)
@json_option
def command(as_json: bool, no_measure: bool, report: Path | None) -> None:
    """Check this machine.

    Shows processor, backends with their devices, missing packages, caches, speed with the demo model, and the sandbox
    in force, with what to install or set for more. The exit status is 1 if the configuration requires a sandbox
    (sandbox: on) that this machine does not have.
    """
    if report is not None:
        _check_place(report)
    setting = _sandbox_setting()
    findings = [*survey(not no_measure), sandbox_finding(setting)]
    if as_json:
        echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            echo("\n".join([f"{finding.name}: {finding.state}", *(f"  {line}" for line in finding.details)]))
    if report is not None:
        _write_report(report, findings)
    if setting == "on" and findings[-1].state != "ok":
        raise click.exceptions.Exit(1)


def _check_place(path: Path) -> None:
    """Raise BadParameter if the report cannot be written, before checks that take minutes."""
    from pumice.errors import PumiceError
    from pumice.gguf.output import check_output

    try:
        check_output(path, force=True)
    except PumiceError as error:
        raise click.BadParameter(str(error), param_hint="--report") from None
    if path.exists() and not _is_report(path):
        problem = f"{path}: exists already, and is no report; name another file"
        raise click.BadParameter(problem, param_hint="--report")


def _is_report(path: Path) -> bool:
    """Return True for an empty file, or one that an earlier ``--report`` wrote."""
    try:
        content = path.read_bytes()
        return not content or "devices" in json.loads(content)
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _write_report(path: Path, findings: list[Finding]) -> None:
    from pumice.cli.device_report import write_report

    with ExitStack() as stack:
        bars: dict[str, Callable[[int, int], None]] = {}

        def progress(label: str, done: int, total: int) -> None:
            if label not in bars:
                stack.close()
                bars[label] = stack.enter_context(show_progress(f"checking {label}", "checks"))
            bars[label](done, total)

        lines = write_report(path, findings, progress)
    for line in lines:
        echo(line, err=True)
    echo(f"the report is in {printable(str(path))}", err=True)


def _sandbox_setting() -> str:
    """Return the setting of the sandbox; auto if the configuration is unreadable, which `backends` reports."""
    from pumice.config import load_config
    from pumice.errors import PumiceError

    try:
        return load_config().sandbox
    except (PumiceError, OSError, RuntimeError):
        return "auto"


def sandbox_finding(setting: str) -> Finding:
    """Return the finding on the sandbox: a confined process attempts forbidden calls."""
    from pumice import sandbox

    details = [f"configuration: sandbox: {setting}"]
    if setting == "off" or sandbox.switched_off():
        return Finding("sandbox", "absent", [*details, "processes of engines are not confined: it is switched off"])
    absent = sandbox.missing()
    if sys.platform != "linux" or len(absent) > 1:
        return Finding("sandbox", "absent", [*details, *absent])
    in_force, outcomes = _trial()
    allowed = [f"not denied: {name} ({outcome})" for name, outcome in outcomes.items() if outcome != "denied"]
    details += [
        f"in force: {in_force}",
        "confined: engines, workers, the process of `pumice serve` that takes requests",
        "confined: every command that reads models",
        f"{len(outcomes) - len(allowed)} of {len(outcomes)} forbidden calls are denied",
    ]
    return Finding("sandbox", "ok" if outcomes and not absent and not allowed else "partial", [*details, *allowed])


def _trial() -> tuple[str, dict[str, str]]:
    """Return the protections in force in a confined process, and the outcomes of its attempts."""
    from pumice import sandbox

    command, environment = sandbox.launch("pumice.sandbox.trial", policy=sandbox.Policy())
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"nothing: a confined process does not start: {error}", {}
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return f"nothing: a confined process does not start: {reason[0]}", {}
    report = json.loads(done.stdout)
    return report["in_force"], report["outcomes"]
