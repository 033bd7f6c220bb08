"""The runner of tests/clients: what it refuses, and its exit status. No client is installed, and no server runs."""

import contextlib
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "clients"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs main with arguments; clients named in ``broken`` cannot be installed."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("run")
    page = tmp_path / "clients.md"
    page.write_text(f"{module.BEGIN}\nold\n{module.END}\n")
    monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr(module, "server", lambda: contextlib.nullcontext(("http://127.0.0.1:1", "demo")))
    monkeypatch.setattr(module, "try_client", lambda client, url, model: {"chat": "ok"})

    def main(*arguments, broken=()):
        monkeypatch.setattr(module, "install", lambda client: "no network" if client.name in broken else "")
        monkeypatch.setattr("sys.argv", ["run.py", *arguments])
        return module.main(), page.read_text()

    main.names = [client.name for client in module.CLIENTS]
    return main


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["DSPi"], "unknown client 'DSPi' (known: OpenAI, "),
        (["DSPy", "--quick"], "none of these clients is in the development lock"),
        (["DSPy", "--write"], "--write needs a run of all clients"),
    ],
)
def test_choices_that_cannot_be_run_are_refused(run, capsys, arguments, error):
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert error in capsys.readouterr().err


def test_a_run_without_any_client_fails(run, capsys):
    assert run("DSPy")[0] == 0
    assert run("DSPy", "Haystack", broken=["DSPy"])[0] == 0
    assert run("DSPy", broken=["DSPy"])[0] == 1
    assert "no client could be installed" in capsys.readouterr().err


def test_a_table_without_skipped_clients_is_not_written(run, capsys):
    status, page = run("--write", broken=["DSPy"])
    assert status == 1
    assert "old" in page
    assert "the skipped clients" in capsys.readouterr().err
    status, page = run("--write")
    assert status == 0
    assert page.count("\n| ") == 2 + len(run.names)  # two lines of the head
