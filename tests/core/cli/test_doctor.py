"""``pumice doctor``: what confines processes on this machine."""

import json

import pytest
from click.testing import CliRunner

from pumice import sandbox
from pumice.cli.doctor import command
from sandboxes import needs_sandbox


@pytest.fixture
def doctor(home):
    """Run the command; its status and its findings."""

    def run(setting: str = "auto"):
        (home.parent / "settings.yaml").write_text(f"sandbox: {setting}\n")
        done = CliRunner(env={"PUMICE_CONFIG": str(home.parent / "settings.yaml")}).invoke(command, ["--json"])
        (finding,) = json.loads(done.stdout)
        assert finding["name"] == "sandbox"
        return done.exit_code, finding["state"], "\n".join(finding["details"])

    return run


@needs_sandbox
def test_a_machine_that_has_everything(doctor):
    status, state, details = doctor("on")
    assert (status, state) == (0, "ok")
    assert "in force: Landlock" in details
    assert "forbidden calls are denied" in details


def test_what_is_switched_off(doctor, monkeypatch):
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
def test_what_is_not_denied(doctor, monkeypatch):
    """A trial without a sandbox finds that out."""
    launch = sandbox.launch
    monkeypatch.setattr(sandbox, "launch", lambda module, policy: launch(module))
    status, state, details = doctor("on")
    assert (status, state) == (1, "partial")
    assert "not denied: `fork` (done)" in details


def test_text(home):
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    assert done.output.startswith("sandbox: ")
