"""Fixtures of the configuration, the plugin manager, the hub and the command."""

import io
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import hub_server
from gguf_files import tiny_llama
from pumice.cli import main


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a small model with random weights."""
    return tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


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


@pytest.fixture
def hub(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub on loopback that ``huggingface_hub`` asks instead of the real one, and empty caches."""
    with hub_server.serve() as hub:
        hub_server.use(hub, tmp_path, monkeypatch)
        yield hub


class Done(NamedTuple):
    """Output and exit status of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    """Run ``pumice`` with these arguments; standard input is ``input``, empty by default, or a terminal if None."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own handlers stay

    def run(*arguments: str, input: str | bytes | None = "") -> Done:
        data = input.encode() if isinstance(input, str) else input or b""
        stdin = io.TextIOWrapper(io.BytesIO(data))
        stdin.isatty = lambda: input is None  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "argv", ["pumice", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        stdout, stderr = capfdbinary.readouterr()
        return Done(end.value.code or 0, stdout.decode(), stderr.decode())

    return run
