"""``pumice doctor``: whether this machine is set up as Pumice wants it, and why not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import click

from pumice.cli.options import json_option

_SECONDS = 60


@dataclass(frozen=True)
class Finding:
    """One part of the report. ``state``: ok, partial or absent; ``details``: a line each."""

    name: str
    state: str
    details: list[str]


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Check this machine.

    Says what of the sandbox is in force here, and why the rest is not. Ends with status 1 if the configuration demands
    a sandbox (sandbox: on) that cannot be had.
    """
    from pumice.config import load_config

    setting = load_config().sandbox
    findings = [sandbox_finding(setting)]
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo("\n".join([f"{finding.name}: {finding.state}", *(f"  {line}" for line in finding.details)]))
    if setting == "on" and any(finding.state != "ok" for finding in findings):
        raise click.exceptions.Exit(1)


def sandbox_finding(setting: str) -> Finding:
    """What confines an engine here, found out by a process that is confined and tries what it may not do."""
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
        "confined: engines, workers, and the process of `pumice serve` that takes requests",
        f"{len(outcomes) - len(allowed)} of {len(outcomes)} forbidden calls are denied",
    ]
    return Finding("sandbox", "ok" if outcomes and not absent and not allowed else "partial", [*details, *allowed])


def _trial() -> tuple[str, dict[str, str]]:
    """What is in force in a confined process, and how its attempts ended."""
    from pumice import sandbox

    command, environment = sandbox.launch("pumice.sandbox.trial", policy=sandbox.Policy())
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return f"nothing: a confined process does not start: {reason[0]}", {}
    found = json.loads(done.stdout)
    return found["in_force"], found["outcomes"]
