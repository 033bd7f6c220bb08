"""``pumice doctor``: what confines processes on this machine."""

import json

import pytest
from click.testing import CliRunner

from pumice import sandbox
from pumice.cli.doctor import command
from pumice.guard import Terminated
from sandboxes import needs_sandbox


@pytest.fixture
def doctor(home):
    """Run the command; its status and its findings."""

    def run(setting: str = "auto"):
        (home.parent / "settings.yaml").write_text(f"sandbox: {setting}\n")
        done = CliRunner(env={"PUMICE_CONFIG": str(home.parent / "settings.yaml")}).invoke(
            command, ["--json", "--no-measure"]
        )
        finding = json.loads(done.stdout)[-1]
        assert finding["name"] == "sandbox"
        return done.exit_code, finding["state"], "\n".join(finding["details"])

    return run


@needs_sandbox
def test_a_machine_that_has_everything(doctor):
    status, state, details = doctor("on")
    assert (status, state) == (0, "ok")
    assert "in force: Landlock" in details
    assert "forbidden calls are denied" in details


def test_a_sandbox_that_is_switched_off(doctor, monkeypatch):
    assert doctor("off")[:2] == (0, "absent")
    monkeypatch.setenv("PUMICE_SANDBOX", "off")
    assert doctor("on")[:2] == (1, "absent")


def test_a_machine_that_has_nothing(doctor, monkeypatch):
    lines = ("Landlock: not in this kernel", "seccomp: not in this kernel")
    monkeypatch.setattr(sandbox, "missing", lambda: lines)
    status, state, details = doctor()
    assert (status, state) == (0, "absent")
    assert all(line in details for line in lines)
    assert doctor("on")[0] == 1


@needs_sandbox
def test_missing_restrictions_are_reported(doctor, monkeypatch):
    """A trial without a sandbox finds that out."""
    launch = sandbox.launch
    monkeypatch.setattr(sandbox, "launch", lambda module, policy: launch(module))
    status, state, details = doctor("on")
    assert (status, state) == (1, "partial")
    assert "not denied: `fork` (done)" in details


def test_text(home):
    """Everything is reported, and the demo model is measured."""
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    for name in ("processor", "backends", "packages", "caches", "speed", "sandbox"):
        assert f"\n{name}: " in f"\n{done.output}"
    assert "generation" in done.output
    assert "cannot be examined" not in done.output


def test_a_part_that_fails_is_reported(home, monkeypatch):
    """No driver, disk or configuration ends the report."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pumice.cli.device_list.describe", fail)
    monkeypatch.setattr("shutil.disk_usage", fail)
    done = CliRunner().invoke(command, ["--json", "--no-measure"])
    assert done.exit_code == 0
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    for name in ("backends", "caches"):
        assert findings[name]["state"] == "absent"
        assert "cannot be examined: OSError" in findings[name]["details"][0]
    assert findings["processor"]["state"] == "ok"


def test_a_signal_ends_the_report(home, monkeypatch):
    def end(*_: object) -> None:
        raise Terminated(143)

    monkeypatch.setattr("pumice.cli.device_list.describe", end)
    assert CliRunner().invoke(command, ["--json", "--no-measure"]).exit_code == 143


def test_a_broken_configuration(home):
    (home / "pumice.yaml").write_text("backend: [")
    done = CliRunner().invoke(command, ["--no-measure"])
    assert done.exit_code == 0
    assert "not valid YAML" in done.output
