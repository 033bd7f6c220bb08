"""The command with a small model, and nothing configured."""

import io
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gguf_files import tiny_llama
from pumice.cli import main


class Done(NamedTuple):
    """Output and exit status of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a small model with random weights."""
    return str(tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf"))


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
