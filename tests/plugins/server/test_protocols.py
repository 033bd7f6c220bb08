"""Protocols of other plugins: the one of the documentation as a user installs it, and clashes."""

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

import pumice
from installed_plugins import install
from pumice.cli.plugin_package import package_files
from pumice.plugin.unstable import ServerProtocol
from pumice_server import application
from pumice_server.errors import bad_request, error_body, problem_of
from pumice_server.interface import Settings, get
from waiting import PATIENCE, wait_until


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the package that ``pumice plugins new`` writes of the page, as pip leaves it."""
    site = tmp_path_factory.mktemp("site")
    files = package_files("tgi-protocol", ["protocol"])
    install(site, "tgi-protocol", "", api=None)
    (site / "tgi_protocol.py").unlink()
    (site / "tgi_protocol").mkdir()
    for path in files.keys() - {"pyproject.toml"}:
        (site / path).write_text(files[path])
    return site


@contextmanager
def served(site: Path, folder: Path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    log = folder / "log"
    command = [sys.executable, "-m", "pumice", "serve", "--port", "0", "--no-sandbox", "--backend", "numpy"]
    with log.open("w") as err, subprocess.Popen(command, env=environment, cwd=folder, stderr=err) as process:
        try:
            wait_until(lambda: "listening on" in log.read_text() or process.poll() is not None)
            url = re.search(r"listening on (\S+)", log.read_text())
            assert url, log.read_text()
            with httpx2.Client(base_url=url[1], timeout=PATIENCE) as client:
                yield client
        finally:
            process.terminate()


def test_the_protocol_of_the_page_answers_streams_refuses_and_is_described(site, tmp_path):
    assert len((site / "tgi_protocol" / "protocol.py").read_text().splitlines()) <= 80
    with served(site, tmp_path) as client:
        asked = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 8, "temperature": 0}}
        whole = client.post("/generate", json=asked).json()
        assert whole.keys() == {"generated_text", "finish_reason"}
        assert whole["finish_reason"] == "length"
        lines = [line for line in client.post("/generate", json={**asked, "stream": True}).text.splitlines() if line]
        parts = [json.loads(line.removeprefix("data: ")) for line in lines if not line.startswith(":")]
        assert "".join(part["generated_text"] for part in parts) == whole["generated_text"]
        assert [part.get("finish_reason") for part in parts][-1] == "length"
        assert all("finish_reason" not in part for part in parts[:-1])
        wrong = client.post("/generate", json={"inputs": "a", "parameters": {"max_new_tokens": 0}})
        assert (wrong.status_code, wrong.json().keys()) == (400, {"error", "error_type"})
        assert "max_new_tokens" in wrong.json()["error"]
        assert client.post("/v1/completions", json={"prompt": 5, "max_tokens": "a"}).json()["error"].keys() > {"type"}
        described = client.get("/openapi.json").json()
        assert described["paths"]["/generate"]["post"]["tags"] == ["TGI"]
        fields = described["components"]["schemas"]
        assert fields["Parameters"]["properties"]["max_new_tokens"]["description"] == "Maximum tokens of the text."
        assert "Generated" in fields


def of(title: str, *paths: str) -> ServerProtocol:
    async def answer(request: object) -> None: ...

    return ServerProtocol(title, lambda settings: [get(answer, *paths)])


def test_two_protocols_of_one_path_are_told_by_name(monkeypatch):
    monkeypatch.setattr(application, "protocols", lambda: [of("One", "/a", "/b"), of("Two", "/b")])
    with pytest.raises(pumice.PluginError, match="the protocols One and Two both serve GET /b; plugins"):
        list(application.served_endpoints(Settings()))


def test_a_protocol_whose_code_fails_is_left_out(monkeypatch, caplog):
    def endpoints(settings: Settings) -> list:
        return [get(settings.absent, "/c")]

    monkeypatch.setattr(application, "protocols", lambda: [of("One", "/a"), ServerProtocol("Two", endpoints)])
    for _ in range(2):
        assert [protocol.title for protocol, _ in application.served_endpoints(Settings())] == ["One"]
    assert caplog.text.count("protocol Two: AttributeError: ") == 1


def test_a_format_of_errors_that_fails_is_logged_and_openais_is_sent(caplog):
    for form in (lambda problem, request_id: problem.absent, lambda problem, request_id: None):
        scope = {"app": SimpleNamespace(state=SimpleNamespace(error_formats={"/a": form})), "path": "/a"}
        body = error_body(problem_of(bad_request("wrong")), scope | {"state": {"request_id": "1"}})
        assert body["error"]["message"] == "wrong"
    assert "AttributeError: 'Problem' object has no attribute 'absent'" in caplog.text
    assert "TypeError: the format of errors below /a returned None, not a mapping" in caplog.text


def test_an_endpoint_that_exits_or_returns_nothing_fails_alone():
    async def leave(request):
        sys.exit(3)

    async def forget(request) -> dict[str, int]:
        pass

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        asyncio.run(application.responding(leave)(None))
    with pytest.raises(TypeError, match="forget returned None"):
        asyncio.run(application.responding(forget)(None))


def test_a_protocol_that_cannot_be_imported_is_left_out(monkeypatch, caplog):
    class Broken(dict):
        def __getitem__(self, name):
            raise pumice.PluginError("protocol 'broken' (plugin x): no module named y")

    monkeypatch.setattr(application, "get_registry", lambda config: SimpleNamespace(protocols=Broken(broken=1)))
    assert [protocol.title for protocol in application.protocols.__wrapped__()] == ["OpenAI", "Pumice"]
    assert "no module named y; the server goes on without it" in caplog.text
