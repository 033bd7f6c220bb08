"""Fixtures of the configuration and the plugin manager."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without configuration, and a user without any; its parent is for other files."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PUMICE_CONFIG", raising=False)
    monkeypatch.delenv("PUMICE_DEBUG", raising=False)
    return directory


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on ``sys.path``, to install plugins in."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr("pumice.registry.loading._registries", {})
    monkeypatch.setenv("PYTHONPATH", str(directory))
    before = set(sys.modules)
    yield directory
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(directory) in str(sys.modules[name].__file__):
            del sys.modules[name]
