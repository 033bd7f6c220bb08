"""The process that takes requests, confined: it reads no model, starts no program, and serves all the same."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import ollama
import pytest

from gguf_files import tiny_llama
from sandboxes import needs_sandbox
from waiting import PATIENCE, wait_until

pytestmark = needs_sandbox

SERVER = """
import json, os, pumice, sys
from pumice.cli.confinement import one_thread
with one_thread():
    import pumice_server.command.serving as serving
from pumice.__main__ import main
from pumice.sandbox import trial

def attempts(state):
    outcomes = trial.run({model!r}, {secret!r})
    for name, attempt in {{
        "read the model": lambda: open({model!r}, "rb").read(1),
        "list the model's folder": lambda: os.listdir(os.path.dirname({model!r})),
        "write to the folder of keys": lambda: open({keys!r} + ".new", "w"),
    }}.items():
        outcomes[name] = trial._outcome(attempt)
    try:
        outcomes["tokenize"] = str(pumice.load_tokenizer({model!r}))
    except pumice.PumiceError as error:
        outcomes["tokenize"] = str(error)
    print("outcomes", json.dumps(outcomes), file=sys.stderr, flush=True)

serving.notify = attempts
sys.argv[0] = "pumice"
sys.exit(main())
"""


class Served(NamedTuple):
    process: subprocess.Popen[str]
    client: httpx2.Client
    said: list[str]
    folder: Path

    @property
    def outcomes(self) -> dict[str, str]:
        return json.loads(next(line for line in self.said if line.startswith("outcomes ")).removeprefix("outcomes "))


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    """Two models of a folder, keys, conversations and slots."""
    folder = tmp_path_factory.mktemp("confined")
    for name in ("home/.ssh", "models", "etc", "kept", "slots"):
        (folder / name).mkdir(parents=True)
    for name in ("one", "two"):
        tiny_llama(folder / "models" / f"{name}.gguf")
    files = {"model": "models/one.gguf", "secret": "home/.ssh/id_ed25519", "keys": "etc/keys"}
    files = {name: str(folder / path) for name, path in files.items()}
    Path(files["secret"]).write_text("secret")
    Path(files["keys"]).write_text("key\n")
    options = ["--models-dir", folder / "models", "--api-key-file", files["keys"], "--slot-save-path", folder / "slots"]
    options += ["--conversations", folder / "kept/all.sqlite", "--chat-template", "chatml", "--port", "0"]
    options += ["--allow-uploads", "1MiB"]
    options += ["--set", f"cache_disk={folder}/prompts"]  # which engines may write to, and the server may not
    options += ["--set", "backend=numpy"]  # compiles no kernels, which a new cache folder would need
    command = [sys.executable, "-c", SERVER.format(**files), "serve", *map(str, options)]
    environment = {**os.environ, "HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")), daemon=True).start()
    try:
        wait_until(lambda: any(line.startswith("outcomes") for line in said) or process.poll() is not None)
        assert process.poll() is None, said
        url = next(found[1] for line in said if (found := re.match(r"listening on (\S+)", line)))
        with httpx2.Client(base_url=url, timeout=PATIENCE, headers={"Authorization": "Bearer key"}) as client:
            yield Served(process, client, said, folder)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_it_is_denied_everything(served):
    outcomes = dict(served.outcomes)
    assert outcomes.pop("tokenize").lower().endswith("permission denied")
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "denied"} == {}
    assert len(outcomes) > 30


def test_models_are_listed_by_readers_and_told_of_by_engines(served):
    listed = served.client.get("/api/tags").json()["models"]
    assert [(each["name"], each["details"]["family"]) for each in listed] == [("one", "llama"), ("two", "llama")]
    tokens = served.client.post("/tokenize", json={"content": "Once", "model": "one"}).json()["tokens"]
    assert tokens
    assert served.client.post("/detokenize", json={"tokens": tokens, "model": "one"}).json()["content"]
    loaded = served.client.get("/api/tags").json()["models"]
    assert [each["digest"] for each in loaded] == [each["digest"] for each in listed]  # by an engine as by a reader


def test_it_answers_and_keeps_what_it_is_asked_to(served):
    chat = {"model": "one", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}
    assert served.client.post("/v1/chat/completions", json=chat).status_code == 200
    grammar = {**chat, "response_format": {"type": "json_object"}}
    assert served.client.post("/v1/chat/completions", json=grammar).status_code == 200
    for action in ("save", "restore"):
        answer = served.client.post(f"/slots/0?action={action}&model=one", json={"filename": "a"})
        assert answer.status_code == 200, answer.text
    for path in ("/", "/conversations"):
        assert served.client.get(path, headers={"Accept": "text/html"}).status_code == 200


def test_it_serves_uploaded_files_until_they_are_deleted(served):
    client = ollama.Client(host=str(served.client.base_url), headers={"Authorization": "Bearer key"}, timeout=PATIENCE)
    client.create("own", files={"tiny.gguf": client.create_blob(served.folder / "models/one.gguf")})
    assert client.generate("own", "a", raw=True, options={"num_predict": 2}).eval_count == 2
    kept = served.folder / "cache/pumice/uploads"
    assert len(list((kept / "blobs").iterdir())) == len(list((kept / "models").glob("*/*/*"))) == 1
    client.delete("own")
    assert [*(kept / "blobs").iterdir(), *(kept / "models").glob("*/*/*")] == []


def test_a_router_is_confined_and_passes_requests_on(served):
    command = [sys.executable, "-m", "pumice", "route", str(served.client.base_url), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=served.folder) as router:
        try:
            url = next(found[1] for line in router.stderr if (found := re.match(r"listening on (\S+)", line)))
            status = Path(f"/proc/{router.pid}/status").read_text()
            assert re.search(r"NoNewPrivs:\s1", status)
            assert re.search(r"Seccomp:\s2", status)
            body = {"model": "one", "prompt": "Once", "max_tokens": 2}
            answer = httpx2.post(f"{url}/v1/completions", json=body, headers=served.client.headers, timeout=PATIENCE)
            assert answer.status_code == 200, answer.text
            router.send_signal(signal.SIGTERM)
            assert router.wait(PATIENCE) == 0
        finally:
            router.kill()


def test_it_ends_by_a_signal_and_leaves_nobody(served):
    (spawner,) = map(int, Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split())
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(PATIENCE) == 0
    wait_until(lambda: not Path(f"/proc/{spawner}").exists())
    assert list((served.folder / "cache/pumice/uploads/models").iterdir()) == []
    said = [line for line in served.said if "outcomes" not in line]
    assert not [line for line in said if "Traceback" in line or "error" in line.lower()]
