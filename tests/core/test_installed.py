"""The distribution that is installed, and the command that installs its extras."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pumice import installed


@pytest.mark.parametrize("is_checkout", [True, False])
def test_an_extra_is_installed_from_where_pumice_came(
    is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    origin = json.dumps({"url": checkout.as_uri(), "dir_info": {}})
    distribution = SimpleNamespace(read_text=lambda name: origin if name == "direct_url.json" else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: distribution)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    if is_checkout:
        (checkout / "pyproject.toml").write_text("")
    source = checkout if is_checkout else "pumice"
    assert installed.install_command("server") == f"pip install '{source}[server]'"


def test_the_interpreter_of_an_environment_that_is_not_activated_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(sys, "prefix", "/opt/an environment")
    monkeypatch.setattr(sys, "executable", "/opt/an environment/bin/python")
    assert installed.install_command("mcp").startswith("'/opt/an environment/bin/python' -m pip install ")
