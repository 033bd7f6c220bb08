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
        runner = CliRunner(env={"PUMICE_CONFIG": str(home.parent / "settings.yaml")})
        done = runner.invoke(command, ["--json", "--no-measure"])
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


def test_a_machine_that_has_nothing(doctor, monkeypatch):
    lines = ("Landlock: not in this kernel", "seccomp: not in this kernel")
    monkeypatch.setattr(sandbox, "missing", lambda: lines)
    status, state, details = doctor()
    assert (status, state) == (0, "absent")
    assert all(line in details for line in lines)
    assert doctor("on")[0] == 1


def test_text(home):
    """Everything is reported, and the demo model is measured."""
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0
    for name in ("processor", "backends", "packages", "caches", "speed", "sandbox"):
        assert f"\n{name}: " in f"\n{done.output}"
    assert "generation" in done.output
    assert "cannot be examined" not in done.output
