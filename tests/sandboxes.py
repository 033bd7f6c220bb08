"""Processes that are confined, for tests."""

import json
import subprocess

import pytest

from pumice import sandbox

needs_sandbox = pytest.mark.skipif(bool(sandbox.missing()), reason="; ".join(sandbox.missing()) or "it is there")


def run(source: str, policy: sandbox.Policy | None, site, **variables: str):
    """Return the JSON that a program prints in a process confined by ``policy``; ``site`` is a folder for it."""
    (site / "confined_program.py").write_text(f"import json\n{source}")
    command, environment = sandbox.launch("confined_program", policy=policy)
    environment |= {"PYTHONPATH": str(site), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
