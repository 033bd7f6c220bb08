"""`pumice launch`: what a client is told of a server, and the server that is started for it."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pumice.cli import cli
from pumice.cli.launch.clients import CLIENTS
from pumice.demo import demo_model_path
from pumice.process_list import RunningServer, listed_server, servers
from waiting import wait_until

KEY = "sk-right"
META = {"n_ctx": 2048, "n_ctx_train": 8192}


class Models(BaseHTTPRequestHandler):
    """A server that has two models, of which one is loaded, and a key."""

    def do_GET(self) -> None:
        right = self.headers["Authorization"] == f"Bearer {KEY}"
        body = json.dumps({"data": [{"id": "small", "meta": META}, {"id": "other"}]}).encode()
        self.send_response(200 if right else 401)
        self.end_headers()
        self.wfile.write(body if right else b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("PUMICE_API_KEY", raising=False)
    return tmp_path


def launch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["launch", *arguments])


def program(home: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put an executable on the PATH."""
    path = home / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_is_told_the_address_the_model_and_the_key(name: str, url: str) -> None:
    told = launch(name, "small", "--url", f"{url}/v1", "--api-key", KEY, "--print")
    assert told.exit_code == 0, told.output
    for part in (url, "small", KEY):
        assert part in told.stdout


def test_the_documentation_lists_the_clients() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    assert re.findall(r"^\| `(.+?)` \|", page, flags=re.MULTILINE) == list(CLIENTS)


def test_a_server_that_runs_is_used(url: str) -> None:
    with listed_server(RunningServer(url, {"models/small.gguf": "small", "other": "other"})):
        for model in ([], ["small"], ["models/small.gguf"]):
            told = launch("aider", *model, "--api-key", KEY, "--print")
            assert f"OPENAI_API_BASE={url}/v1" in told.stdout
            assert "--model openai/small" in told.stdout
            assert "the context has 2048 tokens; aider needs 16384 to work well: small was trained" in told.stderr
        assert "no server has another loaded" in launch("aider", "another", "--print").stderr
    assert "no server runs" in launch("aider", "--print").stderr


def test_a_client_runs_with_its_arguments_and_gives_its_status(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the user")
    script = f'echo "$ANTHROPIC_BASE_URL|$ANTHROPIC_MODEL|${{ANTHROPIC_API_KEY-hidden}}|$*" > {home}/said; exit 7'
    program(home, monkeypatch, "claude", script)
    assert launch("claude", "other", "--url", url, "--api-key", KEY, "--", "-p", "a b").exit_code == 7
    assert (home / "said").read_text() == f"{url}|other|hidden|-p a b\n"


def test_a_server_is_started_for_a_client_and_ends_with_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed while it runs, for other clients, and has a key that others on this machine do not know."""
    monkeypatch.setenv("LLAMA_API_KEY", "of the user")
    look = f"{sys.executable} -m pumice launch aider --print --json"
    program(home, monkeypatch, "aider", f"env > {home}/said; {look} > {home}/again 2>&1; true")
    told = launch("aider", str(demo_model_path()), "--ctx-size", "256")
    assert told.exit_code == 0, told.output
    said = dict(line.split("=", 1) for line in (home / "said").read_text().splitlines() if "=" in line)
    address = said["OPENAI_API_BASE"].removesuffix("/v1")
    assert f"listening on {address}" in told.stderr
    assert len(said["OPENAI_API_KEY"]) > 20
    assert f"{address} wants an API key" in (home / "again").read_text()
    assert servers() == []
    assert address in launch("aider", "--url", address, "--print").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent on Linux alone")
def test_nothing_is_left_by_a_launch_that_is_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(home, monkeypatch, "aider", f"echo $$ > {home}/client; exec sleep 600")
    command = [sys.executable, "-m", "pumice", "launch", "aider", str(demo_model_path()), "--ctx-size", "256"]
    for number in (signal.SIGHUP, signal.SIGKILL):
        (home / "client").unlink(missing_ok=True)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_until((home / "client").exists)
            (server,) = servers()
            process.send_signal(number)
        wait_until(lambda: not servers())
        wait_until(lambda server=server: not Path(f"/proc/{server.pid}").exists())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claud"], "unknown client 'claud'; did you mean 'claude'?"),
        (["claude"], "claude (Claude Code) is not on the PATH; install it: npm install"),
        (["aider", "--print"], "no server runs on this machine; name a MODEL to serve that suits coding, such as "),
        (["aider", "m.gguf", "--print"], "no server has m.gguf loaded; start one with: pumice serve m.gguf"),
        (["aider", "--print", "--url", "http://127.0.0.1:1"], "http://127.0.0.1:1/v1/models: "),
    ],
)
def test_clients_that_do_not_start(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("PATH", str(home))
    told = launch(*arguments)
    assert told.exit_code in (1, 2)
    assert message in told.output
    assert "Traceback" not in told.output


def test_configuration_files_are_changed_only_if_asked(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    program(home, monkeypatch, "cn", "exit 0")
    path = home / ".continue" / "config.yaml"
    path.parent.mkdir()
    path.write_text("models:\n- name: mine\n  provider: ollama\n")
    path.chmod(0o640)
    arguments = ["continue", "small", "--url", url, "--api-key", KEY]
    told = launch(*arguments)
    assert told.exit_code == 1
    assert "give --write" in told.stderr
    assert [row["model"] for row in yaml.safe_load(told.stdout)["models"]] == ["small"]
    assert path.read_text() == "models:\n- name: mine\n  provider: ollama\n"
    for _ in range(2):  # once more replaces what was written
        assert launch(*arguments, "--write").exit_code == 0
    assert [row["name"] for row in yaml.safe_load(path.read_text())["models"]] == ["mine", "Pumice small"]
    kept = path.with_name("config.yaml.bak")
    assert kept.read_text() == "models:\n- name: mine\n  provider: ollama\n"
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o640}
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes")
def test_a_full_disk_leaves_the_configuration_and_no_copy(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    program(home, monkeypatch, "cn", "exit 0")
    monkeypatch.setenv("HOME", str(home))
    path = home / ".continue" / "config.yaml"
    path.parent.mkdir()
    path.write_text("models:\n- name: mine\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
    try:
        told = launch("continue", "small", "--url", url, "--api-key", KEY, "--write")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert told.stderr.endswith(f"Error: {path}: file too large\n")
    assert [file.read_text() for file in path.parent.iterdir()] == ["models:\n- name: mine\n"]


def test_an_endpoint_is_added_to_a_file_that_is_a_list(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(home, monkeypatch, "code", "exit 0")
    monkeypatch.setattr(sys, "platform", "linux")
    path = home / "Code" / "User" / "chatLanguageModels.json"
    path.parent.mkdir(parents=True)
    path.write_text('[{"vendor": "ollama", "name": "mine"}]')
    for _ in range(2):
        assert launch("vscode", "small", "--url", url, "--api-key", KEY, "--write").exit_code == 0
    mine, ours = json.loads(path.read_text())
    assert mine == {"vendor": "ollama", "name": "mine"}
    assert ours["models"][0]["url"] == f"{url}/v1/chat/completions"
    path.write_text('{"vendor": "ollama"}')
    assert "it holds dict, not a list" in launch("vscode", "small", "--url", url, "--api-key", KEY, "--write").stderr


@pytest.mark.parametrize("text", ['{\n  // mine\n  "theme": "dark"\n}', "[]", '{"language_models": 1}', "{"])
def test_a_configuration_file_that_would_lose_something_stays(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    program(home, monkeypatch, "zed", "exit 0")
    path = home / "zed" / "settings.json"
    path.parent.mkdir()
    path.write_text(text)
    told = launch("zed", "small", "--url", url, "--api-key", KEY, "--write")
    assert told.exit_code == 1
    assert str(path) in told.stderr
    assert path.read_text() == text
